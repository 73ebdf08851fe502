"""Products and inverses of symmetric matrices, and their gradients, block by block: half the work of plain products."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .forms import QuadraticForm

if TYPE_CHECKING:
    from .regression import Units

Parts = Sequence[Tensor | None] | None
"""Cotangents of a diagonal or of blocks; ``None`` for zero."""

SMALLEST_BLOCK = 192
"""Rows at a time: enough for the speed of a matrix product, and no power of two, whose rows would compete for the same
lines of the processor's cache."""
MOST_BLOCKS = 8
"""Threads synchronize after every operation on a block, so there are few blocks; 1/16 of the work is wasted."""


def blocks_of(n: int) -> Iterator[slice]:
    """The rows 0 … n − 1 in a few blocks."""
    size = SMALLEST_BLOCK if torch.get_num_threads() == 1 else max(SMALLEST_BLOCK, -(-n // MOST_BLOCKS))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def add_product_(G: Tensor, L: Tensor, R: Tensor) -> Tensor:
    """G + LR in the place of ``G``, without a matrix for LR unless there is a batch."""
    return G.addmm_(L, R) if G.dim() == 2 else G.add_(L @ R)


def sandwich(C: Tensor, g: Tensor, update: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
    """C diag(g) C for symmetric ``C``, and its diagonal; the ``update`` (L, V) is that of ``symmetric_product``.

    It costs half of the plain product, and nothing for entries with g = 0, which losses with a flat part have.
    """
    if g.dim() == 1 and len(g) > SMALLEST_BLOCK and 2 * len(kept := g.nonzero().squeeze(-1)) < len(g):
        half = C[kept]
        return symmetric_product(half.mT, half, g[kept], update)
    return symmetric_product(C, C, g, update)


def symmetric_product(
    left: Tensor, right: Tensor, scale: Tensor | None = None, update: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """A symmetric product ``left diag(scale) right`` and its diagonal; LVᵀ is added for an ``update`` (L, V).

    Of the sum only the symmetric part is meaningful.
    """
    n = left.shape[-2]
    if n <= SMALLEST_BLOCK:
        product = (left if scale is None else left * scale.unsqueeze(-2)) @ right
        diagonal = product.diagonal(dim1=-2, dim2=-1).clone()
        return product if update is None else add_product_(product, update[0], update[1].mT), diagonal
    product, diagonal = left.new_empty(*left.shape[:-1], n), left.new_empty(left.shape[:-1])
    if update is not None:
        # two factors of ½(LVᵀ + VLᵀ)
        outer, inner = 0.5 * torch.cat(update, dim=-1), torch.cat(update[::-1], dim=-1).mT
    for block in blocks_of(n):
        start, stop = block.start, block.stop
        rows = left[..., block, :] if scale is None else left[..., block, :] * scale.unsqueeze(-2)
        rows = rows @ right[..., :, :stop]
        diagonal[..., block] = rows.diagonal(offset=start, dim1=-2, dim2=-1)
        if update is not None:
            add_product_(rows, outer[..., block, :], inner[..., :, :stop])
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


def sandwiched_form(C: Tensor, form: QuadraticForm) -> Tensor:
    """CLC as one triangle of the product (LC)ᵀC, because L times a vector costs O(n) if L is not dense."""
    if C.shape[-1] <= SMALLEST_BLOCK:
        return C @ form.apply(C)
    M = torch.empty_like(C)
    for block in blocks_of(C.shape[-1]):
        M[..., block, block.start :] = form.apply(C[..., block]).mT @ C[..., block.start :]
    return mirrored_(M)


def mirrored_(upper: Tensor) -> Tensor:
    """The symmetric matrix whose upper triangle is given, in its place."""
    for block in blocks_of(upper.shape[-1]):
        upper[..., block.stop :, block] = upper[..., block, block.stop :].mT
    return upper


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


def inverse_gradient(
    C: Tensor, g: Parts, groups: Units | None, update: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """−C diag(g) C, or with the block-diagonal matrix of ``g``, and its diagonal; LVᵀ is added for an ``update``."""
    parts = _filled(g, groups, C)
    if groups is None:
        return sandwich(C, -parts[0], update)
    return symmetric_product(C, groups.block_product(_symmetric(parts, -1.0), C), None, update)


def forms_gradient(
    C: Tensor, M: Tensor, a: Parts, g: Parts, groups: Units | None, update: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    """−(C diag(a) M + M diag(a) C + C diag(g) C), which may overwrite M, and its diagonal; plus LVᵀ."""
    of_forms, of_inverse = _filled(a, groups, C), _filled(g, groups, C)
    if groups is None:
        G = mutual_product_(C, M, -of_forms[0], -of_inverse[0])
    else:
        X = groups.block_product(_symmetric(of_forms, -1.0), M)
        X += groups.block_product(_symmetric(of_inverse, -0.5), C)
        X = C @ X
        G = X + X.mT
    diagonal = G.diagonal(dim1=-2, dim2=-1).clone()
    return G if update is None else add_product_(G, update[0], update[1].mT), diagonal


def _filled(g: Parts, groups: Units | None, C: Tensor) -> list[Tensor]:
    """The cotangents of the diagonal or blocks of ``C``, with zeros for ``None``."""
    shapes = [C.shape[:-1]] if groups is None else [(*C.shape[:-2], *r.shape, r.shape[-1]) for r in groups.rows]
    values = [None] * len(shapes) if g is None else g
    return [C.new_zeros(shape) if v is None else v.to(C) for v, shape in zip(values, shapes, strict=True)]


def _symmetric(g: Sequence[Tensor], factor: float) -> list[Tensor]:
    """The symmetric parts of blocks times ``factor``."""
    return [0.5 * factor * (block + block.mT) for block in g]
