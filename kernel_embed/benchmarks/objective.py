"""Objective and gradient, against one Cholesky factorisation and against plain autograd."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ..embeddings import MulticlassEmbedding
from ..kernels import gram
from ..objectives import (
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
)
from .cases import OURS, Case

OBJECTIVES: dict[str, Objective] = {
    "EmpiricalRisk + RademacherComplexity": EmpiricalRisk() + RademacherComplexity("4e/n"),
    "LeaveOneOutRisk + RademacherComplexity": LeaveOneOutRisk() + RademacherComplexity("4e/n"),
    "CalibratedLeaveOneOutRisk": CalibratedLeaveOneOutRisk(),
    "ConditionalEvidence": ConditionalEvidence(),
}
PART = "objective and gradient"
CHOLESKY = "one Cholesky factorisation"


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


def cholesky(embedding: MulticlassEmbedding, x: Tensor) -> Callable[[], Any]:
    """One factorisation of the same size, whose time is the unit."""
    with torch.no_grad():
        A = gram(embedding.kernel, x) + len(x) * embedding.regularization * torch.eye(len(x), dtype=x.dtype)
    return lambda: torch.linalg.cholesky(A) is None


def cases(quick: bool) -> Iterator[Case]:
    """The factorisation, our objectives, and autograd."""
    n = 300 if quick else 2000

    def unit() -> Callable[[], Any]:
        embedding, x, _ = problem(n)
        return cholesky(embedding, x)

    def ours(objective: Objective) -> Callable[[], Any]:
        embedding, x, y = problem(n)
        return lambda: objective(embedding, x, y).backward()

    def autograd() -> Callable[[], Any]:
        embedding, x, y = problem(n)
        return lambda: plain_autograd(embedding, x, y)

    yield Case(PART, CHOLESKY, n, unit, against=CHOLESKY, repeats=5)
    for name, objective in OBJECTIVES.items():
        yield Case(PART, f"{OURS}: {name}", n, lambda o=objective: ours(o), against=CHOLESKY, repeats=5)  # type: ignore[misc]
    yield Case(PART, "plain autograd, first objective", n, autograd, against=CHOLESKY, repeats=5)
