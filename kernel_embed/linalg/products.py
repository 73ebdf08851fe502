"""Products and inverses of symmetric matrices, block by block: half the work of the plain product."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

SMALLEST_BLOCK = 192
"""Rows at a time: enough for the speed of a matrix product, and no power of two, whose rows would compete for the same
lines of the processor's cache."""
MOST_BLOCKS = 8
"""Threads synchronize after every operation on a block, so there are few blocks; 1/16 of the work is wasted."""


def sandwich(C: Tensor, g: Tensor) -> Tensor:
    """C diag(g) C for symmetric ``C``: half the work of the plain product, and none for entries with g = 0."""
    return updated_sandwich(C, g)[0]


def updated_sandwich(C: Tensor, g: Tensor, update: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """C diag(g) C + ½(LVᵀ + VLᵀ) for symmetric ``C`` and ``update`` (L, V), and the diagonal of the first term."""
    if g.dim() == 1 and 2 * len(kept := g.nonzero().squeeze(-1)) < C.shape[-1]:
        # Losses with a flat part leave most of g at zero.
        half = C[kept].mT
        return symmetric_product(half, half.mT, g[kept], update)
    return symmetric_product(C, C, g, update)


def symmetric_product(
    left: Tensor, right: Tensor, scale: Tensor | None = None, update: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """``left diag(scale) right`` for a symmetric product, plus an ``update``; and the diagonal of the product."""
    product = left.new_empty(*left.shape[:-1], left.shape[-2])
    diagonal = left.new_empty(left.shape[:-1])
    outer, inner = (None, None) if update is None else _halves(*update)
    for block in blocks_of(left.shape[-2]):
        start, stop = block.start, block.stop
        rows = left[..., block, :] if scale is None else left[..., block, :] * scale.unsqueeze(-2)
        rows = rows @ right[..., :, :stop]
        diagonal[..., block] = rows.diagonal(offset=start, dim1=-2, dim2=-1)
        if outer is not None and inner is not None:
            rows += outer[..., block, :] @ inner[..., :, :stop]
        product[..., block, :stop] = rows
        product[..., :start, block] = rows[..., :, :start].mT
    return product, diagonal


def mutual_product_(C: Tensor, M: Tensor, a: Tensor, g: Tensor) -> Tensor:
    """C diag(a) M + M diag(a) C + C diag(g) C for symmetric ``C`` and ``M``, which is overwritten by it.

    A block of rows of the result needs only that block of M and those after it.
    """
    a, g = a.unsqueeze(-2), g.unsqueeze(-2)
    for block in blocks_of(C.shape[-1]):
        c = C[..., block, :]
        rows = (M[..., block, :] * a + c * g) @ C[..., block.start :, :].mT
        rows += (c * a) @ M[..., block.start :, :].mT
        M[..., block, block.start :] = rows
    return mirrored_(M)


def mirrored_(upper: Tensor) -> Tensor:
    """The symmetric matrix whose upper triangle is given, in its place."""
    for block in blocks_of(upper.shape[-1]):
        upper[..., block.stop :, block] = upper[..., block, block.stop :].mT
    return upper


def blocks_of(n: int) -> Iterator[slice]:
    """The rows 0 … n − 1 in a few blocks."""
    size = SMALLEST_BLOCK if torch.get_num_threads() == 1 else max(SMALLEST_BLOCK, -(-n // MOST_BLOCKS))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _halves(L: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """Two factors of ½(LVᵀ + VLᵀ)."""
    return 0.5 * torch.cat([L, V], dim=-1), torch.cat([V, L], dim=-1).mT


def inverse_from(L: Tensor) -> Tensor:
    """A⁻¹ from the lower factor L, block by block from the last.

    With S the trailing block of A⁻¹ and M = L₂₁L₁₁⁻¹, the next one is (L₁₁⁻ᵀL₁₁⁻¹ + MᵀSM, −MᵀS; −SM, S). LAPACK's potri
    needs as many multiplications, but in small parallel steps with a synchronization after each.
    """
    n = L.shape[-1]
    if n <= SMALLEST_BLOCK or torch.get_num_threads() == 1:
        # The columns that LAPACK writes are the rows of the transpose, which is the same matrix.
        return torch.cholesky_inverse(L).mT
    C = L.new_empty(L.shape)
    for block in reversed(list(blocks_of(n))):
        stop = block.stop
        eye = torch.eye(stop - block.start, dtype=L.dtype, device=L.device)
        R = torch.linalg.solve_triangular(L[..., block, block], eye, upper=False)
        M = L[..., stop:, block] @ R
        SM = C[..., stop:, stop:] @ M
        own = R.mT @ R + M.mT @ SM
        C[..., block, block] = 0.5 * (own + own.mT)
        C[..., stop:, block] = SM.neg_()
        C[..., block, stop:] = SM.mT
    return C
