r"""More rows for a factorized system: a block update of its Cholesky factor.

.. math::
    A' = \begin{pmatrix} A & B \\ B^\top & D \end{pmatrix} = L' L'^\top, \qquad
    L' = \begin{pmatrix} L & 0 \\ M & N \end{pmatrix}, \quad M = (L^{-1} B)^\top, \quad N N^\top = D - M M^\top

t new rows cost n²t in place of (n + t)³/3 multiplications, and the answer is that of a new factorization to rounding.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .dense import DenseSystem, factorize


def extended(system: DenseSystem, B: Tensor, D: Tensor, weights: Tensor | None = None) -> DenseSystem:
    """``system`` with t more rows, its ridge η held.

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
    # Jitter belongs to all rows alike: where it was needed, the old factor does not hold.
    return DenseSystem(K, ridge, joined) if bool(jitter.any()) else _Extended(K, ridge, joined, factor)


class _Extended(DenseSystem):
    """A system whose factor is known."""

    def __init__(self, K: Tensor, ridge: Tensor, weights: Tensor | None, factor: Tensor) -> None:
        self.K, self.ridge, self.weights, self._held = K, ridge, weights, factor
        self._noise = ridge.unsqueeze(-1) if weights is None else ridge.unsqueeze(-1) / weights
        self.jitter = torch.zeros_like(ridge)


def joined_weights(old: Tensor | None, new: Tensor | None, n: int, t: int, like: Tensor) -> Tensor | None:
    """The weights of n old and t new rows, ``None`` where all are 1."""
    if old is None and new is None:
        return None
    first = like.new_ones(n) if old is None else old
    second = like.new_ones(t) if new is None else new.to(first)
    return torch.cat([first, second.expand(*first.shape[:-1], t)], dim=-1)
