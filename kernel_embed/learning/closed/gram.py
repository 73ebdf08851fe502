r"""One radial Gram matrix as a function of its lengthscales, and the gradient of what is made of it.

With :math:`z = x / \ell`, :math:`s_{ij} = \lVert z_i - z_j \rVert^2`, a symmetric :math:`G = \partial q / \partial K`,
:math:`M = G \circ \varphi'(s)` and :math:`r = M \mathbf 1`,

.. math::
    \frac{\partial q}{\partial \log \ell_d} = -2 \sum_{ij} M_{ij} (z_{id} - z_{jd})^2
        = -4 \sum_i z_{id} \big( r_i z_{id} - (M z)_{id} \big) .
"""

from __future__ import annotations

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from numpy.typing import NDArray
from torch import Tensor

from ...kernels import TiedMaternKernel, TiedRBFKernel
from ...kernels.distances import CHECKED_NORM
from ...kernels.profiles import RadialProfile, radial_of
from ...kernels.radial import LOST_SPACING, half_squares
from ..parameters import Vector

KNOWN = (RBFKernel, MaternKernel, TiedRBFKernel, TiedMaternKernel)


class RadialGram:
    """φ(‖z_i − z_j‖²) for rows ``x`` ``(n, d)``.

    Args:
        profile: φ and φ′.
        x: rows.
        groups: the lengthscale of each column.
    """

    def __init__(self, profile: RadialProfile, x: Tensor, groups: NDArray[np.int64]) -> None:
        centered = x - x.mean(-2, keepdim=True)
        n, d = x.shape
        self._profile, self._points, self._groups = profile, centered.numpy(), groups
        self._largest = float(centered.square().sum(-1).max())
        self._lost = float(x.abs().max()) * float(np.finfo(np.float64).eps) / LOST_SPACING
        # −s/2 for ℓ = 1, where one lengthscale is common to all columns.
        self._halves = half_squares(centered, None)[0].numpy() if groups.max() == 0 else None
        self._left, self._right = np.ones((n, d + 2)), np.ones((n, d + 2))
        self._M = np.empty((n, n))

    def __call__(self, lengthscale: Vector) -> Vector | None:
        """K; ``None`` where distances have lost digits, which the general road gives back or warns of."""
        smallest = float(lengthscale.min())
        if smallest < self._lost or not 2.0 * self._largest / smallest**2 < CHECKED_NORM:
            return None
        if self._halves is not None:
            exponent = self._halves * (1.0 / float(lengthscale[0]) ** 2)
        else:
            z, left, right = self._points / lengthscale[self._groups], self._left, self._right
            d = z.shape[1]
            left[:, :d] = right[:, :d] = z
            np.einsum("ij,ij->i", z, z, out=left[:, d])
            left[:, d] *= -0.5
            right[:, d + 1] = left[:, d]
            exponent = left @ right.T
            torch.from_numpy(exponent).clamp_max_(0.0)
            exponent.reshape(-1)[:: len(z) + 1] = 0.0
        values, slopes, self._slope = self._profile(torch.from_numpy(exponent))
        K: Vector = values.numpy()
        self._slopes = K if slopes is None else slopes.numpy()
        return K

    def gradient(self, G: Vector, lengthscale: Vector) -> Vector:
        """∂q/∂log ℓ from a matrix whose symmetric part is G."""
        M = np.multiply(G, self._slopes, out=self._M)
        if self._halves is not None:
            scale = 4.0 * self._slope / float(lengthscale[0]) ** 2
            return np.array([scale * float(np.vdot(M, self._halves))])
        z = self._right[:, :-2]
        sums = M @ self._right
        # The ones stand in the last column but one; r are sums over rows and over columns.
        r = 0.5 * (sums[:, -2] + M.sum(0))
        along = (z * (r[:, None] * z - sums[:, :-2])).sum(0)
        gradient: Vector = np.zeros(len(lengthscale))
        np.add.at(gradient, self._groups, -4.0 * self._slope * along)
        return gradient


def radial_gram_of(kernel: Kernel, x: Tensor) -> RadialGram | None:
    """The Gram matrix of ``kernel`` at ``x``; ``None`` where it has no such form, or φ is not smooth in s."""
    radial = radial_of(kernel) if type(kernel) in KNOWN else None
    if radial is None or not isinstance(radial.profile, RadialProfile) or radial.profile.rough:
        return None
    if kernel.active_dims is not None or len(kernel.batch_shape) > 0:
        return None
    d = x.shape[-1]
    if isinstance(kernel, TiedRBFKernel | TiedMaternKernel):
        groups: NDArray[np.int64] = kernel.groups.numpy()
    else:
        groups = np.arange(d) if kernel.lengthscale.numel() == d else np.zeros(d, dtype=np.int64)
    return RadialGram(radial.profile, x, groups)
