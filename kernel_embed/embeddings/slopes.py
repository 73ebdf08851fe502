r"""Slopes of kernels: of radial ones in the log domain, of sums and products by rules, of any other by autograd.

**Radial kernels.** With z = x/ℓ, :math:`s_{ij} = \lVert z_i - z_j \rVert^2` and a kernel φ(s), eqs. (2) and (10) are

.. math::
    \hat\mu_i = \frac1n \sum_j \varphi(s_{ij}), \qquad
    v_i = \frac{\partial \hat\mu}{\partial z}(z_i) = \frac2n \sum_j \varphi'(s_{ij}) (z_i - z_j),

and :math:`\gamma_i = \lVert v_i / \ell \rVert` is the Jacobian of eq. (12). Far from all other points φ' underflows, so
with E the exponent of φ and :math:`m_i = \max_{j \ne i} E_{ij}` this file computes :math:`\tilde v_i = e^{-m_i} v_i`.
The terms j = i have no slope. The gradient of :math:`q(\hat\mu, \tilde v)`, with g and h its derivatives, goes through
:math:`\partial q/\partial s_{ij} = \frac1n \big( g_i \varphi' + 2 e^{-m_i} \varphi'' \, h_i^\top (z_i - z_j) \big)`.

**Rules.** :func:`expand` gives k(x_i, x_j) and a function from ω to :math:`\sum_j \omega_{ij} \partial_x k(x_i, x_j)`:

.. math::  \omega \cdot \partial (k + l) = \omega \cdot \partial k + \omega \cdot \partial l, \qquad
           \omega \cdot \partial (k l) = (\omega l) \cdot \partial k + (\omega k) \cdot \partial l .

Where two points coincide, a kernel with a cusp (Matérn ½) has no derivative; by symmetry that pair counts zero. A pair
of one point with itself has :math:`\partial_1 k(x, x) = \frac12 \nabla k(x, x)`, zero for every stationary kernel.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram_diagonal
from ..kernels.gram import by_gpytorch, cross_evaluation
from ..kernels.parameters import check_initialized
from ..kernels.radial import (
    Radial,
    RadialProfile,
    exact_differences,
    flushed_exp,
    half_squares,
    plain_squares,
    radial_of,
    square_distances,
)
from ..kernels.structure import Algebra, Node, fold
from ..linalg.derivatives import through

CDIST_ROWS = 26  # above 25 rows torch.cdist takes its matrix-product form, the one that can be differentiated twice
MAX_STORED = 2**25
"""Number of entries above which the n × n matrix is not stored for the gradient but computed again, in blocks."""
FAR = 1e4  # distance from the center, in lengthscales, up to which differences in one dimension are accurate
BLOCK_ENTRIES = 2**22


def radial_slope(
    z1: Tensor, z: Tensor, own: Tensor | None, profile: RadialProfile, counts: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """μ̂ ``(*batch, t)``, ṽ ``(*batch, t, D)``, m, and the size below which ṽ is noise, of a sample ``z`` at ``z1``.

    ``own`` is the row of ``z`` that each point is, if they are rows, and ``counts`` how often each row occurs.
    """
    # Differences do not change under a shift, but the rounding error of their computation does.
    centre = z.detach().mean(dim=-2, keepdim=True)
    slope: tuple[Tensor, Tensor, Tensor, Tensor] = _RadialSlope.apply(z1 - centre, z - centre, own, profile, counts)
    return slope


class _RadialSlope(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z1: Tensor, z: Tensor, own: Tensor | None, profile: RadialProfile, counts: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """μ̂, ṽ, m, and the size below which ṽ is noise, a block of rows at a time."""
        total = z.shape[-2] if counts is None else float(counts.sum())
        own_count = 0.0 if own is None else (1.0 if counts is None else counts[own])
        padded = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        stored = math.prod(z1.shape[:-1]) * z.shape[-2] <= MAX_STORED
        pieces: list[tuple[Tensor, ...]] = []
        kept: list[Tensor] = []
        for rows in _blocks(z1, z, stored):
            zb = z1[..., rows, :]
            E, W, m, far = _exponents(zb, z, None if own is None else own[rows], profile, counts)
            p0, p1 = profile.factors(E)
            sums = p1 * (W @ padded) if isinstance(p1, float) else (p1 * W) @ padded
            # Σ_j p₁W_ij (z_i − z_j)
            turned = exact_differences(p1 * W, zb, z)[0] if far else sums[..., -1:] * zb - sums[..., :-1]
            values = W.sum(-1) if isinstance(p0, float) else (p0 * W).sum(-1)
            pieces.append((values.unsqueeze(-1), sums[..., -1:], turned, m.unsqueeze(-1)))
            if stored:
                kept, ctx.far = [W] if profile.constant else [W, E], far
        values, weights, turned, m = (torch.cat(parts, dim=-2) for parts in zip(*pieces, strict=True))
        v, m = (2.0 / total) * turned, m.squeeze(-1)
        mean = (values.squeeze(-1) * m.exp() + own_count * profile.at_zero()) / total
        rounding = 8.0 * torch.finfo(z.dtype).eps / total
        noise = rounding * z.abs().amax(dim=(-2, -1)).unsqueeze(-1) * weights.squeeze(-1).abs()
        ctx.profile, ctx.total, ctx.stored = profile, total, stored
        ctx.save_for_backward(z1, z, own, counts, m, weights, *kept)
        ctx.mark_non_differentiable(m, noise)
        return mean, v, m, noise

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂z of the points and of the sample, from g = ∂q/∂μ̂ and h = ∂q/∂ṽ."""
        z1, z, own, counts, m, weights, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            formula = functools.partial(_plain_slope, own, ctx.profile, counts, m.detach(), ctx.total)
            return *through(formula, (z1, z), (g, h)), None, None, None
        padded = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        g, h = (g * m.exp() * (2.0 / ctx.total)).unsqueeze(-1), h * (2.0 / ctx.total)
        along = (h * z1).sum(-1, keepdim=True)
        gradient1, gradient = torch.empty_like(z1), torch.zeros_like(z)
        for rows in _blocks(z1, z, ctx.stored):
            zb, gb, hb, ab = (t[..., rows, :] for t in (z1, g, h, along))
            if ctx.stored:
                W, E, far = kept[0], kept[-1], ctx.far
            else:
                E, W, _m, far = _exponents(zb, z, None if own is None else own[rows], ctx.profile, counts)
            p1, p2 = ctx.profile.factors(E)[1], ctx.profile.curvature(E)
            # M = 2 ∂q/∂s = W∘(g p₁ + 2 p₂ hᵢᵀ(zᵢ − zⱼ)), as one product of rank D + 1 where p₁ and p₂ are numbers
            if not far and isinstance(p1, float) and isinstance(p2, float):
                M = torch.cat([hb * (-2.0 * p2), gb * p1 + (2.0 * p2) * ab], dim=-1) @ padded.mT
                beside = p1 * (W.mT @ hb)
            else:
                inner = _inner_differences(hb, zb, z) if far else ab - hb @ z.mT
                M, beside = inner.mul_(p2).mul_(2.0).add_(gb * p1), (p1 * W).mT @ hb
            M.mul_(W)
            if far:
                gradient1[..., rows, :], back = exact_differences(M, zb, z)
            else:
                sums, back = M @ padded, M.mT @ torch.cat([zb, torch.ones_like(zb[..., :1])], dim=-1)
                gradient1[..., rows, :] = sums[..., -1:] * zb - sums[..., :-1]
                back = back[..., -1:] * z - back[..., :-1]
            gradient += back - beside
        # the derivative of the factor z_i − z_j in v with respect to z_i
        gradient1 += weights * h
        return gradient1, gradient, None, None, None


def _inner_differences(h: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
    columns = zip(h.unbind(-1), z1.unbind(-1), z2.unbind(-1), strict=True)
    return sum((g.unsqueeze(-1) * (a.unsqueeze(-1) - b.unsqueeze(-2)) for g, a, b in columns), start=h.new_zeros(()))


def _plain_slope(
    own: Tensor | None, profile: RadialProfile, counts: Tensor | None, m: Tensor, total: float, z1: Tensor, z: Tensor
) -> tuple[Tensor, Tensor]:
    """μ̂ and ṽ in operations that autograd can differentiate any number of times."""
    s = plain_squares(z1, z)
    w = torch.ones_like(s) if counts is None else counts.expand_as(s).clone()
    count = torch.zeros_like(m)
    if own is not None:
        mine = (..., torch.arange(z1.shape[-2], device=z.device), own)
        count = w[mine]
        w[mine] = 0.0
        s = torch.where(w > 0, s, 1.0)
    phi, slope = (w * values for values in profile.value_and_slope(s, m.unsqueeze(-1)))
    mean = (phi.sum(-1) * m.exp() + count * profile.at_zero()) / total
    return mean, (2.0 / total) * (slope.sum(-1, keepdim=True) * z1 - slope @ z)


def _blocks(z1: Tensor, z: Tensor, stored: bool) -> list[slice]:
    t, entries = z1.shape[-2], max(1, z.shape[-2] * math.prod(z1.shape[:-2]))
    step = t if stored else max(1, BLOCK_ENTRIES // entries)
    return [slice(start, min(start + step, t)) for start in range(0, t, step)]


def _exponents(
    z1: Tensor, z: Tensor, own: Tensor | None, profile: RadialProfile, counts: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, bool]:
    """E, W = counts·exp(E − m) without own terms, m, the largest exponent of each row, and whether norms are large."""
    if z.shape[-1] == 1 and float(z.abs().amax()) <= FAR:
        halves, far = (z1 - z.mT).square_().mul_(-0.5), False  # as fast as a matrix product, and loses no digits
    else:
        halves, far = half_squares(z1, z, rough=not profile.constant)
    E = profile.exponent(halves)
    mine = None if own is None else (..., torch.arange(z1.shape[-2], device=z.device), own)
    if mine is not None:
        E[mine] = -math.inf
    m = E.amax(dim=-1)
    # A lone point has no neighbors: m = 0 there, and W = 0.
    m = torch.where(torch.isfinite(m), m, 0.0)
    if profile.constant:
        E = W = flushed_exp(E.sub_(m.unsqueeze(-1)))
    else:
        W = flushed_exp(E - m.unsqueeze(-1))
        if mine is not None:
            E[mine] = -1.0  # any number: it is multiplied by W = 0
    return E, W if counts is None else W.mul_(counts), m, far


class Expansion(NamedTuple):
    """k(x_i, x_j), and the function from ω to Σ_j ω_ij ∂k(x_i, x_j)/∂x_i, of shape ``(*batch, t, d)``."""

    values: Tensor
    slope: Callable[[Tensor], Tensor]


def expand(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    """k and its slope between ``x1`` and ``x2``; ``mask`` marks the pairs of one point with itself."""
    return fold(kernel, _Rules(x1, x2, mask)) or _by_autograd(kernel, x1, x2, mask)


class _Rules(Algebra[Expansion]):
    """The rules of differentiation; a part of a sum or product without rules is differentiated by autograd."""

    def __init__(self, x1: Tensor, x2: Tensor, mask: Tensor | None) -> None:
        self.x1, self.x2, self.mask = x1, x2, mask

    def leaf(self, node: Node) -> Expansion | None:
        """φ(s) and its slope through φ′, for a radial kernel."""
        radial = radial_of(node.kernel)
        if radial is None:
            return None
        return self._on_all_columns(_by_profile(radial, node.select(self.x1), node.select(self.x2)), node.columns)

    def unknown(self, node: Node) -> Expansion:
        """k and its slope by autograd."""
        x1, x2 = node.select_inputs(self.x1), node.select_inputs(self.x2)
        return self._on_all_columns(_by_autograd(node.kernel, x1, x2, self.mask), node.inputs)

    def scale(self, node: Node, part: Expansion) -> Expansion:
        """σ²k and σ² ω·∂k."""
        factor = node.factor[..., None, None]
        return Expansion(factor * part.values, lambda weight: factor * part.slope(weight))

    def add(self, node: Node, parts: Sequence[Expansion]) -> Expansion:
        """ω·∂(k + l) = ω·∂k + ω·∂l."""
        values = functools.reduce(operator.add, [part.values for part in parts])
        slopes = [lambda weight, part=part: part.slope(weight.expand_as(part.values)) for part in parts]
        return Expansion(values, lambda weight: functools.reduce(operator.add, [slope(weight) for slope in slopes]))

    def multiply(self, node: Node, parts: Sequence[Expansion]) -> Expansion:
        """ω·∂(∏ k_p) = Σ_p (ω ∏_{q≠p} k_q)·∂k_p."""

        def slope(weight: Tensor) -> Tensor:
            others = [[other.values for other in parts if other is not part] for part in parts]
            weights = [functools.reduce(operator.mul, values, weight) for values in others]
            return functools.reduce(operator.add, [part.slope(w) for part, w in zip(parts, weights, strict=True)])

        return Expansion(functools.reduce(operator.mul, [part.values for part in parts]), slope)

    def _on_all_columns(self, inner: Expansion, columns: Tensor | None) -> Expansion:
        """The slope in the original input of what is computed from some of its columns."""
        if columns is None:
            return inner

        def slope(weight: Tensor) -> Tensor:
            part = inner.slope(weight)
            return part.new_zeros(*part.shape[:-1], self.x1.shape[-1]).index_add(-1, columns, part)

        return Expansion(inner.values, slope)


def _by_profile(radial: Radial, x1: Tensor, x2: Tensor) -> Expansion:
    centre = x2.detach().mean(dim=-2, keepdim=True)
    z1, z2 = radial.scaled(x1 - centre), radial.scaled(x2 - centre)
    square = square_distances(z1, z2)
    # Rounding may leave a small distance between coinciding points; for a cusp that would be a slope of its own.
    rounding = 64.0 * torch.finfo(square.dtype).eps * (1.0 + z2.detach().square().sum(-1).amax(-1)[..., None, None])
    phi, slope = radial.profile.value_and_slope(torch.where(square > rounding, square, 0.0))

    def weighted(weight: Tensor) -> Tensor:
        M = 2.0 * weight * slope
        return radial.slope(M.sum(-1, keepdim=True) * z1 - M @ z2)

    return Expansion(phi, weighted)


def _by_autograd(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    check_initialized(kernel)
    inputs = x1.clone() if x1.requires_grad else x1.clone().requires_grad_()
    batch, t, n = x1.shape[:-2], x1.shape[-2], x2.shape[-2]
    # Rows more than needed: GPyTorch treats equal inputs apart, with distances that cannot be differentiated at zero.
    extra = max(1, CDIST_ROWS - n) + (1 if n + max(1, CDIST_ROWS - n) == t else 0)
    longer = torch.cat([x2, x2[..., -1:, :].expand(*x2.shape[:-2], extra, x2.shape[-1])], dim=-2)
    with cross_evaluation(kernel):
        K = by_gpytorch(kernel, inputs, longer.expand(*batch, *longer.shape[-2:]))[..., :n]
    if mask is not None:
        K = torch.where(mask, gram_diagonal(kernel, inputs).unsqueeze(-1), K)

    def slope(weight: Tensor) -> Tensor:
        # ∂₁k(x, x) = ½ ∇k(x, x) for a pair of one point with itself
        halved = weight if mask is None else torch.where(mask, 0.5 * weight, weight)
        if not K.requires_grad:
            return torch.zeros_like(inputs)
        (gradient,) = torch.autograd.grad(
            K, inputs, halved.expand_as(K), create_graph=True, allow_unused=True, materialize_grads=True
        )
        return gradient

    return Expansion(K, slope)
