r"""Explicit features :math:`Z` with :math:`K = Z Z^\top` (eq. 71), read off the structure of a kernel.

================================  =====================================================================
kernel                            features
================================  =====================================================================
``FeatureKernel(φ)``              φ(x); with a base kernel κ that has features itself, those of κ at φ(x)
``LinearKernel``                  √v · x
``RFFKernel``                     the cosines and sines it is made of
``PolynomialKernel``              all monomials: √(q! / (a₀! a!) · c^a₀) · x^a with a₀ + Σa = q
``ConstantKernel``                √c
``ScaleKernel``                   √σ² times those of its base
``AdditiveKernel``                those of its parts, side by side
``ProductKernel``                 products of one feature of each part
================================  =====================================================================

Other kernels, and sums that contain one of them, have no finite features.

**Nyström features** of a kernel at inducing points U are

.. math::
    z(x) = (Q \Lambda^{-1/2})^\top k(U, x), \qquad k(U, U) = Q \Lambda Q^\top
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from gpytorch.kernels import ConstantKernel, Kernel, LinearKernel, PolynomialKernel, RFFKernel
from torch import Tensor

from ...linalg import whitening
from ...validation import broadcast_shapes, check_features, check_tensor
from ..classes.feature import FeatureKernel
from ..gram import FEATURES, gram, has_explicit_features
from ..initialization import check_initialized
from ..parameters import frozen
from ..structure import Algebra, Node, batch_shape_of, check_columns, check_kernel, fold

MAX_WIDTH = 4096
"""Polynomial and product features beyond this many are not formed by default."""


def explicit_features(kernel: Kernel, x: Tensor, limit: int = MAX_WIDTH) -> Tensor | None:
    """Z of shape ``(*batch, n, p)`` with K = ZZᵀ, or ``None`` if ``kernel`` has no explicit features.

    Args:
        kernel: any GPyTorch kernel.
        x: points of shape ``(n, d)``.
        limit: polynomial and product features are formed only up to this many.

    Returns:
        The features, differentiable in the kernel's parameters, or ``None``.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if ``x`` is a single number, or has other columns than the kernel takes.

    Example:
        >>> from gpytorch.kernels import PolynomialKernel, RBFKernel
        >>> x = torch.randn(10, 2)
        >>> Z = explicit_features(PolynomialKernel(power=2), x)
        >>> Z.shape, bool(torch.allclose(Z @ Z.T, PolynomialKernel(power=2)(x).to_dense(), atol=1e-5))
        (torch.Size([10, 6]), True)
        >>> explicit_features(RBFKernel(), x) is None
        True
    """
    check_kernel(kernel)
    check_tensor(x, "x")
    if x.dim() == 0:
        raise ValueError("Expected x of shape (n, d), got a single number. Give a row for each point.")
    if not has_explicit_features(kernel):
        return None
    check_columns(kernel, x.shape[-1])
    x = x.clone() if x.is_inference() else x
    return fold(kernel, _Features(x, limit))


class _Features(Algebra[Tensor]):
    def __init__(self, x: Tensor, limit: int) -> None:
        self.x, self.limit = x, limit

    def leaf(self, node: Node) -> Tensor | None:
        """Z by the rule of the class."""
        rule = FEATURES.find(node.kernel)
        return None if rule is None else rule(node.kernel, node.select(self.x), self.limit)

    def scale(self, node: Node, part: Tensor) -> Tensor:
        """σZ."""
        return node.factor.sqrt()[..., None, None] * part

    def add(self, node: Node, parts: Sequence[Tensor]) -> Tensor:
        """K₁ + K₂ = [Z₁ Z₂][Z₁ Z₂]ᵀ."""
        batch = broadcast_shapes(*(Z.shape[:-2] for Z in parts))
        return torch.cat([Z.expand(*batch, *Z.shape[-2:]) for Z in parts], dim=-1)

    def multiply(self, node: Node, parts: Sequence[Tensor]) -> Tensor | None:
        """K₁ ∘ K₂ has the features z₁ᵢ z₂ⱼ."""
        if math.prod(Z.shape[-1] for Z in parts) > self.limit:
            return None
        product = parts[0]
        for Z in parts[1:]:
            product = (product.unsqueeze(-1) * Z.unsqueeze(-2)).flatten(-2)
        return product


def _of_map(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    z = kernel.features(x)
    Z = z if kernel.base_kernel is None else fold(kernel.base_kernel, _Features(z, limit))
    return None if Z is None else Z.expand(*broadcast_shapes(batch_shape_of(kernel), Z.shape[:-2]), *Z.shape[-2:])


def _linear(kernel: Kernel, x: Tensor, limit: int) -> Tensor:
    features: Tensor = x * kernel.variance.sqrt()
    return features


def _constant(kernel: Kernel, x: Tensor, limit: int) -> Tensor:
    constant: Tensor = kernel.constant.to(x).sqrt().unsqueeze(-1)
    return constant.expand(*kernel.batch_shape, x.shape[-2], 1)


def _fourier(kernel: Kernel, x: Tensor, limit: int) -> Tensor:
    check_initialized(kernel)
    _check_dtype(kernel, kernel.randn_weights, x)
    features: Tensor = kernel._featurize(x, normalize=True)
    return features


def _check_dtype(kernel: Kernel, own: Tensor, x: Tensor) -> None:
    if own.dtype != x.dtype:
        raise TypeError(
            f"Expected the parameters of {type(kernel).__name__} in the dtype of x, {x.dtype}, got {own.dtype}. "
            "Convert the embedding with embedding.to(x.dtype), or let kernel_embed.fit do so."
        )


def _polynomial(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    """(xᵀx' + c)^q = Σ q! / (a₀! a!) · c^a₀ · x^a x'^a over all exponents with a₀ + Σa = q."""
    q, d = int(kernel.power), x.shape[-1]
    if math.comb(d + q, q) > limit:
        return None
    _check_dtype(kernel, kernel.offset, x)
    c: Tensor = kernel.offset.unsqueeze(-1)
    columns = []
    for degree in range(q + 1):
        rest = math.factorial(q) / math.factorial(q - degree)
        # c^(a₀/2), and exactly 1 for a₀ = 0 also where c = 0
        root = c ** (0.5 * (q - degree)) if degree < q else torch.ones_like(c)
        for factors in itertools.combinations_with_replacement(range(d), degree):
            ways = rest / math.prod(math.factorial(factors.count(j)) for j in set(factors))
            monomial = x[..., list(factors)].prod(dim=-1, keepdim=True)
            columns.append(math.sqrt(ways) * root * monomial)
    return torch.cat(columns, dim=-1)


FEATURES.register(LinearKernel, _linear)
FEATURES.register(RFFKernel, _fourier)
FEATURES.register(ConstantKernel, _constant)
FEATURES.register(PolynomialKernel, _polynomial, when=lambda k: float(k.power).is_integer() and k.power >= 1)
FEATURES.register(FeatureKernel, _of_map, when=lambda k: k.base_kernel is None or has_explicit_features(k.base_kernel))


class NystromFeatures(torch.nn.Module):
    """z(x) = Rᵀk(U, x) with RᵀK_UU R = I, for inducing points ``points`` U ``(s, d)``."""

    points: Tensor
    R: Tensor
    is_deterministic = True

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__()
        check_kernel(kernel)
        if len(batch_shape_of(kernel)) > 0:
            raise ValueError(
                f"Expected a kernel without batch shape, got {tuple(kernel.batch_shape)}. "
                "Approximate each kernel of the batch alone."
            )
        points = check_features(points, "points")
        self.kernel = frozen(kernel).eval()
        with torch.no_grad():
            R = whitening(gram(self.kernel, points))
        self.register_buffer("points", points)
        self.register_buffer("R", R)

    def forward(self, x: Tensor) -> Tensor:
        """Features of rows ``x`` ``(n, d)``: ``(n, s)``, or fewer where K_UU is singular."""
        return gram(self.kernel, x, self.points) @ self.R


def nystrom_kernel(kernel: Kernel, points: Tensor) -> Kernel:
    """The kernel k(x, U) k(U, U)⁻¹ k(U, x') of inducing ``points`` U, with s explicit features.

    Args:
        kernel: any GPyTorch kernel.
        points: U, ``(s, d)``.

    Returns:
        A kernel with explicit features.

    Raises:
        TypeError: if ``points`` is not a tensor of real numbers.
        ValueError: if there are more points than a matrix of them can hold in memory, none, or values that are not
            finite.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x = torch.rand(40, 1, dtype=torch.float64)
        >>> approximation = nystrom_kernel(RBFKernel().double(), x[:20])
        >>> bool((gram(approximation, x) - gram(RBFKernel().double(), x)).abs().max() < 1e-4)
        True
    """
    points = check_features(points, "points")
    if points.shape[0] > math.isqrt(2**31):
        raise ValueError(f"The matrix of {points.shape[0]} inducing points does not fit in memory. Use fewer points.")
    return FeatureKernel(NystromFeatures(kernel, points))
