"""Products that are symmetric, at half the cost: one triangle is computed, block by block, and the other mirrored."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

SMALLEST_BLOCK = 192
"""Rows at a time: enough for the speed of a matrix product, and no power of two, whose rows would compete for the same
lines of the processor's cache."""
MOST_BLOCKS = 8
"""Each block is a few parallel operations, at whose ends all threads wait for each other; 1/16 of the work is wasted."""


def sandwich(C: Tensor, g: Tensor) -> Tensor:
    """C diag(g) C for symmetric ``C``: half the work of the plain product, and none for entries with g = 0."""
    return updated_sandwich(C, g)[0]


def updated_sandwich(C: Tensor, g: Tensor, update: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """C diag(g) C + ½(LVᵀ + VLᵀ) for symmetric ``C`` and ``update`` (L, V), and the diagonal of the first term.

    Args:
        C: ``(*batch, n, n)``.
        g: ``(*batch, n)``.
        update: two matrices ``(*batch, n, m)``.
    """
    if g.dim() == 1 and 2 * len(kept := g.nonzero().squeeze(-1)) < C.shape[-1]:
        # Losses with a flat part leave most of g at zero.
        half = C[kept].mT
        return symmetric_product(half, half.mT, g[kept], update)
    return symmetric_product(C, C, g, update)


def symmetric_product(
    left: Tensor, right: Tensor, scale: Tensor | None = None, update: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """``left diag(scale) right`` for matrices whose product is symmetric, with an ``update``, and its own diagonal."""
    n = left.shape[-2]
    product = left.new_empty(*left.shape[:-1], n)
    diagonal = left.new_empty(left.shape[:-1])
    outer, inner = (None, None) if update is None else _halves(*update)
    for block in blocks_of(n):
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

    A block of rows of the answer needs only that block of M and those after it, so that it can take its place.

    Args:
        C: ``(*batch, n, n)``.
        M: ``(*batch, n, n)``.
        a: ``(*batch, n)``.
        g: ``(*batch, n)``.
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
    size = max(SMALLEST_BLOCK, -(-n // MOST_BLOCKS))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _halves(L: Tensor, V: Tensor) -> tuple[Tensor, Tensor]:
    """Two factors of ½(LVᵀ + VLᵀ)."""
    return 0.5 * torch.cat([L, V], dim=-1), torch.cat([V, L], dim=-1).mT
