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
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ...kernels.radial import flushed_exp
from ...learning.closed import Factor, Parameters

Evaluate = Callable[[Parameters, bool], "tuple[float, Parameters] | None"]
"""q and, where asked for, ∂q/∂log θ by role; ``None`` where the general road must decide."""

FEWEST_DIGITS = 1e-10
"""Of the sizes that t_i is a difference of: where it is smaller, the general road decides what is noise."""

SMALLEST_WEIGHT = 1e-100
"""Of the other points at a point, Σ_j k_ij: below it sums of squares are near to underflow."""


def closed_sample(x: Tensor, noise: float) -> Evaluate | None:
    """q as a function of θ, of the lengthscale and of σ² where that is sampled; ``None`` for repeated points."""
    n, D = x.shape
    centered = x - x.mean(-2, keepdim=True)
    squares = torch.cdist(centered, centered, compute_mode="donot_use_mm_for_euclid_dist").square_()
    size = float(centered.abs().max())
    if n < 2 or not bool((squares + torch.diag_embed(squares.diagonal() + 1.0)).min() > 1e-20 * size * size):
        return None
    constant = n * (0.5 * math.log(2.0 * math.pi) + math.log(n))
    points, distances, factor = centered.numpy(), squares.numpy(), Factor(n)
    with_one = np.concatenate([points, np.ones((n, 1))], axis=1)
    K, M = np.empty((n, n)), np.empty((n, n))
    own = K.reshape(-1)[:: n + 1]

    def evaluate(theta: Parameters, with_gradient: bool) -> tuple[float, Parameters] | None:
        lengthscale = float(theta["lengthscale"][0])
        variance = float(theta["noise"][0]) if "noise" in theta else noise
        # One exponential serves both: e^(−s/4), and its square.
        root = flushed_exp(squares * (-0.25 / lengthscale**2)).numpy()
        height = math.pi ** (0.5 * D) * lengthscale**D
        np.multiply(root, height, out=factor.A.T)
        factor.diagonal += variance
        if not factor.factorize():
            return None
        np.multiply(root, root, out=K)
        own.fill(0.0)
        sums = K @ with_one
        weight = sums[:, -1:]
        t = weight * points - sums[:, :-1]
        square = np.square(t).sum(-1)
        # A point far from all others at this lengthscale wants the log domain, which the general road has.
        if not (weight.min() > SMALLEST_WEIGHT and (square > (FEWEST_DIGITS * size * weight[:, 0]) ** 2).all()):
            return None
        mean = (sums[:, -1] + 1.0) / n
        alpha = factor.solve(mean)
        log_slope = 0.5 * float(np.log(square).sum()) - 2.0 * n * math.log(lengthscale)
        value = 0.5 * float(mean @ alpha) + 0.5 * factor.log_determinant() - log_slope + constant
        if not with_gradient:
            return value, {}
        factor.invert()
        T, diagonal = factor.T.T, factor.diagonal
        np.multiply(K, distances, out=K)
        turned = K @ with_one
        turned /= lengthscale**2
        t_dot = turned[:, -1:] * points - turned[:, :-1]
        slope = float(((t * t_dot).sum(-1) / square).sum()) - 2.0 * n
        # Ṙ = R (D + s/2), whose diagonal is D times the height.
        np.multiply(distances, 0.5 * height / lengthscale**2, out=M)
        np.add(M, D * height, out=M)
        np.multiply(M, root, out=M)
        along = 2.0 * float(np.vdot(T, M)) - D * height * float(diagonal.sum()) - float(alpha @ (M @ alpha))
        along = 0.5 * along + float(alpha @ turned[:, -1]) / n - slope
        gradient = {"lengthscale": np.array([along])}
        if "noise" in theta:
            gradient["noise"] = np.array([0.5 * variance * (float(diagonal.sum()) - float(alpha @ alpha))])
        return value, gradient

    return evaluate
