r"""The closed form of r for Matérn kernels under Lebesgue measure, in any dimension.

The spectral density of r is that of k squared, so a Matérn kernel of smoothness ν in D dimensions smooths to a Matérn
of smoothness ν' = 2ν + D/2 with the same inverse length κ = √(2ν)/ℓ. With
:math:`M_\nu(t) = \frac{2^{1-\nu}}{\Gamma(\nu)} t^\nu K_\nu(t)`,

.. math::
    r(x, y) = \frac{C(\nu)^2}{C(\nu')} \Big(\prod_d \frac{\ell_d}{\sqrt{2\nu}}\Big)
        M_{\nu'}(\kappa \lVert x - y \rVert), \qquad C(\nu) = 2^D \pi^{D/2} \frac{\Gamma(\nu + D/2)}{\Gamma(\nu)} .

For odd D the order ν' is a half-integer and :math:`M_{\nu'}` a polynomial times an exponential (D = 1, ν = ½:
r = (ℓ + |δ|) exp(−|δ|/ℓ)); for even D it is an integer and :math:`t^n K_n(t)` follows from K₀ and K₁ by
:math:`g_{n+1} = t^2 g_{n-1} + 2n g_n`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..radial import Profile, flushed_exp, radial_gram


def matern_smoothed_gram(nu: float, lengthscale: Tensor, x1: Tensor, x2: Tensor | None) -> Tensor:
    """The matrix r(x1_i, x2_j) of a Matérn kernel of smoothness ``nu``; ``lengthscale`` ℓ is ``(*batch, 1, 1 | D)``."""
    D = x1.shape[-1]
    order = 2.0 * nu + 0.5 * D
    lengthscale = lengthscale.expand(*lengthscale.shape[:-1], D)
    log_constant = 2.0 * _log_C(nu, D) - _log_C(order, D) - 0.5 * D * math.log(2.0 * nu)
    size = (log_constant + lengthscale.log().sum(-1, keepdim=True)).exp()
    z1, z2 = x1 / lengthscale, None if x2 is None else x2 / lengthscale
    return size * radial_gram(z1, z2, general_matern(order, 2.0 * nu))


def _log_C(nu: float, D: int) -> float:
    return D * math.log(2.0) + 0.5 * D * math.log(math.pi) + math.lgamma(nu + 0.5 * D) - math.lgamma(nu)


def general_matern(order: float, rate: float) -> Profile:
    r"""The profile φ(s) = M_ν(t), t = √(rate·s), for an integer or half-integer order ν > 1.

    From :math:`\frac{d}{dt} t^\nu K_\nu = -t^\nu K_{\nu-1}`: φ'(s) = −(rate/2) · 2^{1−ν}/Γ(ν) · t^{ν−1} K_{ν−1}(t).
    """
    constant = math.exp((1.0 - order) * math.log(2.0) - math.lgamma(order))

    def profile(halves: Tensor) -> tuple[Tensor, Tensor, float]:
        t = halves.mul_(-2.0 * rate).sqrt_()
        lower, upper = _scaled_bessel(order, t)
        return upper.mul_(constant), lower, -0.5 * rate * constant

    return profile


def _scaled_bessel(order: float, t: Tensor) -> tuple[Tensor, Tensor]:
    """g_{ν−1} and g_ν, where g_n(t) = tⁿ K_n(t), by upward recurrence, in which every term is positive."""
    if float(order).is_integer():
        safe = t.clamp_min(torch.finfo(t.dtype).tiny)
        below, g = torch.special.modified_bessel_k0(safe), safe * torch.special.modified_bessel_k1(safe)
        n = 1.0
    else:
        g = flushed_exp(-t).mul_(math.sqrt(0.5 * math.pi))
        below, n = g / t.clamp_min(torch.finfo(t.dtype).tiny), 0.5
    squares = t.square()
    while n < order:
        # t² g_{n−1} is 0 at t = 0, where g_{−1/2} and g_0 are infinite.
        below, g = g, torch.where(t > 0, squares * below, 0.0).add_(g, alpha=2.0 * n)
        n += 1.0
    return below, g
