"""The leave-one-out score with its gradient: a problem for it, and many rows through features."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings import ConditionalEmbedding
from ...kernels.features import nystrom_kernel
from ...objectives import LeaveOneOutScore
from .cases import OURS, Call, Case, Scope

SIZE = "leave-one-out score through features"


def problem(n: int, d: int = 8) -> tuple[ConditionalEmbedding, Tensor, Tensor]:
    """An ARD embedding of a real target, and data for it."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, d, dtype=torch.float64, generator=generator)
    y = torch.sin(4 * x[:, 0]) + 0.3 * torch.randn(n, dtype=torch.float64, generator=generator)
    kernel = RBFKernel(ard_num_dims=d).double()
    kernel.lengthscale = 1.0
    return ConditionalEmbedding(kernel, 1e-3).double(), x, y


def _features(n: int, p: int) -> Call:
    embedding, x, y = problem(n)
    through = ConditionalEmbedding(nystrom_kernel(embedding.kernel, x[:p]), 1e-3).double()
    return lambda: LeaveOneOutScore()(through, x, y).backward()


def cases(scope: Scope) -> Iterator[Case]:
    """The leave-one-out score with its gradient through features, at many rows."""
    for rows in (1000,) if scope.quick else (10_000, 100_000):
        p = 50 if scope.quick else 200
        yield Case(SIZE, f"{OURS}: {p} features", rows, partial(_features, rows, p), against=f"{OURS}: {p} features")
