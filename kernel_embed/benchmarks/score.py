"""The leave-one-out score with its gradient: over one Cholesky factorization, beside the products it consists of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels import gram
from ..kernels.features import nystrom_kernel
from ..linalg.products import symmetric_product
from ..objectives import LeaveOneOutScore
from .cases import OURS, Call, Case, Scope

PART, SIZE = "leave-one-out score and gradient", "leave-one-out score through features"
CHOLESKY = "one Cholesky factorization"


def problem(n: int, d: int = 8) -> tuple[ConditionalEmbedding, Tensor, Tensor]:
    """An ARD embedding of a real target, and data for it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(4 * x[:, 0]) + 0.3 * torch.randn(n, dtype=torch.float64, generator=generator)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.0
    return ConditionalEmbedding(kernel, 1e-3).double(), x, y


def _system(n: int) -> Tensor:
    embedding, x, _ = problem(n)
    with torch.no_grad():
        return gram(embedding.kernel, x) + n * embedding.regularization * torch.eye(n, dtype=x.dtype)


def _unit(n: int) -> Call:
    A = _system(n)
    return lambda: torch.linalg.cholesky(A)


def _limit(n: int) -> Call:
    A = _system(n)

    def products() -> None:
        inverse = torch.cholesky_inverse(torch.linalg.cholesky(A))
        symmetric_product(inverse, A @ inverse)

    return products


def _ours(n: int) -> Call:
    embedding, x, y = problem(n)
    return lambda: LeaveOneOutScore()(embedding, x, y).backward()


def _features(n: int, p: int) -> Call:
    embedding, x, y = problem(n)
    through = ConditionalEmbedding(nystrom_kernel(embedding.kernel, x[:p]), 1e-3).double()
    return lambda: LeaveOneOutScore()(through, x, y).backward()


def cases(scope: Scope) -> Iterator[Case]:
    """The leave-one-out score with its gradient, exactly and through features."""
    n = 200 if scope.quick else 2000
    yield Case(PART, CHOLESKY, n, partial(_unit, n), against=CHOLESKY, repeats=5)
    limit = "its factor, inverse and two products alone"
    yield Case(PART, limit, n, partial(_limit, n), against=CHOLESKY, repeats=5)
    yield Case(PART, OURS, n, partial(_ours, n), against=CHOLESKY, repeats=5)
    for rows in (1000,) if scope.quick else (10_000, 100_000):
        p = 50 if scope.quick else 200
        yield Case(SIZE, f"{OURS}: {p} features", rows, partial(_features, rows, p), against=f"{OURS}: {p} features")
