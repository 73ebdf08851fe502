r"""How predictors see new points: kernel values k(x, x_i), or the explicit features φ(x) of the kernel.

.. math::  \mathbf f(x) = \mathbf C^\top \boldsymbol\varphi(x)

A frozen kernel is resolved once: its structure, the rules of its parts, its parameters and what it computes of the
training points become one function of x. A kernel that still learns is evaluated by :func:`kernel_embed.kernels.gram`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import operator
from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import Algebra, FeatureKernel, check_width, explicit_features, fold, gram, has_explicit_features
from ..kernels.features.explicit import FEATURES, MAX_WIDTH, FeatureRule
from ..kernels.gram import GRAMS, by_gpytorch, finite_values
from ..kernels.profiles import RadialProfile, radial_of
from ..kernels.radial import radial_gram
from ..kernels.structure import Node, batch_shape_of
from ..validation import check_dense, check_features, check_question

BLOCK_NUMBERS = 2**23
"""Kernel values in a block of :func:`in_blocks`: 64 MiB in float64."""

FEATURE_NUMBERS = 2**19
"""Features in a block: 4 MiB in float64, so that they are used while they are still in the cache."""

Function = Callable[[Tensor], Tensor]


class Representation(abc.ABC):
    """A function from points ``(t, d)`` to ``(*batch, t, p)``.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from kernel_embed.embeddings import KernelValues
        >>> representation = KernelValues(RBFKernel(), torch.rand(5, 2))
        >>> representation(torch.rand(3, 2)).shape
        torch.Size([3, 5])
    """

    kernel: Kernel
    block_numbers: int
    """Numbers of the representation that are held at once where points are many."""

    def __call__(self, x: Tensor) -> Tensor:
        """The representation of the points ``x``."""
        return self.values(self.check(x))

    @abc.abstractmethod
    def check(self, x: Tensor) -> Tensor:
        """New points as a tensor that :meth:`values` takes."""

    @abc.abstractmethod
    def values(self, x: Tensor) -> Tensor:
        """The representation of checked points."""

    def times(self, coefficients: Tensor) -> Function | None:
        """x ↦ φ(x) C with the kernel resolved; ``None`` for kernels that learn or are random."""
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class KernelValues(Representation):
    """k(x, x_i) for the ``points`` x_i ``(s, d)``.

    Attributes:
        kernel: k.
        points: the x_i.
        block_numbers: how many numbers are held at once where points are many.

    Raises:
        ValueError: when called, if ``x`` has another number of columns than ``points``, or values that are not
            finite.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from kernel_embed.embeddings import KernelValues
        >>> KernelValues(RBFKernel(), torch.rand(5, 2))(torch.rand(3, 2)).shape
        torch.Size([3, 5])
    """

    kernel: Kernel
    points: Tensor
    block_numbers: int = BLOCK_NUMBERS

    def check(self, x: Tensor) -> Tensor:
        """Points with the columns, the dtype and the device of ``points``."""
        return check_question(x, self.points)

    def values(self, x: Tensor) -> Tensor:
        """``(*batch, t, s)``."""
        return gram(self.kernel, x, self.points).to(self.points)

    def times(self, coefficients: Tensor) -> Function | None:
        """Σ_i k(x, x_i) C_i; where the kernel has features Z, as φ(x) (ZᵀC)."""
        if not is_fixed(self.kernel, self.points, coefficients):
            return None
        points = self.points.detach()
        Z = explicit_features(self.kernel, points) if has_explicit_features(self.kernel) else None
        if Z is not None:
            return _product(resolved_features(self.kernel), Z.mT.to(points) @ coefficients, points)
        return _product(resolved_gram(self.kernel, points), coefficients, points)


@dataclasses.dataclass(frozen=True, eq=False)
class KernelFeatures(Representation):
    """The explicit features of ``kernel``, ``num_features`` of them; ``like`` is a tensor of data, if any.

    Attributes:
        kernel: a kernel with explicit features.
        num_features: p.
        like: data whose dtype, device and columns new points must share.
        block_numbers: how many numbers are held at once where points are many.

    Raises:
        ValueError: when called, if ``x`` has another number of columns than the data, or values that are not finite;
            or if the kernel gives another number of features.

    Example:
        >>> from gpytorch.kernels import LinearKernel
        >>> KernelFeatures(LinearKernel(), 2)(torch.randn(3, 2)).shape
        torch.Size([3, 2])
    """

    kernel: Kernel
    num_features: int
    like: Tensor | None = None
    block_numbers: int = FEATURE_NUMBERS

    def check(self, x: Tensor) -> Tensor:
        """Points like the data, or floating points where no data are known."""
        if self.like is not None:
            return check_question(x, self.like)
        dtype = next((parameter.dtype for parameter in self.kernel.parameters()), None)
        return check_features(x, integers_as=dtype, may_be_empty=True)

    def values(self, x: Tensor) -> Tensor:
        """``(*batch, t, p)``."""
        if x.shape[-2] == 0:
            return x.new_zeros(*self.kernel.batch_shape, 0, self.num_features)
        Z = explicit_features(self.kernel, x)
        assert Z is not None
        check_width(Z, self.num_features)
        return Z.to(x)

    def times(self, coefficients: Tensor) -> Function | None:
        """φ(x) C."""
        if not is_fixed(self.kernel, self.like, coefficients):
            return None
        return _product(resolved_features(self.kernel), coefficients, self.like)


def is_fixed(kernel: Kernel, *tensors: Tensor | None) -> bool:
    """Whether nothing learns, and no feature map is random or changes by being evaluated, as in training mode."""
    learns = any(parameter.requires_grad for parameter in kernel.parameters())
    learns = learns or any(tensor is not None and tensor.requires_grad for tensor in tensors)
    maps = [part.feature_map for part in kernel.modules() if isinstance(part, FeatureKernel)]
    changes = any(
        part.training and not getattr(part, "is_deterministic", False) for map in maps for part in map.modules()
    )
    return not learns and not changes


def _product(values: Function, coefficients: Tensor, like: Tensor | None) -> Function:
    p = coefficients.shape[-2]

    def product(x: Tensor) -> Tensor:
        representation = values(x)
        if representation.shape[-1] != p:
            check_width(representation, p)
        if like is not None:
            representation = representation.to(like)
        return representation @ coefficients.to(representation.dtype)

    return product


def resolved_gram(kernel: Kernel, points: Tensor) -> Function:
    """x ↦ k(x, points) for a frozen kernel."""
    return fold(kernel, _Gram(points)) or functools.partial(_by_gpytorch, kernel, points)


def resolved_features(kernel: Kernel) -> Function:
    """x ↦ φ(x) for a frozen kernel with explicit features."""
    features = None if batch_shape_of(kernel) else fold(kernel, _Features())
    return features or functools.partial(_explicit, kernel)


def _explicit(kernel: Kernel, x: Tensor) -> Tensor:
    Z = explicit_features(kernel, x)
    assert Z is not None
    return Z


def _by_gpytorch(kernel: Kernel, points: Tensor, x: Tensor) -> Tensor:
    return by_gpytorch(kernel, x, points)


class _Gram(Algebra[Function]):
    """k(·, points), with the scaled or mapped points computed once."""

    def __init__(self, points: Tensor) -> None:
        self.points = points

    def leaf(self, node: Node) -> Function | None:
        """By the feature map, the registered rule or the radial profile of the kernel."""
        kernel, points, rule = node.kernel, node.select(self.points), GRAMS.find(node.kernel)
        if type(kernel) is FeatureKernel:
            return self._mapped(node, points)
        if rule is not None:
            return lambda x: rule(kernel, node.select(x), points)
        radial = radial_of(kernel)
        if radial is None or not isinstance(radial.profile, RadialProfile):
            return None
        metric, profile = radial.metric, radial.profile
        scaled = metric.scaled(points)
        return lambda x: radial_gram(metric.scaled(node.select(x)), scaled, profile, profile.rough)

    def _mapped(self, node: Node, points: Tensor) -> Function:
        """κ(φ(x), φ(points))."""
        feature_map, base = node.kernel.feature_map, node.kernel.base_kernel
        z = node.kernel.features(points)
        inner = (lambda features: features @ z.mT) if base is None else resolved_gram(base, z)

        def mapped(x: Tensor) -> Tensor:
            features = feature_map(node.select(x))
            if features.shape[-1] != z.shape[-1]:
                check_width(features, z.shape[-1])
            return inner(features)

        return mapped

    def unknown(self, node: Node) -> Function:
        """As GPyTorch evaluates it."""
        points = node.select_inputs(self.points)
        return lambda x: by_gpytorch(node.kernel, node.select_inputs(x), points)

    def scale(self, node: Node, part: Function) -> Function:
        """σ² k."""
        factor = node.factor[..., None, None]
        return lambda x: factor * part(x)

    def add(self, node: Node, parts: Sequence[Function]) -> Function:
        """k₁ + k₂."""
        return lambda x: functools.reduce(operator.add, [part(x) for part in parts])

    def multiply(self, node: Node, parts: Sequence[Function]) -> Function:
        """k₁ k₂."""
        return lambda x: functools.reduce(operator.mul, [part(x) for part in parts])


class _Features(Algebra[Function]):
    """φ of kernels without batches and products."""

    def leaf(self, node: Node) -> Function | None:
        """By the feature map or the registered rule of the kernel."""
        kernel, rule = node.kernel, FEATURES.find(node.kernel)
        if type(kernel) is FeatureKernel:
            feature_map, base = kernel.feature_map, kernel.base_kernel
            if base is None:
                return lambda x: feature_map(node.select(x))
            inner = resolved_features(base)
            return lambda x: inner(feature_map(node.select(x)))
        return None if rule is None else functools.partial(_by_rule, rule, node)

    def scale(self, node: Node, part: Function) -> Function:
        """σ φ."""
        root = node.factor.sqrt()
        return lambda x: root * part(x)

    def add(self, node: Node, parts: Sequence[Function]) -> Function:
        """[φ₁, φ₂]."""
        return lambda x: torch.cat([part(x) for part in parts], dim=-1)


def _by_rule(rule: FeatureRule, node: Node, x: Tensor) -> Tensor:
    Z = rule(node.kernel, node.select(x), MAX_WIDTH)
    assert Z is not None
    return Z


class LinearMap:
    """x ↦ φ(x) C for checked points ``x``, a block of rows at a time where no gradient is needed.

    Args:
        representation: φ.
        coefficients: C, ``(*batch, p, m)``.

    Attributes:
        resolved: whether the kernel was resolved, so that the map may be kept.
    """

    def __init__(self, representation: Representation, coefficients: Tensor) -> None:
        self.representation, self.coefficients = representation, coefficients
        self.rows = max(1, representation.block_numbers // coefficients.shape[-2])
        with torch.inference_mode(False), torch.no_grad():  # gradients in x may be needed later
            self._product = representation.times(coefficients)
        self.resolved = self._product is not None

    def __call__(self, x: Tensor) -> Tensor:
        """``(*batch, t, m)``.

        Raises:
            NanError: if values are not finite.
        """
        if self._product is None:
            return in_blocks(self.representation.values, x, self.coefficients, self.rows * self.coefficients.shape[-2])
        if x.shape[0] == 0:
            return self.coefficients.new_zeros(*self.coefficients.shape[:-2], 0, self.coefficients.shape[-1])
        needs_gradient = x.requires_grad and torch.is_grad_enabled()
        values = self._product(x) if needs_gradient else by_rows(self._product, x, self.rows)
        if not bool(torch.isfinite(values.detach().sum())):
            finite_values(values, self.representation.kernel)
        return values


def in_blocks(representation: Function, x: Tensor, coefficients: Tensor, numbers: int | None = None) -> Tensor:
    """``representation(x) @ coefficients``, formed a block of rows at a time where no gradient is needed.

    At most about ``numbers`` numbers of the representation are held at once, so that one call can predict for millions
    of points.

    Args:
        representation: φ, a function from ``(t, d)`` to ``(*batch, t, p)``.
        x: points, ``(t, d)``.
        coefficients: ``(*batch, p, m)``.
        numbers: how many numbers of the representation to hold at once.

    Returns:
        ``(*batch, t, m)``.

    Raises:
        TypeError: if ``x`` is sparse, nested or without values.

    Example:
        >>> from kernel_embed.embeddings import in_blocks
        >>> in_blocks(torch.sin, torch.zeros(1000, 3), torch.ones(3, 2), numbers=300).shape
        torch.Size([1000, 2])
    """
    if isinstance(x, Tensor):
        check_dense(x, "x")
    limit: int = getattr(representation, "block_numbers", BLOCK_NUMBERS) if numbers is None else numbers
    rows = max(1, limit // coefficients.shape[-2])

    def product(x: Tensor) -> Tensor:
        values = representation(x)
        return values @ coefficients.to(values.dtype)

    if torch.is_grad_enabled() or not isinstance(x, Tensor) or x.dim() == 0:
        return product(x)
    return by_rows(product, x, rows)


def by_rows(function: Function, x: Tensor, rows: int) -> Tensor:
    """``function(x)`` ``(*batch, t, m)`` for ``rows`` points at a time."""
    if x.shape[0] <= rows:
        return function(x)
    first = function(x[:rows])
    values = first.new_empty(*first.shape[:-2], x.shape[0], first.shape[-1])
    values[..., :rows, :] = first
    for start in range(rows, x.shape[0], rows):
        values[..., start : start + rows, :] = function(x[start : start + rows])
    return values
