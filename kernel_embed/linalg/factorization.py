r"""Quantities of :math:`A = K + D`, :math:`D = \eta W^{-1}`, and their derivatives: implicit, never through the factor.

.. math::
    V = A^{-1} Y,\; P = K V &: \quad \partial q/\partial K = (G_P - B) V^\top, \; B = A^{-1} (G_V + K G_P) \\
    c = \operatorname{diag} A^{-1} &: \quad \partial q/\partial K = -A^{-1} \operatorname{diag}(g) A^{-1} \\
    (\operatorname{diag} M, c) &: \quad \partial q/\partial K = -(N + N^\top), \;
               N = A^{-1} (\operatorname{diag}(a) M + \tfrac12 \operatorname{diag}(g) A^{-1}), \; M = A^{-1} L A^{-1} \\
    \log \lvert A \rvert       &: \quad \partial q/\partial K = g A^{-1} \\
    -\log \mathcal N(Y; 0, A) &: \quad \partial q/\partial K = \tfrac g2 (m A^{-1} - V V^\top), \;
                                       \partial q/\partial Y = g V

with :math:`\partial q / \partial D_{ii} = -\sum_c B_{ic} V_{ic}` for the first, and the diagonal of
:math:`\partial q / \partial K`, whose symmetric part alone matters, for the others. With groups, blocks take the place
of diagonals, and block-diagonal matrices that of diag(g) and diag(a).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from .forms import QuadraticForm
    from .regression import Cotangents, Units

Blocks = Tensor | tuple[Tensor, ...]
"""diag A⁻¹, ``(*batch, n)``; or with groups the blocks [A⁻¹]_GG, ``(*batch, g, s, s)`` for each size s."""
SMALLEST_BLOCK = 192
"""Rows at a time: enough for the speed of a product, and no power of two, whose rows compete for lines of the cache."""
MOST_BLOCKS = 8
"""Threads synchronize after every operation on a block, so there are few blocks; 1/16 of the work is wasted."""


class Factorization:
    """A = K + diag(noise) by its lower Cholesky ``factor`` or its ``inverse``: values without a graph, and derivatives.

    ``noise`` is D, ``(*batch, n)`` or ``(*batch, 1)``. Without a factor, solutions are products with the inverse.
    """

    def __init__(self, K: Tensor, noise: Tensor, factor: Any = None, inverse: Tensor | None = None) -> None:
        self.K, self.noise, self._factor = K, noise, factor
        self._inverse: Tensor | None = inverse
        self.V: Any = None  # A⁻¹Y, for all calls with the same targets
        self.M: Any = None  # A⁻¹LA⁻¹ of the last form L
        self.form: Any = None

    @property
    def inverse(self) -> Tensor:
        """A⁻¹, in the dtype of the factor."""
        if self._inverse is None:
            self._inverse = inverse_from(self._factor)
        return self._inverse

    def quantities(
        self, names: Sequence[str], Y: Any = None, units: Units | None = None, form: QuadraticForm | None = None
    ) -> tuple[Any, ...]:
        """The quantities of these names, those of ``Cotangents``; parts of inverses as ``Blocks``."""
        if Y is not None and self.V is None:
            self.V = self._solve(Y)
        return tuple(self._quantity(name, Y, units, form) for name in names)

    def _quantity(self, name: str, Y: Any, units: Units | None, form: Any) -> Any:
        if name == "V":
            return self.V
        if name == "P":  # = Y − DV as well, but that form loses the digits of P where η is much larger than K
            return self.K @ self.V
        if name == "inverse":
            return self._parts(self.inverse, units)
        if name == "forms":
            self.form, self.M = form, self._form_product(form)
            return self._parts(self.M, units)
        if name == "log_determinant":
            return self._log_determinant()
        n, m = Y.shape[-2:]
        return 0.5 * (inner(Y, self.V) + m * (self._log_determinant() + n * math.log(2.0 * math.pi)))

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""
        V, P = self.quantities(("V", "P"), Y)
        return V, P

    def regress_left_out(self, Y: Tensor, units: Units | None = None) -> tuple[Tensor, Tensor, Blocks]:
        """V = A⁻¹Y, P = KV and diag A⁻¹ or its blocks, whose gradients are one symmetric product."""
        V, P, parts = self.quantities(("V", "P", "inverse"), Y, units)
        return V, P, parts

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y."""
        V: Tensor = self.quantities(("V",), Y)[0]
        return V

    def inverse_parts(self, units: Units | None = None) -> Blocks:
        """diag A⁻¹, or the blocks [A⁻¹]_GG where the units are groups of rows."""
        parts: Blocks = self.quantities(("inverse",), None, units)[0]
        return parts

    def inverse_forms(self, form: QuadraticForm, units: Units | None = None) -> tuple[Blocks, Blocks]:
        """diag A⁻¹LA⁻¹ for a ``form`` L, and diag A⁻¹, ``(*batch, n)`` each; for groups, the blocks of both."""
        forms, parts = self.quantities(("forms", "inverse"), None, units, form)
        return forms, parts

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        value: Tensor = self.quantities(("log_determinant",))[0]
        return value

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) over the columns of ``Y`` ``(*batch, n, m)`` in nats, of shape ``batch``."""
        value: Tensor = self.quantities(("density",), Y)[0]
        return value

    def pull_back(
        self, at: Cotangents, units: Units | None = None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """A matrix whose symmetric part is ∂q/∂K, ∂q/∂D or its sum, and ∂q/∂Y without that of the density."""
        G = B = update = None
        V, noise = self.V, at.noise
        if at.V is not None or at.P is not None:
            right: Any = at.V if at.P is None else self.K @ at.P
            B = self._solve(right if at.P is None or at.V is None else right + at.V)
            update = (-B if at.P is None else at.P - B), V
            noise = _sum(noise, -self.row_sums(B, V))
        if at.inverse is not None or at.forms is not None:
            G, diagonal = self._inverse_gradient(at, units, update)
            noise = _sum(noise, diagonal)
        elif update is not None:
            G = update[0] @ update[1].swapaxes(-1, -2)
        if at.log_determinant is not None or at.density is not None:
            part, diagonal = self._determinant_gradient(at)
            G, noise = _sum(G, part), _sum(noise, diagonal)
        return G, noise, B

    # The primitives, which :class:`~kernel_embed.linalg.lapack.LapackFactorization` has for NumPy arrays:

    def _solve(self, B: Tensor) -> Tensor:
        """A⁻¹B, with one step of iterative refinement unless by a factor with as many digits as ``B``."""
        if self._factor is not None and self._factor.dtype == B.dtype:
            return self._solve_once(B)
        # A product with the inverse is less stable than a solve, and gets the step of refinement, too.
        X = self._solve_once(B)
        return X + self._solve_once(B - self.K @ X - self.noise.unsqueeze(-1) * X)

    def _solve_once(self, B: Tensor) -> Tensor:
        factor = self._factor
        if factor is None:
            return (self.inverse @ B.to(self.inverse)).to(B)
        # Two triangular solves read the factor in place, where ``cholesky_solve`` copies it first.
        half = torch.linalg.solve_triangular(factor, B.to(factor), upper=False)
        V: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
        return V.to(B)

    def row_sums(self, A: Tensor, B: Tensor) -> Tensor:
        """Σ_j A_ij B_ij, where one noise for all rows allows also the sum over i."""
        return (A * B).sum(-1)

    def _log_determinant(self) -> Tensor:
        L: Tensor = self._factor
        return 2.0 * L.diagonal(dim1=-2, dim2=-1).to(self.K).log().sum(-1)

    def _parts(self, C: Tensor, units: Units | None) -> Blocks:
        """The diagonal of ``C``, or its blocks where units are groups, in the dtype of K."""
        if units is None or units.labels is None:
            return C.diagonal(dim1=-2, dim2=-1).to(self.K, copy=True)
        return tuple(block.to(self.K) for block in units.blocks(C))

    def _form_product(self, form: QuadraticForm) -> Tensor:
        self._inverse = C = self.inverse.to(self.K)
        return form.sandwiched(C)

    def _inverse_gradient(
        self, at: Cotangents, units: Units | None, update: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """−(C diag(g) C + C diag(a) M + M diag(a) C) + LVᵀ for ``update`` (L, V), and the diagonal of the first."""
        groups, C = None if units is None or units.labels is None else units, self.inverse
        g = _filled(at.inverse, groups, C)
        if at.forms is None:
            update = None if update is None else (update[0].to(C), update[1].to(C))
            if groups is None:
                G, diagonal = sandwich(C, -g[0], update)
            else:
                G, diagonal = symmetric_product(C, groups.block_product(g, C, -1.0), None, update)
            return G.to(self.K), diagonal.to(self.K)
        a, M, self.M = _filled(at.forms, groups, C), self.M, None
        if groups is None:
            G = self.form.pull_back_(C, M, -a[0], -g[0])
        else:
            X = groups.block_product(a, M, -1.0)
            X += groups.block_product(g, C, -0.5)
            X = C @ X
            G = X + X.mT
        diagonal = G.diagonal(dim1=-2, dim2=-1).clone()
        return G if update is None else _add_product_(G, update[0], update[1].mT), diagonal

    def _determinant_gradient(self, at: Cotangents) -> tuple[Tensor, Tensor]:
        """gA⁻¹ + ½h(mA⁻¹ − VVᵀ), over the inverse if it was computed for this, and its diagonal."""
        scale: Any = at.log_determinant
        V, fresh = self.V, self._inverse is None
        if at.density is not None:
            scale = _sum(scale, 0.5 * V.shape[-1] * at.density)
        part = self.inverse.to(self.K)
        part, self._inverse = (part, None) if fresh else (part.clone(), self._inverse)
        part *= scale[..., None, None]
        if at.density is not None:
            part = _add_product_(part, -0.5 * at.density[..., None, None] * V, V.mT)
        return part, part.diagonal(dim1=-2, dim2=-1)


def inner(A: Tensor, B: Tensor) -> Tensor:
    """⟨A, B⟩ over the last two dimensions, for tensors and NumPy arrays."""
    return np.vdot(A, B) if isinstance(A, np.ndarray) else (A * B).sum((-2, -1))


def _sum(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one + other


def _filled(g: Sequence[Tensor | None] | None, groups: Units | None, C: Tensor) -> list[Tensor]:
    """The cotangents of the diagonal or blocks of ``C``, with zeros for ``None``."""
    shapes = [C.shape[:-1]] if groups is None else [(*C.shape[:-2], *r.shape, r.shape[-1]) for r in groups.rows]
    values = [None] * len(shapes) if g is None else g
    return [C.new_zeros(shape) if v is None else v.to(C) for v, shape in zip(values, shapes, strict=True)]


def blocks_of(n: int) -> Iterator[slice]:
    """The rows 0 … n − 1 in a few blocks."""
    size = SMALLEST_BLOCK if torch.get_num_threads() == 1 else max(SMALLEST_BLOCK, -(-n // MOST_BLOCKS))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _add_product_(G: Tensor, L: Tensor, R: Tensor) -> Tensor:
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
    """A symmetric ``left diag(scale) right`` and its diagonal, plus LVᵀ, whose symmetric part alone is meaningful."""
    n = left.shape[-2]
    if n <= SMALLEST_BLOCK:
        product = (left if scale is None else left * scale.unsqueeze(-2)) @ right
        diagonal = product.diagonal(dim1=-2, dim2=-1).clone()
        return product if update is None else _add_product_(product, update[0], update[1].mT), diagonal
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
            _add_product_(rows, outer[..., block, :], inner[..., :, :stop])
        product[..., block, :stop] = rows
        product[..., :start, block] = rows[..., :, :start].mT
    return product, diagonal


def inverse_from(L: Tensor) -> Tensor:
    """A⁻¹ from the lower factor L, block by block from the last.

    With S the trailing block of A⁻¹ and M = L₂₁L₁₁⁻¹, the next one is (L₁₁⁻ᵀL₁₁⁻¹ + MᵀSM, −MᵀS; −SM, S). This has fewer
    synchronizations of threads than LAPACK's potri, with as many multiplications.
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
