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
    squares = halves.mul_(-2.0)
    constant = 0.5 * n * m * math.log(2.0 * math.pi)

    def gram(lengthscale: Vector) -> tuple[Tensor, Tensor, float, Tensor | None]:
        """φ(s), φ′(s) as a matrix times a number, and z for several lengthscales."""
        if len(lengthscale) == 1:
            K, slope, factor = profile(squares * (-0.5 / lengthscale[0] ** 2))
            return K, K if slope is None else slope, factor, None
        z = centered / torch.from_numpy(lengthscale)
        K, slope, factor = profile(half_squares(z, None)[0])
        return K, K if slope is None else slope, factor, z

    def evaluate(theta: Parameters, with_gradient: bool) -> tuple[float, Parameters] | None:
        lengthscale, ridge = theta["lengthscale"], n * float(theta["regularization"][0])
        scale = float(theta["outputscale"][0]) if "outputscale" in theta else 1.0
        # Squared distances at such norms have lost digits, which the general road gives back.
        if not 2.0 * largest / float(lengthscale.min()) ** 2 < CHECKED_NORM:
            return None
        K, slope, factor, z = gram(lengthscale)
        A = K * scale
        A.diagonal().add_(ridge)
        L, info = torch.linalg.cholesky_ex(A)
        if info.item() != 0:
            return None
        V = torch.cholesky_solve(Y, L)
        value = 0.5 * float(torch.vdot(Y.reshape(-1), V.reshape(-1))) + m * float(L.diagonal().log().sum()) + constant
        if not with_gradient:
            return value, {}
        W = torch.addmm(torch.cholesky_inverse(L).mT, V, V.mT, beta=float(m), alpha=-1.0)
        gradient = {"regularization": np.array([0.5 * ridge * float(W.trace())])}
        if "outputscale" in theta:
            gradient["outputscale"] = np.array([0.5 * scale * float(torch.vdot(W.view(-1), K.view(-1)))])
        M = W * slope
        if z is None:
            along = float(torch.vdot(M.view(-1), squares.view(-1))) / lengthscale[0] ** 2
            gradient["lengthscale"] = np.array([-scale * factor * along])
        else:
            # Σ_ij M_ij (z_i − z_j)² = 2 Σ_i z_i (z_i Σ_j M_ij − Σ_j M_ij z_j)
            along = (z * (M.sum(-1, keepdim=True) * z - M @ z)).sum(0).numpy()
            gradient["lengthscale"] = -2.0 * scale * factor * along
        return value, gradient

    return evaluate
