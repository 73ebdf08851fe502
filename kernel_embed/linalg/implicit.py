r"""Derivatives of quantities of :math:`A = K + D`, :math:`D = \eta W^{-1}`: implicit, never through the factor.

.. math::
    V = A^{-1} Y,\; P = K V &: \quad \partial q/\partial K = (G_P - B) V^\top, \; B = A^{-1} (G_V + K G_P) \\
    c = \operatorname{diag} A^{-1} &: \quad \partial q/\partial K = -A^{-1} \operatorname{diag}(g) A^{-1} \\
    (\operatorname{diag} M, c) &: \quad \partial q/\partial K = -(N + N^\top), \;
               N = A^{-1} (\operatorname{diag}(a) M + \tfrac12 \operatorname{diag}(g) A^{-1}), \; M = A^{-1} L A^{-1} \\
    \log \lvert A \rvert       &: \quad \partial q/\partial K = g A^{-1} \\
    -\log \mathcal N(Y; 0, A) &: \quad \partial q/\partial K = \tfrac g2 (m A^{-1} - V V^\top), \;
                                       \partial q/\partial Y = g V

with :math:`\partial q / \partial D_{ii} = -\sum_c B_{ic} V_{ic}` for the first, and the diagonal of
:math:`\partial q / \partial K` for the others. (V, P, c) together are one node, whose gradient is one symmetric
product: K is symmetric, so that (G_P − B)Vᵀ may be replaced by its symmetric part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from .forms import QuadraticForm

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


if TYPE_CHECKING:
    from .dense import DenseSystem


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


def solve_by(factor: Tensor, Y: Tensor) -> Tensor:
    """A⁻¹Y by two triangular solves, which read the factor in place where ``cholesky_solve`` copies it first."""
    half = torch.linalg.solve_triangular(factor, Y, upper=False)
    V: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return V


def solved(K: Tensor, noise: Tensor, factor: Tensor, Y: Tensor) -> Tensor:
    """A⁻¹Y, with one step of iterative refinement where the factor has fewer digits than Y."""
    if factor.dtype == Y.dtype:
        return solve_by(factor, Y)
    V = solve_by(factor, Y.to(factor)).to(Y)
    residual = Y - K @ V - noise.unsqueeze(-1) * V
    return V + solve_by(factor, residual.to(factor)).to(Y)


class Regress(torch.autograd.Function):
    """V and P."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y, P = KV."""
        V = solved(K, noise, factor, Y)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(K, noise, V, factor)
        # P = Y − DV as well, but that form loses the digits of P where η is much larger than K.
        return V, K @ V

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G_V: Tensor | None, G_P: Tensor | None) -> tuple[Tensor | None, ...]:
        """B = A⁻¹(G_V + KG_P), ∂q/∂K = (G_P − B)Vᵀ."""
        K, noise, V, factor = ctx.saved_tensors
        right = _right(K, G_V, G_P)
        if right is None:
            return None, None, None, None
        B = solved(K, noise, factor, right)
        left = -B if G_P is None else G_P - B
        gradient_K = left @ V.mT if ctx.needs_input_grad[0] else None
        return gradient_K, -(B * V).sum(-1).sum_to_size(noise.shape), B, None


def _right(K: Tensor, G_V: Tensor | None, G_P: Tensor | None) -> Tensor | None:
    if G_P is None:
        return G_V
    return K @ G_P if G_V is None else (K @ G_P).add_(G_V)


class RegressLeftOut(torch.autograd.Function):
    """V, P and c, with one gradient for all three."""

    @staticmethod
    def forward(
        ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor, inverse: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """V = A⁻¹Y, P = KV and c = diag A⁻¹; the factor is not kept."""
        ctx.set_materialize_grads(False)
        V = solved(K, noise, factor, Y)
        ctx.save_for_backward(K, noise, V, inverse)
        return V, K @ V, inverse.diagonal(dim1=-2, dim2=-1).to(Y, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G_V: Tensor | None, G_P: Tensor | None, g: Tensor | None) -> tuple[Tensor | None, ...]:
        """∂q/∂K = −A⁻¹ diag(g) A⁻¹ + ½(LVᵀ + VLᵀ), L = G_P − B."""
        K, noise, V, C = ctx.saved_tensors
        right = _right(K, G_V, G_P)
        right = torch.zeros_like(V) if right is None else right
        B = (C @ right.to(C)).to(right)
        # One step of refinement: a product with the inverse is less stable than a solve.
        B += C @ (right - K @ B - noise.unsqueeze(-1) * B).to(C)
        gradient_noise = -(B * V).sum(-1)
        g = torch.zeros_like(V[..., 0]) if g is None else g
        L = -B if G_P is None else G_P - B
        gradient, diagonal = updated_sandwich(C, -g.to(C), (L.to(C), V.to(C)))
        return gradient.to(K), (gradient_noise + diagonal).sum_to_size(noise.shape), B, None, None


class InverseDiagonal(torch.autograd.Function):
    """c."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, inverse: Tensor) -> Tensor:
        """c = diag A⁻¹."""
        ctx.save_for_backward(noise, inverse)
        return inverse.diagonal(dim1=-2, dim2=-1).to(K, copy=True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """∂q/∂K = −A⁻¹ diag(g) A⁻¹."""
        noise, inverse = ctx.saved_tensors
        gradient = sandwich(inverse, -g.to(inverse)).to(g)
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None


class InverseForms(torch.autograd.Function):
    """diag A⁻¹LA⁻¹ and c."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, inverse: Tensor, form: QuadraticForm) -> tuple[Tensor, Tensor]:
        """The diagonals of M = A⁻¹LA⁻¹ and of A⁻¹."""
        ctx.save_for_backward(noise, inverse)
        ctx.form, ctx.M = form, _between(inverse, form)
        return ctx.M.diagonal(dim1=-2, dim2=-1).clone(), inverse.diagonal(dim1=-2, dim2=-1).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """∂q/∂K = −(A⁻¹ diag(a) M + M diag(a) A⁻¹ + A⁻¹ diag(g) A⁻¹)."""
        noise, inverse = ctx.saved_tensors
        # The gradient overwrites M; a second pass through a retained graph computes it again.
        M, ctx.M = _between(inverse, ctx.form) if ctx.M is None else ctx.M, None
        gradient = mutual_product_(inverse, M, -a, -g)
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None, None


def _between(inverse: Tensor, form: QuadraticForm) -> Tensor:
    """A⁻¹LA⁻¹ as one triangle of the product (LA⁻¹)ᵀA⁻¹, because L times a vector costs O(n) if L is not dense."""
    M = torch.empty_like(inverse)
    for block in blocks_of(inverse.shape[-1]):
        M[..., block, block.start :] = form.apply(inverse[..., block]).mT @ inverse[..., block.start :]
    return mirrored_(M)


class LogDeterminant(torch.autograd.Function):
    """log |A|."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, system: DenseSystem) -> Tensor:
        """log det A."""
        ctx.system = system
        ctx.save_for_backward(noise)
        return 2.0 * system._factor.diagonal(dim1=-2, dim2=-1).to(K).log().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """∂q/∂K = gA⁻¹."""
        (noise,) = ctx.saved_tensors
        gradient = g[..., None, None] * ctx.system._inverse
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None


class NegativeLogDensity(torch.autograd.Function):
    """−Σ_c log N(Y_c; 0, A)."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A)."""
        V = solved(K, noise, factor, Y)
        ctx.save_for_backward(noise, V, factor)
        half_log_determinant = factor.diagonal(dim1=-2, dim2=-1).to(Y).log().sum(-1)
        quadratic: Tensor = (Y * V).sum((-2, -1))
        n, m = Y.shape[-2:]
        return 0.5 * quadratic + m * (half_log_determinant + 0.5 * n * math.log(2.0 * math.pi))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂K = ½g(mA⁻¹ − VVᵀ), ∂q/∂Y = gV."""
        noise, V, factor = ctx.saved_tensors
        gradient_Y = g[..., None, None] * V
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, gradient_Y, None
        gradient, m = inverse_from(factor).to(V), V.shape[-1]
        if gradient.dim() == 2:
            gradient.addmm_(V, V.mT, alpha=-0.5 * g.item(), beta=0.5 * m * g.item())
        else:
            gradient.mul_(m).sub_(V @ V.mT).mul_(0.5 * g[..., None, None])
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), gradient_Y, None
