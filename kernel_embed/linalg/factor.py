"""The only place that factorizes."""

from __future__ import annotations

import warnings

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

JITTER_TRIES = 6


def factorize(K: Tensor, noise: Tensor, name: str = "K + ηI") -> tuple[Tensor, Tensor]:
    """The lower factor of K + diag(noise), and the jitter that had to be added (0 nearly always), of shape ``batch``.

    Args:
        K: ``(*batch, n, n)``.
        noise: ``(*batch, n)``, or ``(*batch, 1)`` for the same number on the whole diagonal.
        name: of the matrix, in messages.
    """
    A = K.clone()
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(noise)
    factor, info = torch.linalg.cholesky_ex(A)
    # An infinite entry on the diagonal passes the factorization, and shows on the factor's own diagonal.
    finite = bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all())
    if finite and not info.any():
        return factor, noise.new_zeros(noise.shape[:-1])
    if not (finite and torch.isfinite(A).all()):
        raise NanError(
            f"Expected a finite kernel matrix, got {int((~torch.isfinite(A)).sum())} values that are not finite "
            f"among {A.numel()}. Look for hyperparameters that overflowed, or features on very different scales."
        )
    return _with_jitter(A, info, noise.min().item(), name)


def _with_jitter(A: Tensor, info: Tensor, smallest: float, name: str) -> tuple[Tensor, Tensor]:
    """The factor of A with as little jitter as it takes, announced."""
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    size = diagonal.abs().mean(-1)
    jitter = torch.zeros_like(size)
    for attempt in range(JITTER_TRIES):
        # Only the elements of a batch that need it are changed.
        needed = torch.where(info > 0, torch.finfo(A.dtype).eps * size * 10.0 ** (attempt + 1), jitter)
        diagonal.add_((needed - jitter).unsqueeze(-1))
        jitter = needed
        factor, info = torch.linalg.cholesky_ex(A)
        if not info.any():
            warnings.warn(
                f"{name} was not numerically positive definite with η = {smallest:.2g}; "
                f"added jitter {jitter.max().item():.2g} to its diagonal. A larger regularization avoids this.",
                NumericalWarning,
                stacklevel=5,
            )
            return factor, jitter
    raise NotPSDError(
        f"Expected a positive definite {name}, but with η = {smallest:.2g} it is not, even with jitter "
        f"{jitter.max().item():.2g} on a mean diagonal of {size.mean().item():.2g}. Is the kernel positive definite? "
        "If it is, raise the regularization or use float64."
    )


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
        raise NanError("Expected a finite kernel matrix of the inducing points, got NaN or infinite values.")
    values, vectors = torch.linalg.eigh(K)
    kept = values > K.shape[-1] * torch.finfo(K.dtype).eps * values[-1]
    R: Tensor = vectors[:, kept] * values[kept].rsqrt()
    return R
