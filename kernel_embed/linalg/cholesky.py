r"""Cholesky factors of small matrices, and of a system with more rows, by a block update of its factor.

.. math::
    A' = \begin{pmatrix} A & B \\ B^\top & D \end{pmatrix} = L' L'^\top, \qquad
    L' = \begin{pmatrix} L & 0 \\ M & N \end{pmatrix}, \quad M = (L^{-1} B)^\top, \quad N N^\top = D - M M^\top

t new rows cost n²t instead of (n + t)³/3 multiplications, and the result is that of a new factorization to rounding.
"""

from __future__ import annotations

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..validation import all_finite
from .dense import DenseSystem, factorize


def whitening(K: Tensor) -> Tensor:
    """R with RᵀKR = I, for symmetric K ``(s, s)``; without the directions in which K is numerically zero.

    Example:
        >>> K = torch.tensor([[2.0, 2.0], [2.0, 2.0]], dtype=torch.float64)
        >>> R = whitening(K)
        >>> R.shape, (R.T @ K @ R).round(decimals=9).tolist()
        (torch.Size([2, 1]), [[1.0]])
    """
    if not bool(torch.isfinite(K).all()):
        raise NanError("The kernel matrix of the inducing points is not finite. Check the kernel and the points.")
    values, vectors = torch.linalg.eigh(K)
    kept = values > K.shape[-1] * torch.finfo(K.dtype).eps * values[-1]
    R: Tensor = vectors[:, kept] * values[kept].rsqrt()
    return R


def require_finite(Z: Tensor) -> None:
    """Raise if features are not finite, as a factorization would, so that a line search steps back."""
    if not all_finite(Z):
        bad = ~torch.isfinite(Z.detach())
        raise NanError(
            f"Expected finite features, got {int(bad.sum())} values that are not finite among {bad.numel()}. The "
            "weights of the feature map may have overflowed; use a smaller learning rate."
        )


def extended(system: DenseSystem, B: Tensor, D: Tensor, weights: Tensor | None = None) -> DenseSystem:
    """``system`` with t more rows and the same ridge η.

    Args:
        system: of n rows.
        B: kernel values between old and new rows, ``(*batch, n, t)``.
        D: those between new rows, ``(*batch, t, t)``.
        weights: of the new rows, ``(t,)``; 1 each by default.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> one = DenseSystem(K[:1, :1], torch.tensor(1.0, dtype=torch.float64))
        >>> extended(one, K[:1, 1:], K[1:, 1:]).inverse_diagonal()
        tensor([0.3750, 0.3750], dtype=torch.float64)
    """
    n, t = B.shape[-2:]
    L, ridge = system._factor, system.ridge
    M = torch.linalg.solve_triangular(L, B.detach(), upper=False).mT
    noise = ridge.unsqueeze(-1) if weights is None else ridge.unsqueeze(-1) / weights
    N, jitter = factorize(D.detach() - M @ M.mT, noise.detach())
    factor = L.new_zeros(*L.shape[:-2], n + t, n + t)
    factor[..., :n, :n], factor[..., n:, :n], factor[..., n:, n:] = L, M, N
    K = torch.cat([torch.cat([system.K, B], dim=-1), torch.cat([B.mT, D], dim=-1)], dim=-2)
    joined = joined_weights(system.weights, weights, n, t, K)
    # Jitter is added to all rows alike, so the old factor cannot be used if it needed jitter.
    return DenseSystem(K, ridge, joined) if bool(jitter.any()) else _Extended(K, ridge, joined, factor)


class _Extended(DenseSystem):
    """A system with a factor that is already computed."""

    def __init__(self, K: Tensor, ridge: Tensor, weights: Tensor | None, factor: Tensor) -> None:
        self.K, self.ridge, self.weights, self._cached_factor = K, ridge, weights, factor
        self.noise = ridge.unsqueeze(-1) if weights is None else ridge.unsqueeze(-1) / weights
        self.jitter = torch.zeros_like(ridge)


def joined_weights(old: Tensor | None, new: Tensor | None, n: int, t: int, like: Tensor) -> Tensor | None:
    """The weights of n old and t new rows, ``None`` if all are 1."""
    if old is None and new is None:
        return None
    first = like.new_ones(n) if old is None else old
    second = like.new_ones(t) if new is None else new.to(first)
    return torch.cat([first, second.expand(*first.shape[:-1], t)], dim=-1)
