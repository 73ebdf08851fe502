r"""The evidence of a sample, eq. (13), under one squared exponential and Lebesgue measure, with its gradient in log ℓ.

With :math:`k_{ij} = e^{-s_{ij}/2}`, :math:`t_i = \sum_j k_{ij} (x_i - x_j)` and a dot for :math:`\partial/\partial \log
\ell`,

.. math::
    \hat\mu_i &= \tfrac1n \sum_j k_{ij}, & \dot{\hat\mu}_i &= \tfrac1n \sum_j k_{ij} s_{ij}, \\
    \log \gamma_i &= \log \lVert t_i \rVert - 2 \log \ell - \log n, &
        \dot{\log \gamma_i} &= t_i^\top \dot t_i / \lVert t_i \rVert^2 - 2, \quad
        \dot t_i = \sum_j k_{ij} s_{ij} (x_i - x_j), \\
    R_{ij} &= \pi^{D/2} \ell^D e^{-s_{ij}/4}, & \dot R_{ij} &= R_{ij} (D + s_{ij} / 2) .
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ...kernels.radial import flushed_exp
from .labels import Evaluate, Parameters

FEWEST_DIGITS = 1e-10
"""Of the sizes that t_i is a difference of: where it is smaller, the general road decides what is noise."""


def closed_sample(x: Tensor, noise: float) -> Evaluate | None:
    """q as a function of θ, of the lengthscale and of σ² where that is sampled; ``None`` for repeated points."""
    n, D = x.shape
    centered = x - x.mean(-2, keepdim=True)
    squares = torch.cdist(centered, centered, compute_mode="donot_use_mm_for_euclid_dist").square_()
    diagonal = squares.diagonal()
    with_one = torch.cat([centered, torch.ones_like(centered[:, :1])], dim=-1)
    size = float(centered.abs().max())
    if n < 2 or not bool((squares + torch.diag_embed(diagonal + 1.0)).min() > 1e-20 * size**2):
        return None
    constant = n * (0.5 * math.log(2.0 * math.pi) + math.log(n))

    def evaluate(theta: Parameters, with_gradient: bool) -> tuple[float, Parameters] | None:
        lengthscale = float(theta["lengthscale"][0])
        variance = float(theta["noise"][0]) if "noise" in theta else noise
        halves = squares * (-0.5 / lengthscale**2)
        R = flushed_exp(halves * 0.5).mul_(math.pi ** (0.5 * D) * lengthscale**D)
        L, info = torch.linalg.cholesky_ex(_plus_diagonal(R, variance))
        # In the log domain: k_ij is taken over the largest of its row, own terms apart.
        E = halves.clone()
        E.diagonal().fill_(-math.inf)
        largest = E.amax(-1, keepdim=True)
        k = flushed_exp(E.sub_(largest))
        sums = k @ with_one
        t = sums[:, -1:] * centered - sums[:, :-1]
        square = t.square().sum(-1)
        if info.item() != 0 or not bool((square > (FEWEST_DIGITS * size * sums[:, -1]) ** 2).all()):
            return None
        height = largest.squeeze(-1).exp()
        mean = (sums[:, -1] * height + 1.0) / n
        alpha = torch.cholesky_solve(mean.unsqueeze(-1), L).squeeze(-1)
        log_slope = float((0.5 * square.log() + largest.squeeze(-1)).sum()) - 2.0 * n * math.log(lengthscale)
        value = 0.5 * float(mean @ alpha) + float(L.diagonal().log().sum()) - log_slope + constant
        if not with_gradient:
            return value, {}
        W = torch.addmm(torch.cholesky_inverse(L).mT, alpha.unsqueeze(-1), alpha.unsqueeze(0), alpha=-1.0)
        s = halves.mul_(-2.0)
        turned = k.mul_(s) @ with_one
        t_dot = turned[:, -1:] * centered - turned[:, :-1]
        slope = float(((t * t_dot).sum(-1) / square).sum()) - 2.0 * n
        spread = W.mul(R)
        along = 0.5 * (D * float(spread.sum()) + 0.5 * float(torch.vdot(spread.view(-1), s.view(-1))))
        along += float(alpha @ (turned[:, -1] * height)) / n - slope
        gradient = {"lengthscale": np.array([along])}
        if "noise" in theta:
            gradient["noise"] = np.array([0.5 * variance * float(W.trace())])
        return value, gradient

    return evaluate


def _plus_diagonal(R: Tensor, variance: float) -> Tensor:
    A = R.clone()
    A.diagonal().add_(variance)
    return A
