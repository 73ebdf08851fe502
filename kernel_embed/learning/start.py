"""Whether a kernel tells points apart, and sees any of them as near, where a search starts."""

from __future__ import annotations

import warnings

import gpytorch
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..kernels import gram, gram_diagonal
from ..kernels.median import has_lengthscale

NUM_ROWS = 50
"""Rows that are compared with all others."""
ALONE = 1e-12
"""Correlations k(x, x') / √(k(x, x) k(x', x')) below which two points do not see each other."""
ALIKE = 1e-8
"""Differences, as a part of the largest kernel value, below which points are not told apart."""


def warn_of_blind_start(embedding: gpytorch.Module, x: Tensor) -> None:
    """Warn of a Gram matrix that is diagonal or constant up to rounding, where no gradient shows the way.

    Embeddings with a ridge λ are meant: their objectives are flat there. The evidence of a mean embedding is not, since
    it is computed in the log domain.
    """
    kernel = getattr(embedding, "kernel", None)
    if not isinstance(kernel, Kernel) or not hasattr(embedding, "raw_regularization") or x.shape[-2] < 2:
        return
    if not has_lengthscale(kernel, x):
        return
    fault = _fault(kernel, x)
    if fault is not None:
        warnings.warn(
            f"The kernel {fault} at the start of fit, where the objective is flat and the search may end as it began. "
            "Call kernel_embed.kernels.set_lengthscales_by_median(embedding.kernel, x) before, or scale the features.",
            NumericalWarning,
            stacklevel=3,
        )


@torch.no_grad()
def _fault(kernel: Kernel, x: Tensor) -> str | None:
    """What is wrong, in words, with K between some rows and all."""
    rows = torch.linspace(0, x.shape[-2] - 1, min(NUM_ROWS, x.shape[-2]), device=x.device).round().long()
    K = gram(kernel, x[rows], x)
    size = K.abs().amax(dim=(-2, -1))
    if bool((K.amax(dim=(-2, -1)) - K.amin(dim=(-2, -1)) <= ALIKE * size).any()) and bool((x[rows] != x[:1]).any()):
        return "is constant up to rounding"
    diagonal = gram_diagonal(kernel, x).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
    correlations = K.abs() / (diagonal[..., rows].unsqueeze(-1) * diagonal.unsqueeze(-2))
    correlations[..., torch.arange(len(rows), device=x.device), rows] = 0.0
    if bool((correlations.amax(dim=-1).median(dim=-1).values < ALONE).any()):
        return "sees no two points as near, for more than half of them,"
    return None
