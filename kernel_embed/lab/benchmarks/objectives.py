"""Objectives with their gradients: over one Cholesky factorization by rows, and one evaluation at few rows."""

from __future__ import annotations

import itertools
import math
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ...embeddings import BayesianMeanEmbedding, ConditionalEmbedding, ConditionedEmbedding, MulticlassEmbedding
from ...kernels import RadialProfile, gram, register
from ...learning.loss import Data, LocalProcess, Loss
from ...learning.parameters import ParameterVector
from ...learning.problem import Problem
from ...objectives import (
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    EmbeddingEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    LeaveOneOutScore,
    Objective,
    RademacherComplexity,
)
from ...posteriors.potential import Potential
from ...results import Record
from ..experiment import Settings
from . import OURS, Call, Measurement, inference, part

THREADS = {1: "one thread", 2: "two threads"}
SIZES, WITH_TWO_THREADS = (250, 500, 1000, 2000, 4000, 8000, 16_000), 2000
AUTOGRAD = f"{OURS}, through autograd"


class Cauchy(Kernel):
    """A user's kernel, registered as in ``docs/examples/your_own.py``: 1 / (1 + ‖(x − x') / ℓ‖²)."""

    has_lengthscale = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """The kernel matrix, or its diagonal."""
        squares: Tensor = self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, diag, square_dist=True)
        return 1.0 / (1.0 + squares)


register(
    Cauchy,
    profile=RadialProfile(
        exponent=lambda halves: -torch.log1p(-2.0 * halves),
        factors=lambda E: (1.0, -E.exp()),
        curvature=lambda E: 2.0 * (2.0 * E).exp(),
    ),
)


class LeaveOneOutBrier(Objective[ConditionedEmbedding]):
    """A user's objective without derivatives: (1/n) Σ ‖y_i − f₋ᵢ(x_i)‖²."""

    def evaluate(self, bound: ConditionedEmbedding) -> Tensor:
        """The mean over rows."""
        return (bound.Y - bound.leave_one_out()).square().sum(-1).mean(-1)

    def __repr__(self) -> str:
        return "LeaveOneOutBrier()"


def classes(n: int, make: Callable[..., Kernel] = RBFKernel) -> tuple[MulticlassEmbedding, Tensor, Tensor]:
    """An embedding of seven classes with 20 lengthscales, and data for it."""
    x = torch.rand(n, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = make(ard_num_dims=20).double()
    kernel.lengthscale = 1.5
    return MulticlassEmbedding(kernel, 7, regularization=1e-3), x, (x[:, 0] * 7).long().clamp_max(6)


def numbers(n: int) -> tuple[ConditionalEmbedding, Tensor, Tensor]:
    """An embedding of a real target with eight lengthscales, and data for it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 8, dtype=torch.float64, generator=generator)
    y = torch.sin(4 * x[:, 0]) + 0.3 * torch.randn(n, dtype=torch.float64, generator=generator)
    kernel = RBFKernel(ard_num_dims=8).double()
    kernel.lengthscale = 1.0
    return ConditionalEmbedding(kernel, 1e-3).double(), x, y


def sample(n: int) -> tuple[BayesianMeanEmbedding, Tensor]:
    """An embedding of a normal sample with ten lengthscales, and the sample."""
    x = torch.randn(n, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    kernel = RBFKernel(ard_num_dims=10).double()
    kernel.lengthscale = 3.0
    return BayesianMeanEmbedding(kernel), x


class Work(NamedTuple):
    """An objective, a function from a number of rows to embedding and data, and the operations it cannot avoid.

    They are counted in Cholesky factorizations: 1 for the factor, 2 for the inverse, 3 for a triangle of a product.
    """

    objective: Objective[Any]
    problem: Callable[[int], tuple[Any, ...]]
    counted: int | None = None


_EMPIRICAL, _LEFT_OUT = EmpiricalRisk() + RademacherComplexity("4e/n"), LeaveOneOutRisk() + RademacherComplexity("4e/n")
WORK = {
    "EmpiricalRisk + RademacherComplexity": Work(_EMPIRICAL, classes, 1),
    "LeaveOneOutRisk + RademacherComplexity": Work(_LEFT_OUT, classes, 6),
    "CalibratedLeaveOneOutRisk": Work(CalibratedLeaveOneOutRisk(), classes, 6),
    "ConditionalEvidence": Work(ConditionalEvidence(), classes, 3),
    "LeaveOneOutScore": Work(LeaveOneOutScore(), numbers, 12),
    "EmbeddingEvidence": Work(EmbeddingEvidence(), sample),
}
FIRST, LEAVE_ONE_OUT = list(WORK)[:2]
OWN = {
    "own objective": Work(LeaveOneOutBrier(), classes),
    "own kernel": Work(_LEFT_OUT, partial(classes, make=Cauchy)),
}


def evaluation(work: Work, n: int) -> Call:
    """The objective with its gradient by autograd, as in a user's training loop."""
    embedding, *data = work.problem(n)
    return lambda: torch.autograd.backward(work.objective(embedding, *data))


def plain_autograd(n: int) -> Call:
    """The first objective with GPyTorch's Gram matrix and autograd through the factor."""
    embedding, x, y = classes(n)

    def call() -> None:
        K = embedding.kernel(x).to_dense()
        L = torch.linalg.cholesky(K + n * embedding.regularization * torch.eye(n, dtype=x.dtype))
        V = torch.cholesky_solve(torch.nn.functional.one_hot(y, embedding.num_classes).to(x.dtype), L)
        P = K @ V
        risk = -P.gather(1, y[:, None]).clamp(1e-15, 1.0).log().mean()
        (risk + 4 * math.e / n * (V * P).sum().sqrt()).backward()

    return call


def measure_objective(make: Callable[[], Call], counted: int | None, n: int, threads: int, rounds: int) -> Record:
    """CPU time over that of one Cholesky factorization, the median over rounds in which both take turns, and memory."""
    embedding, x, _ = classes(n)
    with torch.no_grad():
        A = gram(embedding.kernel, x) + n * embedding.regularization * torch.eye(n, dtype=x.dtype)
    call, before = make(), torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        call()
        times = np.array([[_seconds(partial(torch.linalg.cholesky, A)), _seconds(call)] for _ in range(rounds)])
        peak = _peak_doubles(call) / n**2
    finally:
        torch.set_num_threads(before)
    (unit, processor), (_, clock) = times[..., 0].T, times[..., 1].T
    return {
        "seconds": float(np.median(clock)),
        "processor_seconds": float(np.median(processor)),
        "over_cholesky": float(np.median(processor / unit)),
        "counted": counted,
        "peak_squares": peak,
    }


def _seconds(call: Call, repeats: int = 3) -> tuple[float, float]:
    """The least CPU time and the least wall-clock time of some runs."""
    processor = clock = float("inf")
    for _ in range(repeats):
        started, used = time.perf_counter(), time.process_time()
        call()
        clock, processor = min(clock, time.perf_counter() - started), min(processor, time.process_time() - used)
    return processor, clock


def _peak_doubles(call: Call) -> float:
    """The highest sum of live allocations during ``call``, in doubles; the profiler writes to stderr from C++."""
    stderr, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
            call()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(nowhere)
    events = sorted(record.profiler.kineto_results.events(), key=lambda event: event.start_ns())
    return float(max(itertools.accumulate(event.nbytes() for event in events if event.name() == "[memory]"))) / 8.0


@part("objective")
def objective_cases(settings: Settings) -> Iterator[Measurement]:
    """Objective and gradient over one Cholesky factorization, from 250 to 16,000 rows."""

    def measured(name: str, make: Callable[[], Call], counted: int | None, n: int, threads: int) -> Measurement:
        rounds = 3 if n <= WITH_TWO_THREADS and not settings.quick else 1
        call = partial(measure_objective, make, counted, n, threads, rounds)
        return Measurement(f"objective and gradient, {THREADS[threads]}", name, n, lambda: call, against=FIRST)

    for n in (200,) if settings.quick else SIZES:
        several = n in (200, WITH_TWO_THREADS)
        for threads in THREADS if several else (1,):
            for name, work in WORK.items():
                yield measured(name, partial(evaluation, work, n), work.counted, n, threads)
        if several:
            yield measured("plain autograd, first objective", partial(plain_autograd, n), None, n, 1)


def step(work: Work, n: int) -> Call:
    """One evaluation as ``fit`` makes it: from a vector of parameters to a value and a vector."""
    embedding, x, y = work.problem(n)
    vector = ParameterVector(embedding)
    loss = Loss(LocalProcess(embedding), work.objective, vector, Data(x, y))
    problem = Problem(loss, np.random.default_rng(0), False)
    point = vector.get()
    # Points as close to each other as those of a search, whose evaluations start from the previous solution.
    steps = itertools.cycle(0.05 * np.random.default_rng(0).standard_normal((8, len(point))))
    return lambda: problem.record(problem.evaluate(point + next(steps)))


def potential_step(model: inference.Model, n: int, direct: bool) -> Call:
    """The potential with its gradient, directly or through autograd."""
    embedding, objective, x, y = model.problem(n)
    potential = Potential(embedding, objective, x, y)
    u = potential.vector.get()
    return lambda: potential.value_and_gradient(u) if direct else potential.by_autograd(u)


@part("small")
def small_cases(settings: Settings) -> Iterator[Measurement]:
    """One evaluation at few rows: built-in, through autograd, and with a user's own objective or kernel."""
    for n in (30,) if settings.quick else (50, 100, 200):
        for objective, work in WORK.items():
            if work.problem is not sample:
                calls = {OURS: partial(step, work, n), AUTOGRAD: partial(evaluation, work, n)}
                if objective == LEAVE_ONE_OUT:
                    calls |= {name: partial(step, own, n) for name, own in OWN.items()}
                for name, prepare in calls.items():
                    yield Measurement(f"one evaluation of fit, {objective}", name, n, prepare, repeats=100)
    for title, model in inference.MODELS.items():
        for n in (30,) if settings.quick else (48, 102, 198):
            for name, direct in ((OURS, True), (AUTOGRAD, False)):
                prepare = partial(potential_step, model, n, direct)
                yield Measurement(f"one leapfrog step, {title}", name, n, prepare, repeats=100)
