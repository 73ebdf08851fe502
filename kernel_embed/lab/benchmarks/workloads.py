r"""Objectives with data for them, the work that an evaluation cannot avoid, and clocks for both.

Counted with one Cholesky factorization, n³/3 additions and multiplications, as the unit: the inverse takes 2 more, one
triangle of a product of n × n matrices 3. Measured, the limit is the time of exactly these calls and of the thin
products and passes of a kernel and its gradient, with nothing around them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ...embeddings import ConditionalEmbedding, MulticlassEmbedding
from ...kernels import gram
from ...learning.data import TensorData
from ...learning.loss import LocalProcess, Loss
from ...learning.parameters import ParameterVector
from ...learning.problem import Problem
from ...learning.search import Search
from ...objectives import (
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    LeaveOneOutScore,
    Objective,
    RademacherComplexity,
)
from .measurement import Call


def classes(n: int, d: int = 20, m: int = 7) -> tuple[MulticlassEmbedding, Tensor, Tensor]:
    """An ARD embedding of classes, and data for it."""
    x = torch.rand(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * m).long().clamp_max(m - 1)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.5
    return MulticlassEmbedding(kernel, m, regularization=1e-3), x, y


def numbers(n: int, d: int = 8) -> tuple[ConditionalEmbedding, Tensor, Tensor]:
    """An ARD embedding of a real target, and data for it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(4 * x[:, 0]) + 0.3 * torch.randn(n, dtype=torch.float64, generator=generator)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.0
    return ConditionalEmbedding(kernel, 1e-3).double(), x, y


class Work(NamedTuple):
    """An objective, data for it, and what it cannot avoid.

    Attributes:
        objective: with gradient.
        problem: embedding, x and y for a number of rows.
        inverse: whether the inverse is needed.
        triangles: of products of n × n matrices.
    """

    objective: Objective[Any]
    problem: Callable[[int], tuple[ConditionalEmbedding, Tensor, Tensor]]
    inverse: bool
    triangles: int

    @property
    def counted(self) -> int:
        """The limit in Cholesky factorizations."""
        return 1 + 2 * self.inverse + 3 * self.triangles


_EMPIRICAL, _LEFT_OUT = EmpiricalRisk() + RademacherComplexity("4e/n"), LeaveOneOutRisk() + RademacherComplexity("4e/n")
WORK: dict[str, Work] = {
    "EmpiricalRisk + RademacherComplexity": Work(_EMPIRICAL, classes, False, 0),
    "LeaveOneOutRisk + RademacherComplexity": Work(_LEFT_OUT, classes, True, 1),
    "CalibratedLeaveOneOutRisk": Work(CalibratedLeaveOneOutRisk(), classes, True, 1),
    "ConditionalEvidence": Work(ConditionalEvidence(), classes, True, 0),
    "LeaveOneOutScore": Work(LeaveOneOutScore(), numbers, True, 3),
}


def plain_autograd(embedding: MulticlassEmbedding, x: Tensor, y: Tensor) -> None:
    """The first objective as one would write it: GPyTorch's Gram matrix, and autograd through the factor."""
    n = len(y)
    K = embedding.kernel(x).to_dense()
    L = torch.linalg.cholesky(K + n * embedding.regularization * torch.eye(n, dtype=x.dtype))
    Y = torch.nn.functional.one_hot(y, embedding.num_classes).to(x.dtype)
    V = torch.cholesky_solve(Y, L)
    P = K @ V
    risk = -P.gather(1, y[:, None]).clamp(1e-15, 1.0).log().mean()
    (risk + 4 * math.e / n * (V * P).sum().sqrt()).backward()


def system(embedding: ConditionalEmbedding, x: Tensor) -> Tensor:
    """A = K + nλI."""
    with torch.no_grad():
        A = gram(embedding.kernel, x)
        A.diagonal().add_(len(x) * embedding.regularization)
    return A


def limit(work: Work, n: int) -> Call:
    """The calls alone: a factor, an inverse, triangles of products, thin products, and the passes of a kernel."""
    embedding, x, y = work.problem(n)
    A, Y = system(embedding, x), embedding.targets(y, x)

    def calls() -> None:
        K = (x @ x.mT).exp_()
        factor = torch.linalg.cholesky(A)
        V = torch.cholesky_solve(Y, factor)
        C = torch.cholesky_inverse(factor) if work.inverse else A
        for triangle in range(work.triangles):
            C[: n // 2 if triangle % 2 == 0 else n - n // 2] @ C
        P = K @ V
        torch.addmm(C, P, V.mT).mul_(K) @ x

    return calls


def evaluation(work: Work, n: int) -> Call:
    """The objective with its gradient, as in a user's training loop."""
    embedding, x, y = work.problem(n)
    return lambda: work.objective(embedding, x, y).backward()


def step(work: Work, n: int) -> Call:
    """One evaluation as :func:`kernel_embed.fit` makes it: from a vector to a value and a vector."""
    embedding, x, y = work.problem(n)
    alone = LocalProcess[Any](embedding)
    vector = ParameterVector(embedding)
    loss = Loss[Any](alone, work.objective, float(n))
    problem = Problem(loss, TensorData((x, y), n), vector, Search(alone, vector), np.random.default_rng(0), False)
    point = vector.get()
    # Points as close to each other as those of a search, whose evaluations start from the previous solution.
    steps = itertools.cycle(0.05 * np.random.default_rng(0).standard_normal((8, len(point))))
    return lambda: problem.record(problem.evaluate(point + next(steps)))


def seconds(call: Call, repeats: int) -> tuple[float, float]:
    """The least CPU time and the least wall-clock time of some runs."""
    processor = clock = float("inf")
    for _ in range(repeats):
        started, used = time.perf_counter(), time.process_time()
        call()
        clock = min(clock, time.perf_counter() - started)
        processor = min(processor, time.process_time() - used)
    return processor, clock


def timed(calls: Sequence[Call], rounds: int, repeats: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """CPU and wall-clock seconds of calls that take turns, ``(number of calls, rounds)``."""
    times = np.array([[seconds(call, repeats) for call in calls] for _ in range(rounds)])
    return times[..., 0].T, times[..., 1].T


def median(values: NDArray[np.float64]) -> float:
    """The median as a number for a record."""
    return float(np.median(values))


@contextlib.contextmanager
def with_threads(number_of_threads: int) -> Iterator[None]:
    """Set the number of threads of torch; restore it on leaving."""
    before = torch.get_num_threads()
    torch.set_num_threads(number_of_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def peak_doubles(call: Call) -> float:
    """The highest sum of live allocations during ``call``, in doubles, from the allocator's own record."""
    with _no_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    live = peak = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak / 8.0


@contextlib.contextmanager
def _no_stderr() -> Iterator[None]:
    """Nothing on the error stream: the profiler writes lines there from C++."""
    stderr = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
