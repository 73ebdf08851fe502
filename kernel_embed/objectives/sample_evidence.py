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

from ..kernels.radial import flushed_exp
from ..linalg.lapack import LapackSystem

FEWEST_DIGITS = 1e-10
"""The smallest ‖t_i‖, relative to the terms of its sum, that is not rounding error."""
SMALLEST_WEIGHT = 1e-100
"""The smallest Σ_j k_ij over the other points: below it sums of squares are near to underflow."""


class SampleEvidence:
    """q = −log p(x₁, …, x_n | ℓ, σ²) of eq. (13) for a sample without repeated points.

    Args:
        x: the sample, ``(n, D)``.
    """

    def __init__(self, x: Tensor) -> None:
        n, self._D = x.shape
        centered = x - x.mean(-2, keepdim=True)
        self._squares = torch.cdist(centered, centered, compute_mode="donot_use_mm_for_euclid_dist").square_()
        self._size = float(centered.abs().max())
        self._points, self._distances = centered.numpy(), self._squares.numpy()
        self._with_one = np.concatenate([self._points, np.ones((n, 1))], axis=1)
        self._K, self._M = np.empty((n, n)), np.empty((n, n))
        self._own = self._K.reshape(-1)[:: n + 1]
        self._system = LapackSystem(np.empty((n, 1)))

    @property
    def has_repeated_points(self) -> bool:
        """Whether two points coincide but for rounding; they need the log domain."""
        squares = self._squares + torch.diag_embed(self._squares.diagonal() + 1.0)
        return not bool(squares.min() > 1e-20 * self._size * self._size)

    def __call__(
        self, lengthscale: float, noise: float, with_gradient: bool = True
    ) -> tuple[float, float, float] | None:
        """q, ∂q/∂log ℓ and ∂q/∂log σ²; ``None`` where a point is so far from all others that digits are lost."""
        n, D, points, K, M = len(self._points), self._D, self._points, self._K, self._M
        # One exponential serves both kernels: e^(−s/4), and its square.
        root = flushed_exp(self._squares * (-0.25 / lengthscale**2)).numpy()
        height = math.pi ** (0.5 * D) * lengthscale**D
        np.multiply(root, root, out=K)
        self._own.fill(0.0)
        sums = K @ self._with_one
        weight = sums[:, -1:]
        t = weight * points - sums[:, :-1]
        square = np.square(t).sum(-1)
        smallest = FEWEST_DIGITS * self._size * weight[:, 0]
        if not (weight.min() > SMALLEST_WEIGHT and (square > smallest**2).all()):
            return None
        system = self._system
        system.Y[:, 0] = (sums[:, -1] + 1.0) / n
        if not system.factorize(root, height, noise):
            return None
        log_slope = 0.5 * float(np.log(square).sum()) - n * (2.0 * math.log(lengthscale) + math.log(n))
        value = system.negative_log_density() - log_slope
        if not with_gradient:
            return value, 0.0, 0.0
        np.multiply(K, self._distances, out=K)
        turned = K @ self._with_one
        turned /= lengthscale**2
        t_dot = turned[:, -1:] * points - turned[:, :-1]
        slope = float(((t * t_dot).sum(-1) / square).sum()) - 2.0 * n
        # Ṙ = R (D + s/2)
        np.multiply(self._distances, 0.5 * height / lengthscale**2, out=M)
        np.add(M, D * height, out=M)
        np.multiply(M, root, out=M)
        # ∂q/∂R = ½(A⁻¹ − ααᵀ), whose inverse is one triangle; the diagonal of Ṙ is D times the height.
        alpha, (T, diagonal) = system.V[:, 0], system.triangle()
        trace = float(diagonal.sum())
        along = float(np.vdot(T, M)) - 0.5 * (D * height * trace + float(alpha @ (M @ alpha)))
        along += float(alpha @ turned[:, -1]) / n - slope
        return value, along, 0.5 * noise * (trace - float(alpha @ alpha))
