r"""The evidence of targets under one radial kernel, with its gradient in the logarithms of the parameters.

.. math::
    q &= \tfrac12 \operatorname{tr}(Y^\top V) + \tfrac m2 \log \lvert A \rvert + \tfrac{nm}2 \log 2\pi, \qquad
    A = \sigma^2 K + n\lambda I, \quad V = A^{-1} Y, \quad W = m A^{-1} - V V^\top \\
    \frac{\partial q}{\partial \log \lambda} &= \tfrac12 n\lambda \operatorname{tr} W, \qquad
    \frac{\partial q}{\partial \log \sigma^2} = \tfrac12 \sigma^2 \sum W \circ K, \qquad
    \frac{\partial q}{\partial \log \ell_d} = -\sigma^2 \sum_{ij} W_{ij} \varphi'(s_{ij}) (z_{id} - z_{jd})^2
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...kernels.near import CHECKED_NORM
from ...kernels.profiles import RadialProfile, radial_of
from ...kernels.radial import half_squares
from ...learning.parameters import Vector
from .factor import Factor

FEW_NUMBERS = 2**20
"""Up to so many squared differences of points in single features are kept: 8 MiB."""

Parameters = dict[str, Vector]
"""Values θ by their role: ``lengthscale``, ``outputscale``, ``regularization``."""
Evaluate = Callable[[Parameters, bool], "tuple[float, Parameters] | None"]
"""q and, where asked for, ∂q/∂log θ by role; ``None`` where the general road must decide."""


def closed_labels(kernel: Kernel, x: Tensor, Y: Tensor) -> Evaluate | None:
    """q as a function of θ for one radial kernel; ``None`` where its profile is not smooth in s."""
    radial = radial_of(kernel)
    if radial is None or not isinstance(radial.profile, RadialProfile) or radial.profile.rough:
        return None
    profile, (n, m) = radial.profile, Y.shape
    centered = x - x.mean(-2, keepdim=True)
    largest = float(centered.square().sum(-1).max())
    halves, near = half_squares(centered, None)
    if near:
        return None
    # Squared differences, a row for each lengthscale: −s/2 and its slopes are then one product each.
    isotropic = halves.mul_(-2.0).reshape(1, -1).numpy()
    few = x.shape[-1] * n * n <= FEW_NUMBERS
    relevant = (centered.T.unsqueeze(2) - centered.T.unsqueeze(1)).square().reshape(-1, n * n).numpy() if few else None
    constant = 0.5 * n * m * math.log(2.0 * math.pi)
    factor, targets = Factor(n), np.asfortranarray(Y.numpy())

    def evaluate(theta: Parameters, with_gradient: bool) -> tuple[float, Parameters] | None:
        lengthscale, ridge = theta["lengthscale"], n * float(theta["regularization"][0])
        scale = float(theta["outputscale"][0]) if "outputscale" in theta else 1.0
        # Squared distances at such norms have lost digits, which the general road gives back.
        if not 2.0 * largest / float(lengthscale.min()) ** 2 < CHECKED_NORM:
            return None
        squares = isotropic if len(lengthscale) == 1 else relevant
        if squares is None:
            exponent = half_squares(centered / torch.from_numpy(lengthscale), None)[0]
        else:
            exponent = torch.from_numpy(((-0.5 / lengthscale**2) @ squares).reshape(n, n))
        values, slopes, slope = profile(exponent)
        K = values.numpy()
        np.multiply(K, scale, out=factor.A.T)
        factor.diagonal += ridge
        if not factor.factorize():
            return None
        V = factor.solve(targets)
        value = 0.5 * float(np.vdot(targets, V)) + 0.5 * m * factor.log_determinant() + constant
        if not with_gradient:
            return value, {}
        factor.invert()
        T, diagonal = factor.T.T, factor.diagonal  # K is symmetric: its order in memory is that of T'
        gradient = {"regularization": np.array([0.5 * ridge * (m * float(diagonal.sum()) - float(np.vdot(V, V)))])}
        if "outputscale" in theta:
            along = m * (2.0 * float(np.vdot(T, K)) - float(diagonal @ K.diagonal())) - float(np.vdot(V, K @ V))
            gradient["outputscale"] = np.array([0.5 * scale * along])
        # W ∘ φ′, but for its diagonal, where differences are zero; it need not be symmetric.
        M = np.multiply(T, 2.0 * m)
        M -= V @ V.T
        M *= K if slopes is None else slopes.numpy()
        if squares is None:
            # Σ_ij M_ij (z_i − z_j)² = Σ_i z_i² (M 1 + M' 1)_i − 2 Σ_i z_i (M z)_i
            z = centered.numpy() / lengthscale
            along = (M.sum(0) + M.sum(1)) @ np.square(z) - 2.0 * (z * (M @ z)).sum(0)
        else:
            along = squares @ M.reshape(-1) / lengthscale**2
        gradient["lengthscale"] = -scale * slope * along
        return value, gradient

    return evaluate
