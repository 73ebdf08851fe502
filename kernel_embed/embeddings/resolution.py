"""A frozen kernel as one function of new points, with everything that does not depend on them computed once."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import Algebra, FeatureKernel, check_width, explicit_features, fold
from ..kernels.features.explicit import FEATURES, MAX_WIDTH
from ..kernels.gram import GRAMS, by_gpytorch
from ..kernels.profiles import RadialProfile, radial_of
from ..kernels.radial import radial_gram
from ..kernels.structure import Node, batch_shape_of

Function = Callable[[Tensor], Tensor]


def is_fixed(kernel: Kernel, *tensors: Tensor | None) -> bool:
    """Whether nothing learns, and no feature map is random or changes by being evaluated, as in training mode."""
    learns = any(parameter.requires_grad for parameter in kernel.parameters())
    learns = learns or any(tensor is not None and tensor.requires_grad for tensor in tensors)
    maps = [part.feature_map for part in kernel.modules() if isinstance(part, FeatureKernel)]
    changes = any(
        part.training and not getattr(part, "is_deterministic", False) for map in maps for part in map.modules()
    )
    return not learns and not changes


def resolved_gram(kernel: Kernel, points: Tensor) -> Function:
    """x ↦ k(x, points) for a frozen kernel."""
    return fold(kernel, _Gram(points)) or (lambda x: by_gpytorch(kernel, x, points))


def resolved_features(kernel: Kernel) -> Function:
    """x ↦ φ(x) for a frozen kernel with explicit features."""
    features = None if batch_shape_of(kernel) else fold(kernel, _Features())
    return features or (lambda x: cast(Tensor, explicit_features(kernel, x)))


def _selected(node: Node, function: Function) -> Function:
    """``function`` of the columns that reach the kernel of ``node``."""
    columns = node.columns
    return function if columns is None else lambda x: function(x.index_select(-1, columns))


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
            return _selected(node, lambda x: rule(kernel, x, points))
        radial = radial_of(kernel)
        if radial is None or not isinstance(radial.profile, RadialProfile):
            return None
        metric, profile = radial.metric, radial.profile
        scaled = metric.scaled(points)
        return _selected(node, lambda x: radial_gram(metric.scaled(x), scaled, profile, profile.rough))

    def _mapped(self, node: Node, points: Tensor) -> Function:
        """κ(φ(x), φ(points))."""
        feature_map, base = node.kernel.feature_map, node.kernel.base_kernel
        z = node.kernel.features(points)
        inner = (lambda features: features @ z.mT) if base is None else resolved_gram(base, z)

        def mapped(x: Tensor) -> Tensor:
            features = feature_map(x)
            if features.shape[-1] != z.shape[-1]:
                check_width(features, z.shape[-1])
            return inner(features)

        return _selected(node, mapped)

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
                return _selected(node, feature_map)
            inner = resolved_features(base)
            return _selected(node, lambda x: inner(feature_map(x)))
        return None if rule is None else _selected(node, lambda x: cast(Tensor, rule(kernel, x, MAX_WIDTH)))

    def scale(self, node: Node, part: Function) -> Function:
        """σ φ."""
        root = node.factor.sqrt()
        return lambda x: root * part(x)

    def add(self, node: Node, parts: Sequence[Function]) -> Function:
        """[φ₁, φ₂]."""
        return lambda x: torch.cat([part(x) for part in parts], dim=-1)
