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
product: K is symmetric, so that (G_P − B)Vᵀ may be replaced by its symmetric part. With groups of rows, blocks of A⁻¹
and M take the place of their diagonals, and block-diagonal matrices that of diag(g) and diag(a).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .derivatives import regularized_inverse, through
from .forms import QuadraticForm
from .products import blocks_of, inverse_from, mirrored_, mutual_product_, symmetric_product, updated_sandwich
from .units import Units

if TYPE_CHECKING:
    from .dense import DenseSystem


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
        ctx.save_for_backward(K, noise, Y, V, factor)
        # P = Y − DV as well, but that form loses the digits of P where η is much larger than K.
        return V, K @ V

    @staticmethod
    def backward(ctx: Any, G_V: Tensor | None, G_P: Tensor | None) -> tuple[Tensor | None, ...]:
        """B = A⁻¹(G_V + KG_P), ∂q/∂K = (G_P − B)Vᵀ."""
        K, noise, Y, V, factor = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *through(_regression, (K, noise, Y), (G_V, G_P)), None
        right = _right(K, G_V, G_P)
        if right is None:
            return None, None, None, None
        B = solved(K, noise, factor, right)
        left = -B if G_P is None else G_P - B
        gradient_K = left @ V.mT if ctx.needs_input_grad[0] else None
        return gradient_K, -(B * V).sum(-1).sum_to_size(noise.shape), B, None


def _regression(K: Tensor, noise: Tensor, Y: Tensor) -> tuple[Tensor, Tensor]:
    V = regularized_inverse(K, noise) @ Y
    return V, K @ V


def _right(K: Tensor, G_V: Tensor | None, G_P: Tensor | None) -> Tensor | None:
    if G_P is None:
        return G_V
    return K @ G_P if G_V is None else (K @ G_P).add_(G_V)


class RegressLeftOut(torch.autograd.Function):
    """V, P and c or the blocks of A⁻¹, with one gradient for all."""

    @staticmethod
    def forward(
        ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor, inverse: Tensor, units: Units | None
    ) -> tuple[Tensor, ...]:
        """V = A⁻¹Y, P = KV, and c = diag A⁻¹ or [A⁻¹]_GG; the factor is not kept."""
        ctx.set_materialize_grads(False)
        V = solved(K, noise, factor, Y)
        ctx.save_for_backward(K, noise, Y, V, inverse)
        ctx.units = units
        return V, K @ V, *_parts(inverse, units, Y)

    @staticmethod
    def backward(ctx: Any, G_V: Tensor | None, G_P: Tensor | None, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        """∂q/∂K = −A⁻¹ diag(g) A⁻¹ + ½(LVᵀ + VLᵀ), L = G_P − B."""
        K, noise, Y, V, C = ctx.saved_tensors
        if torch.is_grad_enabled():

            def formula(K: Tensor, noise: Tensor, Y: Tensor) -> tuple[Tensor, ...]:
                C = regularized_inverse(K, noise)
                V = C @ Y
                return V, K @ V, *_parts(C, ctx.units, Y)

            return *through(formula, (K, noise, Y), (G_V, G_P, *g)), None, None, None
        right = _right(K, G_V, G_P)
        right = torch.zeros_like(V) if right is None else right
        B = (C @ right.to(C)).to(right)
        # One step of refinement: a product with the inverse is less stable than a solve.
        B += C @ (right - K @ B - noise.unsqueeze(-1) * B).to(C)
        gradient_noise = -(B * V).sum(-1)
        L = -B if G_P is None else G_P - B
        gradient, diagonal = _sandwich(C, g, ctx.units, (L.to(C), V.to(C)))
        return gradient.to(K), (gradient_noise + diagonal).sum_to_size(noise.shape), B, None, None, None


def _parts(C: Tensor, units: Units | None, like: Tensor) -> tuple[Tensor, ...]:
    """The diagonal of ``C``, or its blocks where units are groups, in the dtype of ``like``."""
    if units is None:
        return (C.diagonal(dim1=-2, dim2=-1).to(like, copy=True),)
    return tuple(block.to(like) for block in units.blocks(C))


def _sandwich(
    C: Tensor, g: Sequence[Tensor | None], units: Units | None, update: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """−C diag(g) C with an update, or with the block-diagonal matrix of ``g`` where units are groups."""
    if units is None:
        diagonal = C.new_zeros(C.shape[:-1]) if g[0] is None else g[0].to(C)
        return updated_sandwich(C, -diagonal, update)
    return symmetric_product(C, units.block_product(_symmetric(g, units, C, -1.0), C), None, update)


def _symmetric(g: Sequence[Tensor | None], units: Units, C: Tensor, factor: float) -> list[Tensor]:
    """The symmetric parts of the blocks ``g`` times ``factor``; zeros for ``None``."""
    shapes = ((*C.shape[:-2], *rows.shape, rows.shape[-1]) for rows in units.rows)
    blocks = (C.new_zeros(shape) if b is None else b.to(C) for b, shape in zip(g, shapes, strict=True))
    return [0.5 * factor * (b + b.mT) for b in blocks]


class InverseParts(torch.autograd.Function):
    """c, or the blocks of A⁻¹."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, inverse: Tensor, units: Units | None) -> tuple[Tensor, ...]:
        """c = diag A⁻¹, or [A⁻¹]_GG."""
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(K, noise, inverse)
        ctx.units = units
        return _parts(inverse, units, K)

    @staticmethod
    def backward(ctx: Any, *g: Tensor | None) -> tuple[Tensor | None, ...]:
        """∂q/∂K = −A⁻¹ diag(g) A⁻¹."""
        K, noise, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *through(lambda K, D: _parts(regularized_inverse(K, D), ctx.units, K), (K, noise), g), None, None
        gradient = _sandwich(inverse, g, ctx.units)[0].to(K)
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None, None


class InverseForms(torch.autograd.Function):
    """diag A⁻¹LA⁻¹ and c, or the blocks of both."""

    @staticmethod
    def forward(
        ctx: Any, K: Tensor, noise: Tensor, inverse: Tensor, form: QuadraticForm, units: Units | None
    ) -> tuple[Tensor, ...]:
        """The diagonals of M = A⁻¹LA⁻¹ and of A⁻¹, or their blocks, those of M first."""
        ctx.save_for_backward(K, noise, inverse)
        ctx.form, ctx.units, ctx.M = form, units, sandwiched_form(inverse, form)
        return *_parts(ctx.M, units, inverse), *_parts(inverse, units, inverse)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂K = −(A⁻¹ diag(a) M + M diag(a) A⁻¹ + A⁻¹ diag(g) A⁻¹)."""
        K, noise, C = ctx.saved_tensors
        if torch.is_grad_enabled():

            def formula(K: Tensor, noise: Tensor) -> tuple[Tensor, ...]:
                C = regularized_inverse(K, noise)
                return *_parts(C @ ctx.form.times(C), ctx.units, C), *_parts(C, ctx.units, C)

            return *through(formula, (K, noise), cotangents), None, None, None
        # The gradient overwrites M; a second pass through a retained graph computes it again.
        M, ctx.M = sandwiched_form(C, ctx.form) if ctx.M is None else ctx.M, None
        units, half = ctx.units, len(cotangents) // 2
        a, g = cotangents[:half], cotangents[half:]
        if units is None:
            gradient = mutual_product_(C, M, -a[0], -g[0])
        else:
            X = units.block_product(_symmetric(a, units, C, -1.0), M)
            X += units.block_product(_symmetric(g, units, C, -0.5), C)
            gradient = C @ X
            gradient = gradient + gradient.mT
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None, None, None


def sandwiched_form(inverse: Tensor, form: QuadraticForm) -> Tensor:
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
        ctx.save_for_backward(K, noise)
        return 2.0 * system._factor.diagonal(dim1=-2, dim2=-1).to(K).log().sum(-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂K = gA⁻¹."""
        K, noise = ctx.saved_tensors
        if torch.is_grad_enabled():
            gradient = g[..., None, None] * regularized_inverse(K, noise)
            return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None
        gradient = g[..., None, None] * ctx.system._inverse
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None


class NegativeLogDensity(torch.autograd.Function):
    """−Σ_c log N(Y_c; 0, A)."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A)."""
        V = solved(K, noise, factor, Y)
        ctx.save_for_backward(K, noise, Y, V, factor)
        half_log_determinant = factor.diagonal(dim1=-2, dim2=-1).to(Y).log().sum(-1)
        quadratic: Tensor = (Y * V).sum((-2, -1))
        n, m = Y.shape[-2:]
        return 0.5 * quadratic + m * (half_log_determinant + 0.5 * n * math.log(2.0 * math.pi))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂K = ½g(mA⁻¹ − VVᵀ), ∂q/∂Y = gV."""
        K, noise, Y, V, factor = ctx.saved_tensors
        if torch.is_grad_enabled():
            C = regularized_inverse(K, noise)
            V = C @ Y
            gradient = 0.5 * g[..., None, None] * (Y.shape[-1] * C - V @ V.mT)
            diagonal = gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape)
            return gradient, diagonal, g[..., None, None] * V, None
        gradient_Y = g[..., None, None] * V
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, gradient_Y, None
        gradient, m = inverse_from(factor).to(V), V.shape[-1]
        if gradient.dim() == 2:
            gradient.addmm_(V, V.mT, alpha=-0.5 * g.item(), beta=0.5 * m * g.item())
        else:
            gradient.mul_(m).sub_(V @ V.mT).mul_(0.5 * g[..., None, None])
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), gradient_Y, None
