"""Evidence and potentials with their gradients: beside autograd and one factorization, and where the time goes."""

from __future__ import annotations

import cProfile
import math
import pstats
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding
from ...kernels import DiscreteMeasure
from ...objectives import ConditionalEvidence, EmbeddingEvidence
from ...posteriors.potential import Potential
from ...results import Record, group, number, table
from ..compare.resources import peak_memory
from ..papers.flaxman2016.mixtures import mixture_samples, model
from . import posteriors
from .measurement import OURS, Call, Measurement, Scope, note, part
from .workloads import WORK, evaluation, step, with_threads

LINE = "evidence of an embedding with its gradient, d = 1"
SPACE = "evidence of an embedding with its gradient, d = 10, ARD"
LARGE = "evidence of a large sample, d = 5, 256 atoms, 2000 locations"
LABELS = "one leapfrog step, evidence of labels"
SAMPLE = "one leapfrog step, evidence of a sample"
WHERE = "where the time goes"
LEAPFROG, SMALL, LARGE_N = (
    f"{WHERE}: one leapfrog step",
    f"{WHERE}: one evaluation of fit, leave-one-out risk",
    f"{WHERE}: objective and gradient",
)
CHOLESKY = "one Cholesky factorization"


def plain_autograd(log_lengthscale: Tensor, x: Tensor, noise: float) -> Tensor:
    """Eq. (13) for the squared exponential as one would first write it, with autograd."""
    n, d = x.shape
    lengthscale = log_lengthscale.exp()
    z = x / lengthscale
    squares = (z.unsqueeze(-2) - z.unsqueeze(-3)).square().sum(-1) if d == 1 else torch.cdist(z, z).square()
    K = torch.exp(-0.5 * squares)
    R = math.pi ** (d / 2) * lengthscale.expand(d).prod() * torch.exp(-0.25 * squares)
    mean = K.mean(-1)
    slope = (K @ z - K.sum(-1, keepdim=True) * z) / (n * lengthscale)
    density = torch.distributions.MultivariateNormal(torch.zeros_like(mean), R + noise * torch.eye(n, dtype=x.dtype))
    value: Tensor = -density.log_prob(mean) - 0.5 * slope.square().sum(-1).log().sum()
    return value


def problem(n: int, d: int) -> tuple[BayesianMeanEmbedding, Tensor]:
    """A normal sample, and a squared exponential of about its width."""
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * (3.0 if d == 1 else 1.0)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = {1: 0.5, 5: 1.0, 10: 3.0}[d]
    return BayesianMeanEmbedding(kernel), x


def _step(embedding: BayesianMeanEmbedding, x: Tensor, objective: EmbeddingEvidence) -> Record:
    embedding.zero_grad()
    value = objective(embedding, x)
    value.backward()
    return {"value": value.item()}


def _ours(n: int, d: int) -> Call:
    return partial(_step, *problem(n, d), EmbeddingEvidence())


def _plain(n: int) -> Call:
    _, x = problem(n, 1)
    parameter = torch.tensor(math.log(0.5), dtype=torch.float64, requires_grad=True)

    def call() -> Record:
        parameter.grad = None
        value = plain_autograd(parameter, x, 0.1)
        value.backward()
        return {"value": value.item()}

    return call


def _cholesky(n: int) -> Call:
    embedding, x = problem(n, 10)
    A = embedding.kernel(x).to_dense().detach() + torch.eye(n, dtype=torch.float64)
    return lambda: torch.linalg.cholesky(A)


def _large(n: int) -> Call:
    plain, x = problem(n, 5)

    def call() -> Record:
        with peak_memory() as peak:
            embedding = BayesianMeanEmbedding(plain.kernel, measure=DiscreteMeasure.from_sample(x, 256))
            figures = _step(embedding, x, EmbeddingEvidence(num_locations=2000))
        return {**figures, "peak_megabytes": peak.megabytes}

    return call


@part("evidence")
def evidence_cases(scope: Scope) -> Iterator[Measurement]:
    """Ours and plain autograd on the line, ours and one factorization in space, and a sample of 100,000 points."""
    few, many, most = (100, 200, 5_000) if scope.quick else (600, 2_000, 100_000)
    yield Measurement(LINE, OURS, few, partial(_ours, few, 1), repeats=30)
    yield Measurement(LINE, "plain autograd", few, partial(_plain, few), repeats=30)
    yield Measurement(SPACE, CHOLESKY, many, partial(_cholesky, many), against=CHOLESKY, repeats=10)
    yield Measurement(SPACE, OURS, many, partial(_ours, many, 10), against=CHOLESKY, repeats=10)
    yield Measurement(LARGE, OURS, most, partial(_large, most))


def _potential(title: str, n: int) -> Potential:
    if title == LABELS:
        embedding, x, y = posteriors.problem(n)
        return Potential(embedding, ConditionalEvidence(), x, y)
    return Potential(model(), EmbeddingEvidence(), torch.cat(mixture_samples(n // 6)), None)


def autograd_and_direct(title: str, n: int, direct: bool) -> Call:
    """One evaluation, directly or through modules and autograd."""
    potential = _potential(title, n)
    u = potential.vector.get()
    return lambda: potential.value_and_gradient(u) if direct else potential.by_autograd(u)


@part("leapfrog")
def leapfrog_cases(scope: Scope) -> Iterator[Measurement]:
    """A potential with its gradient, directly and by autograd."""
    for title in (LABELS, SAMPLE):
        for n in (30,) if scope.quick else (48, 102, 198, 600):
            yield Measurement(title, OURS, n, partial(autograd_and_direct, title, n, True), repeats=100)
            yield Measurement(
                title, "through modules and autograd", n, partial(autograd_and_direct, title, n, False), repeats=100
            )


GENERAL = "modules and autograd"
CLOSED = f"{OURS}: closed form"
RISK, SCORE = "LeaveOneOutRisk + RademacherComplexity", "LeaveOneOutScore"

PIECES: dict[str, tuple[str, ...]] = {
    "factor": ("linalg/dense.py factorize", "linalg/lapack.py factorize"),
    "inverse": ("linalg/dense.py _inverse", "linalg/lapack.py triangle"),
    "solves": ("linalg/implicit.py solved", "linalg/lapack.py solve"),
    "products of n × n matrices": (
        "linalg/implicit.py updated_sandwich",
        "linalg/implicit.py mutual_product_",
        "linalg/implicit.py _between",
    ),
    "kernel and its gradient": (
        "kernels/radial.py forward", "kernels/radial.py backward", "kernels/evaluators.py __call__",
        "kernels/evaluators.py vjp",
    ),
    "priors": ("posteriors/site.py log_density", "learning/priors.py value_and_derivative"),
    "copies of parameters": ("learning/parameters.py set", "learning/parameters.py gradient"),
    "checks of data": ("validation.py check_features", "validation.py check_labels"),
}  # fmt: skip
"""Functions by file, none of which calls another of the list; the rest is what is left."""
REST = "the rest: Python, small arrays, the graph"


def pieces(call: Call, repeats: int) -> Record:
    """CPU milliseconds of ``call`` and of its pieces, in the fastest of some runs."""
    call()
    best: dict[str, float] = {}
    for _ in range(repeats):
        profile = cProfile.Profile(time.process_time)
        profile.runcall(call)
        times = _by_piece(pstats.Stats(profile))
        if not best or times["all"] < best["all"]:
            best = times
    return {"seconds": best["all"], **{f"ms {name}": 1e3 * value for name, value in best.items()}}


def _by_piece(stats: pstats.Stats) -> dict[str, float]:
    times = dict.fromkeys(PIECES, 0.0)
    total: float = stats.total_tt  # type: ignore[attr-defined]
    for (file, _, function), (_, _, _, seconds, _) in stats.stats.items():  # type: ignore[attr-defined]
        for piece, names in PIECES.items():
            if any(f"{file} {function}".endswith(name) for name in names):
                times[piece] += seconds
    return {**times, REST: total - sum(times.values()), "all": total}


def _profiled(make: Callable[[], Call], repeats: int) -> Call:
    call = make()

    def profiled() -> Record:
        with with_threads(1):
            return pieces(call, repeats)

    return profiled


@part("profile")
def profile_cases(scope: Scope) -> Iterator[Measurement]:
    """CPU time by piece of one leapfrog step, one evaluation of `fit` and one leave-one-out gradient."""
    small, large, repeats = (30, 100, 3) if scope.quick else (100, 1000, 20)
    first = f"{OURS}: {RISK}"
    for title, name, n, make, count, against in (
        (LEAPFROG, GENERAL, small, partial(autograd_and_direct, LABELS, small, False), 10 * repeats, GENERAL),
        (LEAPFROG, CLOSED, small, partial(autograd_and_direct, LABELS, small, True), 10 * repeats, GENERAL),
        (SMALL, GENERAL, small, partial(evaluation, WORK[RISK], small), 10 * repeats, GENERAL),
        (SMALL, CLOSED, small, partial(step, WORK[RISK], small), 10 * repeats, GENERAL),
        (LARGE_N, first, large, partial(evaluation, WORK[RISK], large), max(3, repeats // 4), first),
        (LARGE_N, f"{OURS}: {SCORE}", large, partial(evaluation, WORK[SCORE], large), max(3, repeats // 4), first),
    ):
        yield Measurement(title, name, n, partial(_profiled, make, count), against=against)


@note(WHERE)
def profile_note(records: Sequence[Record]) -> str:
    """The pieces as rows, the cases as columns."""
    columns = group(records, lambda record: f"{record['name']}, n = {record['n']}")
    names = [*PIECES, REST, "all"]
    rows = [[name, *(_cell(own[0], name) for own in columns.values())] for name in names]
    shown = [row for row in rows if any(cell != "" for cell in row[1:])]
    return table(["CPU milliseconds", *map(str, columns)], shown)


def _cell(record: Record, name: str) -> str:
    value = number(record, f"ms {name}")
    return "" if value == 0.0 else f"{value:.3f}" if value < 10.0 else f"{value:.1f}"
