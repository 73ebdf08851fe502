r"""Explicit features for kernels that have none of their own: random Fourier features, and Nyström's.

Both return a kernel, so that everything else stays as it is.

.. math::
    z(x) &= p'^{-1/2} [\cos \Omega^\top x, \sin \Omega^\top x], \; p' = p / 2, \;
            \omega \sim \text{spectral density of } k                       & \text{(random features)} \\
    z(x) &= (Q \Lambda^{-1/2})^\top k(U, x), \; k(U, U) = Q \Lambda Q^\top   & \text{(Nyström)}
"""

from __future__ import annotations

import copy
import math

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from ...linalg import whitening
from ...validation import check_features
from ..classes.feature import FeatureKernel
from ..gram import gram
from .explicit import has_explicit_features


class FourierFeatures(torch.nn.Module):
    """z(x) = [cos Ωᵀx, sin Ωᵀx] / √p', for frequencies ``Omega`` of shape ``(d, p')``."""

    Omega: Tensor

    def __init__(self, Omega: Tensor) -> None:
        super().__init__()
        self.register_buffer("Omega", Omega)

    def forward(self, x: Tensor) -> Tensor:
        """Features of rows ``x`` ``(n, d)``: ``(n, 2p')``."""
        angles = x @ self.Omega
        scale = self.Omega.shape[1] ** -0.5
        if torch.is_grad_enabled():
            return torch.cat([angles.cos(), angles.sin()], dim=-1).mul(scale)
        features = angles.new_empty(angles.shape[0], 2 * angles.shape[1])
        torch.cos(angles, out=features[:, : angles.shape[1]])
        torch.sin(angles, out=features[:, angles.shape[1] :])
        return features.mul_(scale)


class NystromFeatures(torch.nn.Module):
    """z(x) = Rᵀk(U, x) with RᵀK_UU R = I, for inducing points ``points`` U ``(s, d)``."""

    points: Tensor
    R: Tensor

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__()
        self.kernel = copy.deepcopy(kernel).requires_grad_(False).eval()
        with torch.no_grad():
            R = whitening(gram(self.kernel, points))
        self.register_buffer("points", points)
        self.register_buffer("R", R)

    def forward(self, x: Tensor) -> Tensor:
        """Features of rows ``x`` ``(n, d)``: ``(n, s)``, or fewer where K_UU is singular."""
        return gram(self.kernel, x, self.points) @ self.R


def random_feature_kernel(kernel: Kernel, d: int, num_features: int, seed: int = 0) -> Kernel:
    """A kernel with ``num_features`` random Fourier features in place of every stationary part of ``kernel``.

    Args:
        kernel: RBF or Matérn, scaled, summed, or on top of a feature map; parts with features of their own stay.
        d: the number of input columns.
        num_features: p of each stationary part; an even number.
        seed: of the frequencies.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x = torch.rand(50, 2)
        >>> approximation = random_feature_kernel(RBFKernel(), 2, 2000)
        >>> bool((gram(approximation, x) - gram(RBFKernel(), x)).abs().max() < 0.1)
        True
    """
    if num_features < 2 or num_features % 2:
        raise ValueError(f"Expected an even number of features, cosines and sines, got {num_features}.")
    if has_explicit_features(kernel):
        return kernel
    d = d if kernel.active_dims is None else len(kernel.active_dims)
    if type(kernel) in (RBFKernel, MaternKernel):
        Omega = _frequencies(kernel, d, num_features // 2, seed)
        return FeatureKernel(FourierFeatures(Omega), active_dims=kernel.active_dims)
    if type(kernel) is ScaleKernel:
        base = random_feature_kernel(kernel.base_kernel, d, num_features, seed)
        base.active_dims = None if kernel.active_dims is not None else base.active_dims
        scaled = ScaleKernel(base, active_dims=kernel.active_dims).to(kernel.raw_outputscale)
        scaled.initialize(outputscale=kernel.outputscale.detach())
        return scaled
    if type(kernel) is AdditiveKernel:
        parts = [random_feature_kernel(part, d, num_features, seed + 7 * i) for i, part in enumerate(kernel.kernels)]
        return AdditiveKernel(*parts)
    if type(kernel) is FeatureKernel and kernel.num_features is not None:
        base = random_feature_kernel(kernel.base_kernel, kernel.num_features, num_features, seed)
        return FeatureKernel(kernel.feature_map, base, active_dims=kernel.active_dims)
    raise TypeError(
        f"Expected RBF or Matérn kernels, their scales and sums, or these on a feature map that has been evaluated, "
        f"got {type(kernel).__name__}. Nystrom approximates every kernel."
    )


def _frequencies(kernel: Kernel, d: int, count: int, seed: int) -> Tensor:
    """Ω: Gaussian for RBF; for Matérn of smoothness ν, Student's t with 2ν degrees of freedom."""
    lengthscale: Tensor = kernel.lengthscale.detach().reshape(-1, 1)
    generator = torch.Generator().manual_seed(seed)
    Omega = torch.randn(d, count, generator=generator, dtype=torch.float64)
    if isinstance(kernel, MaternKernel):
        # χ² of 2ν degrees of freedom (1, 3 or 5) as a sum of squares
        chi2 = torch.randn(round(2 * kernel.nu), count, generator=generator, dtype=torch.float64).square().sum(0)
        Omega = Omega * (2.0 * kernel.nu / chi2).sqrt()
    return Omega.to(lengthscale) / lengthscale


def nystrom_kernel(kernel: Kernel, points: Tensor) -> Kernel:
    """The kernel k(x, U) k(U, U)⁻¹ k(U, x') of inducing ``points`` U, with s explicit features.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x = torch.rand(40, 1, dtype=torch.float64)
        >>> approximation = nystrom_kernel(RBFKernel().double(), x[:20])
        >>> bool((gram(approximation, x) - gram(RBFKernel().double(), x)).abs().max() < 1e-4)
        True
    """
    if len(kernel.batch_shape) > 0:
        raise ValueError(f"Expected a kernel without batch shape, got {tuple(kernel.batch_shape)}.")
    points = check_features(points, "points")
    if points.shape[0] > math.isqrt(2**31):
        raise ValueError(f"Expected fewer inducing points, got {points.shape[0]}, whose own matrix would not fit.")
    return FeatureKernel(NystromFeatures(kernel, points))
