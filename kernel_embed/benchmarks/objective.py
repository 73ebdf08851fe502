"""Objectives of classes, a problem for them, plain autograd beside them, and the peak of memory of a call."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding
from ..objectives import (
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)
from .cases import Call

OBJECTIVES: dict[str, Objective[ConditionedMulticlass]] = {
    "EmpiricalRisk + RademacherComplexity": EmpiricalRisk() + RademacherComplexity("4e/n"),
    "LeaveOneOutRisk + RademacherComplexity": LeaveOneOutRisk() + RademacherComplexity("4e/n"),
    "CalibratedLeaveOneOutRisk": CalibratedLeaveOneOutRisk(),
    "ConditionalEvidence": ConditionalEvidence(),
}


def problem(n: int, d: int = 20, m: int = 7) -> tuple[MulticlassEmbedding, Tensor, Tensor]:
    """An ARD embedding and data for it."""
    x = torch.rand(n, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] * m).long().clamp_max(m - 1)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.5
    return MulticlassEmbedding(kernel, m, regularization=1e-3), x, y


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


@contextlib.contextmanager
def _silent_errors() -> Iterator[None]:
    """Nothing on the error stream of the process: the profiler writes lines there from C++."""
    kept = os.dup(2)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def peak_doubles(call: Call) -> float:
    """The highest sum of live allocations during ``call``, in doubles, from the allocator's own record."""
    with _silent_errors(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        call()
    live = peak = 0
    for event in sorted(record.profiler.kineto_results.events(), key=lambda e: e.start_ns()):
        if event.name() == "[memory]":
            live += event.nbytes()
            peak = max(peak, live)
    return peak / 8.0
<<<<<<< HEAD


def _with_memory(call: Call, n: int) -> Call:
    """The call, which also returns its peak of tensor storage in units of n² doubles, measured before the clock."""
    figures: Record = {"peak_squares": peak_doubles(call) / n**2}

    def timed() -> Record:
        call()
        return figures

    return timed


def _unit(n: int) -> Call:
    embedding, x, _ = problem(n)
    return cholesky(embedding, x)


def _limit(n: int, inverse: bool, square: bool) -> Call:
    """What an evaluation cannot do without: a factor, an inverse, half a square product, and thin ones."""
    embedding, x, y = problem(n)
    with torch.no_grad():
        A = gram(embedding.kernel, x) + len(x) * embedding.regularization * torch.eye(len(x), dtype=x.dtype)
    Y = torch.nn.functional.one_hot(y, embedding.num_classes).to(x)
    half = A[: n // 2]

    def products() -> None:
        factor = torch.linalg.cholesky(A)
        C = torch.cholesky_inverse(factor) if inverse else A
        if square:
            half @ C
        torch.cholesky_solve(Y, factor)
        for other in (x, Y):  # the Gram matrix and its gradient; fitted values and their gradient
            C @ other
            C.mT @ other
        (x @ x.mT).exp_()

    return products


LIMITS = {
    "limit: factor, inverse, half a square product": (True, True),
    "limit: factor, inverse": (True, False),
    "limit: factor": (False, False),
}
"""For leave-one-out risks, for the evidence, and for empirical risks."""


def _ours(objective: Objective[ConditionedMulticlass], n: int) -> Call:
    embedding, x, y = problem(n)
    return _with_memory(lambda: objective(embedding, x, y).backward(), n)


def _autograd(n: int) -> Call:
    embedding, x, y = problem(n)
    return _with_memory(lambda: plain_autograd(embedding, x, y), n)


def cases(scope: Scope) -> Iterator[Case]:
    """Objective and gradient over one Cholesky factorization, beside plain autograd."""
    n = 300 if scope.quick else 2000
    yield Case(PART, CHOLESKY, n, partial(_unit, n), against=CHOLESKY, repeats=7)
    for name, needs in LIMITS.items():
        yield Case(PART, name, n, partial(_limit, n, *needs), against=CHOLESKY, repeats=7)
    for name, objective in OBJECTIVES.items():
        yield Case(PART, f"{OURS}: {name}", n, partial(_ours, objective, n), against=CHOLESKY, repeats=7)
    yield Case(PART, "plain autograd, first objective", n, partial(_autograd, n), against=CHOLESKY, repeats=7)
=======
>>>>>>> 6e4f4d1 (The benchmark of objectives counts and measures their limit, with one thread and two, at every size, and few rows above the bare linear algebra)
