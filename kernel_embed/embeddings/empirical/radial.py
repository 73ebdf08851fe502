r"""The empirical embedding of a radial kernel and its gradient at many points, in the log domain.

With z = x/ℓ, :math:`s_{ij} = \lVert z_i - z_j \rVert^2` and a radial kernel φ(s), eqs. (2) and (10) are

.. math::
    \hat\mu_i = \frac1n \sum_j \varphi(s_{ij}), \qquad
    v_i = \frac{\partial \hat\mu}{\partial z}(z_i) = \frac2n \sum_j \varphi'(s_{ij}) (z_i - z_j),

and :math:`\gamma_i = \lVert v_i / \ell \rVert` is the Jacobian of eq. (12). Far from all other points φ' underflows and
log γ would be −∞, so with E the exponent of φ and :math:`m_i = \max_{j \ne i} E_{ij}` this file computes
:math:`\tilde v_i = e^{-m_i} v_i`. The terms j = i have no slope and are treated separately.

The gradient of :math:`q(\hat\mu, \tilde v)`, with g and h its derivatives and m fixed, goes through
:math:`\partial q/\partial s_{ij} = \frac1n \big( g_i \varphi' + 2 e^{-m_i} \varphi'' \, h_i^\top (z_i - z_j) \big)`:
three matrix products with D columns and one n × n matrix, where autograd keeps a dozen.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from ...kernels.distances import NearPairs, inner_differences, plain_squares, weighted_differences
from ...kernels.profiles import RadialProfile
from ...kernels.radial import flushed_exp, half_squares
from ...linalg.derivatives import through

MAX_STORED = 2**25
"""Number of entries above which the n × n matrix is not stored for the gradient but computed again, in blocks."""
FAR = 1e4
"""Distance from the center, in lengthscales, up to which differences in one dimension are accurate."""
BLOCK_ENTRIES = 2**22


def radial_slope(
    z1: Tensor, z: Tensor, own: Tensor | None, profile: RadialProfile, counts: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """μ̂, ṽ, m and the rounding error of ṽ at the points ``z1`` (``(*batch, t, D)``) for the sample ``z``.

    Args:
        z1: points, in units of the lengthscale.
        z: the sample ``(*batch, n, D)``.
        own: the row of ``z`` that each point is, or ``None`` for points that are not in the sample.
        profile: the kernel.
        counts: how often each row of the sample occurs; once by default.

    Returns:
        μ̂ ``(*batch, t)``, ṽ ``(*batch, t, D)``, m ``(*batch, t)``, and ``(*batch, t)`` sizes below which ṽ is noise.
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
        """μ̂, ṽ, m and the size of noise, block by block."""
        total = z.shape[-2] if counts is None else float(counts.sum())
        own_count = 0.0 if own is None else (1.0 if counts is None else counts[own])
        padded = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        stored = math.prod(z1.shape[:-1]) * z.shape[-2] <= MAX_STORED
        pieces: list[tuple[Tensor, ...]] = []
        kept: list[Tensor] = []
        for rows in _blocks(z1, z, stored):
            zb = z1[..., rows, :]
            E, W, m, near = _exponents(zb, z, None if own is None else own[rows], profile, counts)
            p0, p1 = profile.factors(E)
            sums = p1 * (W @ padded) if isinstance(p1, float) else (p1 * W) @ padded
            # Σ_j p₁W_ij (z_i − z_j)
            turned = weighted_differences(p1 * W, zb, z, near)[0] if near else sums[..., -1:] * zb - sums[..., :-1]
            values = W.sum(-1) if isinstance(p0, float) else (p0 * W).sum(-1)
            pieces.append((values.unsqueeze(-1), sums[..., -1:], turned, m.unsqueeze(-1)))
            if stored:
                kept, ctx.near = [W] if profile.constant else [W, E], near
        values, weights, turned, m = (torch.cat(parts, dim=-2) for parts in zip(*pieces, strict=True))
        v = (2.0 / total) * turned
        m = m.squeeze(-1)
        mean = (values.squeeze(-1) * m.exp() + own_count * profile.at_zero()) / total
        size = z.abs().amax(dim=(-2, -1)).unsqueeze(-1) * weights.squeeze(-1).abs()
        noise = (8.0 * torch.finfo(z.dtype).eps / total) * size
        ctx.profile, ctx.total, ctx.stored = profile, total, stored
        ctx.save_for_backward(z1, z, own, counts, m, weights, *kept)
        ctx.mark_non_differentiable(m, noise)
        return mean, v, m, noise

    @staticmethod
    def backward(ctx: Any, g: Tensor, h: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients for the points and the sample, from g and h."""
        z1, z, own, counts, m, weights, *kept = ctx.saved_tensors
        if torch.is_grad_enabled():
            formula = functools.partial(_plain_slope, own, ctx.profile, counts, m.detach(), ctx.total)
            return *through(formula, (z1, z), (g, h)), None, None, None
        padded = torch.cat([z, torch.ones_like(z[..., :1])], dim=-1)
        g = (g * m.exp() * (2.0 / ctx.total)).unsqueeze(-1)
        h = h * (2.0 / ctx.total)
        along = (h * z1).sum(-1, keepdim=True)
        gradient1, gradient = torch.empty_like(z1), torch.zeros_like(z)
        for rows in _blocks(z1, z, ctx.stored):
            zb, gb, hb, ab = (t[..., rows, :] for t in (z1, g, h, along))
            if ctx.stored:
                W, E, near = kept[0], kept[-1], ctx.near
            else:
                E, W, _m, near = _exponents(zb, z, None if own is None else own[rows], ctx.profile, counts)
            p1, p2 = ctx.profile.factors(E)[1], ctx.profile.curvature(E)
            # M = 2 ∂q/∂s = W∘(g p₁ + 2 p₂ hᵢᵀ(zᵢ − zⱼ)), as one product of rank D + 1 where p₁ and p₂ are numbers
            if near:
                M = inner_differences(hb, zb, z, near).mul_(p2).mul_(2.0).add_(gb * p1)
                beside = (p1 * W).mT @ hb
            elif isinstance(p1, float) and isinstance(p2, float):
                M = torch.cat([hb * (-2.0 * p2), gb * p1 + (2.0 * p2) * ab], dim=-1) @ padded.mT
                beside = p1 * (W.mT @ hb)
            else:
                M = (ab - hb @ z.mT).mul_(p2).mul_(2.0).add_(gb * p1)
                beside = (p1 * W).mT @ hb
            M.mul_(W)
            if near:
                gradient1[..., rows, :], back = weighted_differences(M, zb, z, near)
                gradient += back - beside
                continue
            sums = M @ padded
            gradient1[..., rows, :] = sums[..., -1:] * zb - sums[..., :-1]
            back = M.mT @ torch.cat([zb, torch.ones_like(zb[..., :1])], dim=-1)
            gradient += back[..., -1:] * z - back[..., :-1] - beside
        # the z that stand beside φ' in v
        gradient1 += weights * h
        return gradient1, gradient, None, None, None


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
    phi, slope = (w * values for values in profile.plain(s, m.unsqueeze(-1)))
    mean = (phi.sum(-1) * m.exp() + count * profile.at_zero()) / total
    return mean, (2.0 / total) * (slope.sum(-1, keepdim=True) * z1 - slope @ z)


def _blocks(z1: Tensor, z: Tensor, stored: bool) -> list[slice]:
    t = z1.shape[-2]
    if stored:
        return [slice(0, t)]
    step = max(1, BLOCK_ENTRIES // max(1, z.shape[-2] * math.prod(z1.shape[:-2])))
    return [slice(start, min(start + step, t)) for start in range(0, t, step)]


def _exponents(
    z1: Tensor, z: Tensor, own: Tensor | None, profile: RadialProfile, counts: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, list[NearPairs]]:
    """E, W = counts·exp(E − m) without own terms, m, the largest exponent of each row, and pairs done again."""
    halves, near = _halves(z1, z, rough=not profile.constant)
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
    return E, W if counts is None else W.mul_(counts), m, near


def _halves(z1: Tensor, z: Tensor, rough: bool) -> tuple[Tensor, list[NearPairs]]:
    """−s/2: by differences in one dimension, which is as fast and loses no digits, else by one matrix product."""
    if z.shape[-1] == 1 and float(z.abs().amax()) <= FAR:
        return (z1 - z.mT).square_().mul_(-0.5), []
    return half_squares(z1, z, rough=rough)
