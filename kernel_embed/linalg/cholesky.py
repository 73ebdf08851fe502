"""Small matters: factors of small matrices, and features that are not finite."""

from __future__ import annotations

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..validation import all_finite


def cholesky_factor(A: Tensor) -> Tensor:
    """The lower Cholesky factor of small matrices, differentiable; for lengthscale matrices, not for Gram matrices."""
    factor: Tensor = torch.linalg.cholesky(A)
    return factor


def whitening(K: Tensor) -> Tensor:
    """R with RᵀKR = I, for symmetric K ``(s, s)``; directions in which K is numerically zero are left out.

    Example:
        >>> K = torch.tensor([[2.0, 2.0], [2.0, 2.0]], dtype=torch.float64)
        >>> R = whitening(K)
        >>> R.shape, (R.T @ K @ R).round(decimals=9).tolist()
        (torch.Size([2, 1]), [[1.0]])
    """
    if not bool(torch.isfinite(K).all()):
        raise NanError(
            "Expected a finite kernel matrix of the inducing points, got NaN or infinite values. "
            "Look at the kernel and at the points."
        )
    values, vectors = torch.linalg.eigh(K)
    kept = values > K.shape[-1] * torch.finfo(K.dtype).eps * values[-1]
    R: Tensor = vectors[:, kept] * values[kept].rsqrt()
    return R


def require_finite(Z: Tensor) -> None:
    """Raise where features are not finite, as a factorization would: a search turns back there."""
    if not all_finite(Z):
        bad = ~torch.isfinite(Z.detach())
        raise NanError(
            f"Expected finite features, got {int(bad.sum())} values that are not finite among {bad.numel()}. Look for "
            "weights of the feature map that overflowed; learn more slowly."
        )
