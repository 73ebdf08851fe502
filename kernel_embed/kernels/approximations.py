r"""Kernels with explicit features in place of others: Nyström features at inducing points U, random Fourier features.

.. math::
    z(x) &= (Q \Lambda^{-1/2})^\top k(U, x), & k(U, U) &= Q \Lambda Q^\top \\
    z(x) &= p'^{-1/2} [\cos \Omega^\top x, \sin \Omega^\top x], & p' &= p / 2, \quad
        \omega \sim \text{spectral density of } k
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor

from ..linalg import whitening
from ..validation import all_finite, check_count, check_features, check_finite, check_memory, check_tensor
from .classes import FeatureKernel
from .gram import gram
from .parameters import frozen
from .structure import Algebra, Node, Registry, batch_shape_of, check_columns, check_kernel, fold, has_explicit_features

Spectrum = Callable[[Kernel, int, int, torch.Generator], Tensor]
"""From a kernel, the number d of columns that reach it, a count p' and a generator, to frequencies Ω ``(d, p')``."""
SPECTRA: Registry[Spectrum] = Registry("spectrum")


class NystromFeatures(torch.nn.Module):
    """z(x) = Rᵀk(U, x) with RᵀK_UU R = I, for inducing points ``points`` U ``(s, d)``."""

    points: Tensor
    R: Tensor
    is_deterministic = True

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__()
        check_kernel(kernel)
        if len(batch_shape_of(kernel)) > 0:
            raise ValueError(f"Expected one kernel, got batch shape {tuple(kernel.batch_shape)}. Pass one, kernel[0].")
        points = check_features(points, "points")
        check_memory(points.shape[0], points, 1, "Use fewer inducing points.")
        self.kernel = frozen(kernel).eval()
        with torch.no_grad():
            R = whitening(gram(self.kernel, points))
        self.register_buffer("points", points)
        self.register_buffer("R", R)

    def forward(self, x: Tensor) -> Tensor:
        """Features of rows ``x`` ``(n, d)``: ``(n, s)``, or fewer where K_UU is singular."""
        return gram(self.kernel, x, self.points) @ self.R


def nystrom_kernel(kernel: Kernel, points: Tensor) -> Kernel:
    """The kernel k(x, U) k(U, U)⁻¹ k(U, x') of inducing ``points`` U ``(s, d)``, with s explicit features."""
    return FeatureKernel(NystromFeatures(kernel, points))


class FourierFeatures(torch.nn.Module):
    """z(x) = [cos Ωᵀx, sin Ωᵀx] / √p', for frequencies ``Omega`` of shape ``(d, p')``."""

    Omega: Tensor

    def __init__(self, Omega: Tensor) -> None:
        super().__init__()
        self.register_buffer("Omega", check_features(Omega, "Omega"))

    def forward(self, x: Tensor) -> Tensor:
        """Features of rows ``x`` ``(n, d)``: ``(n, 2p')``."""
        check_tensor(x, "x")
        if x.dim() == 0 or x.shape[-1] != self.Omega.shape[0]:
            raise ValueError(f"Expected x with {self.Omega.shape[0]} columns, got shape {tuple(x.shape)}.")
        p = 2 * self.Omega.shape[1]
        check_memory(x.shape[:-1].numel(), self.Omega, 1, "Use fewer features, or some rows at a time.", p, matrices=2)
        angles = x.to(self.Omega.dtype) @ self.Omega
        if not all_finite(angles):
            check_finite(x, "x")
            check_finite(angles, "the products of x with the frequencies (scale the columns of x)")
        scale = self.Omega.shape[1] ** -0.5
        if torch.is_grad_enabled():
            return torch.cat([angles.cos(), angles.sin()], dim=-1).mul(scale)
        features = angles.new_empty(angles.shape[0], 2 * angles.shape[1])
        torch.cos(angles, out=features[:, : angles.shape[1]])
        torch.sin(angles, out=features[:, angles.shape[1] :])
        return features.mul_(scale)


def random_feature_kernel(kernel: Kernel, d: int, num_features: int, seed: int = 0) -> Kernel:
    """A kernel with ``num_features`` random Fourier features in place of every stationary part of ``kernel``.

    Args:
        kernel: RBF or Matérn, scaled, summed, or on top of a feature map; parts with explicit features are kept.
        d: the number of input columns.
        num_features: p of each stationary part; an even number.
        seed: of the frequencies.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or a count not a whole number.
        ValueError: if ``num_features`` is odd or below 2, or ``d`` does not fit the kernel.

    Example:
        >>> x = torch.rand(50, 2)
        >>> approximation = random_feature_kernel(RBFKernel(), 2, 2000)
        >>> bool((gram(approximation, x) - gram(RBFKernel(), x)).abs().max() < 0.1)
        True
    """
    check_kernel(kernel)
    check_columns(kernel, check_count("d", d))
    if check_count("num_features", num_features, 2) % 2:
        raise ValueError(f"Expected an even number of features, cosines and sines, got {num_features}. Add one.")
    approximation = fold(kernel, _Fourier(d, num_features, check_count("seed", seed, 0, 2**63 - 1)))
    assert approximation is not None, "every node has a value or raises"
    return approximation


class _Fourier(Algebra[Kernel]):
    """The same structure with random features in its stationary leaves; other products have none."""

    def __init__(self, d: int, num_features: int, seed: int) -> None:
        self.d, self.num_features, self.seed = d, num_features, seed

    def leaf(self, node: Node) -> Kernel:
        """The kernel itself if it has explicit features, else its approximation by random features."""
        kernel = node.kernel
        if has_explicit_features(kernel):
            return kernel
        seed = self.seed + 7 * sum(node.positions)  # different frequencies for each part of a sum
        spectrum = SPECTRA.find(kernel)
        if spectrum is not None:
            Omega = spectrum(kernel, node.width(self.d), self.num_features // 2, torch.Generator().manual_seed(seed))
            return FeatureKernel(FourierFeatures(Omega), active_dims=node.active_dims)
        if isinstance(kernel, FeatureKernel) and kernel.num_features is not None:
            assert kernel.base_kernel is not None, "the inner product has explicit features"
            base = random_feature_kernel(kernel.base_kernel, kernel.num_features, self.num_features, seed)
            return FeatureKernel(kernel.feature_map, base, active_dims=node.active_dims)
        raise _unsupported(kernel)

    def scale(self, node: Node, part: Kernel) -> Kernel:
        """σ² times the approximation, or the kernel itself if it has explicit features."""
        if has_explicit_features(node.kernel):
            return node.kernel
        scaled = ScaleKernel(part, active_dims=node.active_dims).to(node.kernel.raw_outputscale)
        scaled.initialize(outputscale=node.factor.detach())
        return scaled

    def add(self, node: Node, parts: Sequence[Kernel]) -> Kernel:
        """The sum of the approximations, or the kernel itself if it has explicit features."""
        if has_explicit_features(node.kernel):
            return node.kernel
        total = AdditiveKernel(*parts)
        total.active_dims = node.active_dims
        return total

    def multiply(self, node: Node, parts: Sequence[Kernel]) -> Kernel:
        """The kernel itself if it has explicit features; other products raise a ``TypeError``."""
        if has_explicit_features(node.kernel):
            return node.kernel
        raise _unsupported(node.kernel)


def _unsupported(kernel: Kernel) -> TypeError:
    return TypeError(
        "Expected RBF or Matérn kernels, their scales and sums, or these on a feature map that has been evaluated, "
        f"got {type(kernel).__name__}. Nystrom approximates every kernel."
    )


def _frequencies(kernel: Kernel, d: int, count: int, generator: torch.Generator) -> Tensor:
    """Ω / ℓ: Gaussian for RBF, and Student's t with 2ν degrees of freedom for Matérn of smoothness ν."""
    normal = functools.partial(torch.randn, generator=generator, dtype=torch.float64, device="cpu")
    Omega: Tensor = normal(d, count)
    if isinstance(kernel, MaternKernel):
        # χ² of 2ν degrees of freedom (1, 3 or 5) as a sum of squares
        chi2 = normal(round(2 * kernel.nu), count).square().sum(0)
        Omega = Omega * (2.0 * kernel.nu / chi2).sqrt()
    lengthscale: Tensor = kernel.lengthscale.detach().reshape(-1, 1)
    return Omega.to(lengthscale) / lengthscale


SPECTRA.register(RBFKernel, _frequencies)
SPECTRA.register(MaternKernel, _frequencies)
