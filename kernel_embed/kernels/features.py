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
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from gpytorch.kernels import ConstantKernel, Kernel, LinearKernel, PolynomialKernel, RFFKernel
from torch import Tensor

from ..validation import broadcast_shapes, check_tensor
from .classes import FeatureKernel, check_dtype
from .gram import Function
from .parameters import check_initialized
from .structure import FEATURES, Algebra, Node, batch_shape_of, check_columns, check_kernel, fold, has_explicit_features

MAX_WIDTH = 4096
"""Polynomial and product features beyond this many are not formed by default."""


def explicit_features(kernel: Kernel, x: Tensor, limit: int = MAX_WIDTH) -> Tensor | None:
    """Z of shape ``(*batch, n, p)`` with K = ZZᵀ, or ``None`` if ``kernel`` has no explicit features.

    Args:
        kernel: any GPyTorch kernel.
        x: points of shape ``(n, d)``.
        limit: polynomial and product features are formed only up to this many.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if ``x`` is a single number, or has other columns than the kernel takes.

    Example:
        >>> explicit_features(PolynomialKernel(power=2), torch.randn(10, 2)).shape
        torch.Size([10, 6])
    """
    check_kernel(kernel)
    check_tensor(x, "x")
    if x.dim() == 0:
        raise ValueError("Expected x of shape (n, d), got a single number. Give a row for each point.")
    if not has_explicit_features(kernel):
        return None
    check_columns(kernel, x.shape[-1])
    return _evaluate(kernel, x.clone() if x.is_inference() else x, limit)


class _TooManyFeatures(Exception):
    """More than the limit."""


def _evaluate(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    function = fold(kernel, _Features(limit))
    try:
        return None if function is None else function(x)
    except _TooManyFeatures:
        return None


def resolved_features(kernel: Kernel) -> Function:
    """x ↦ φ(x) for a frozen kernel with explicit features; its structure and parameters are read once."""
    return cast(Function, fold(kernel, _FrozenFeatures(MAX_WIDTH)))


class _Features(Algebra[Function]):
    """x ↦ φ(x)."""

    def __init__(self, limit: int) -> None:
        self.limit = limit

    def leaf(self, node: Node) -> Function | None:
        """x ↦ Z by the registered rule of the kernel; it raises beyond the limit."""
        rule = FEATURES.find(node.kernel)
        if rule is None:
            return None

        def features(x: Tensor) -> Tensor:
            Z = rule(node.kernel, x, self.limit)
            if Z is None:
                raise _TooManyFeatures
            return Z

        return node.on_columns(features)

    def scale(self, node: Node, part: Function) -> Function:
        """√σ² Z."""
        root = node.factor.sqrt()[..., None, None]
        return lambda x: root * part(x)

    def add(self, node: Node, parts: Sequence[Function]) -> Function:
        """K₁ + K₂ = [Z₁ Z₂][Z₁ Z₂]ᵀ."""

        def side_by_side(x: Tensor) -> Tensor:
            Z = [part(x) for part in parts]
            batch = broadcast_shapes(*(z.shape[:-2] for z in Z))
            return torch.cat([z.expand(*batch, *z.shape[-2:]) for z in Z], dim=-1)

        return side_by_side

    def multiply(self, node: Node, parts: Sequence[Function]) -> Function:
        """K₁ ∘ K₂ has the features z₁ᵢ z₂ⱼ."""

        def products(x: Tensor) -> Tensor:
            Z, *others = (part(x) for part in parts)
            for other in others:
                if Z.shape[-1] * other.shape[-1] > self.limit:
                    raise _TooManyFeatures
                Z = (Z.unsqueeze(-1) * other.unsqueeze(-2)).flatten(-2)
            return Z

        return products


class _FrozenFeatures(_Features):
    """Without checks of numbers of features: they are those of the training points."""

    def leaf(self, node: Node) -> Function | None:
        """As in the base class; the features of the κ of a ``FeatureKernel`` are resolved once."""
        kernel, rule = node.kernel, cast(Any, FEATURES.find(node.kernel))
        if type(kernel) is not FeatureKernel or batch_shape_of(kernel):
            return node.on_columns(lambda x: rule(kernel, x, self.limit))
        feature_map, base = kernel.feature_map, kernel.base_kernel
        if base is None:
            return node.on_columns(feature_map)
        inner = resolved_features(base)
        return node.on_columns(lambda x: inner(feature_map(x)))


def _of_map(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    z = kernel.features(x)
    Z = z if kernel.base_kernel is None else _evaluate(kernel.base_kernel, z, limit)
    return None if Z is None else kernel.expanded(Z)


def _constant(kernel: Kernel, x: Tensor, limit: int) -> Tensor:
    constant: Tensor = kernel.constant.to(x).sqrt().unsqueeze(-1)
    return constant.expand(*kernel.batch_shape, x.shape[-2], 1)


def _fourier(kernel: Kernel, x: Tensor, limit: int) -> Tensor:
    check_initialized(kernel)
    check_dtype([kernel.randn_weights], x, f"parameters of {type(kernel).__name__}")
    features: Tensor = kernel._featurize(x, normalize=True)
    return features


def _polynomial(kernel: Kernel, x: Tensor, limit: int) -> Tensor | None:
    """(xᵀx' + c)^q = Σ q! / (a₀! a!) · c^a₀ · x^a x'^a over all exponents with a₀ + Σa = q."""
    q, d = int(kernel.power), x.shape[-1]
    if math.comb(d + q, q) > limit:
        return None
    check_dtype([kernel.offset], x, f"parameters of {type(kernel).__name__}")
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


FEATURES.register(LinearKernel, lambda kernel, x, limit: x * kernel.variance.sqrt())
FEATURES.register(RFFKernel, _fourier)
FEATURES.register(ConstantKernel, _constant)
FEATURES.register(PolynomialKernel, _polynomial, when=lambda k: float(k.power).is_integer() and k.power >= 1)
FEATURES.register(FeatureKernel, _of_map, when=lambda k: k.base_kernel is None or has_explicit_features(k.base_kernel))
