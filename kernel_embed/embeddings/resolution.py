"""A kernel resolved once: the linear system K + ηW⁻¹ of its rows, and a frozen kernel as one function of new points."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, cast

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import Algebra, FeatureKernel, check_width, explicit_features, fold, gram
from ..kernels.features.explicit import MAX_WIDTH
from ..kernels.gram import FEATURES, GRAMS, by_gpytorch, evaluate_gram, has_explicit_features
from ..kernels.profiles import RadialProfile, radial_of
from ..kernels.radial import radial_gram
from ..kernels.structure import Node, batch_shape_of, check_columns
from ..linalg import DenseSystem, FeatureSystem, LinearSystem, extended
from ..linalg.cholesky import joined_weights
from ..validation import check_memory

if TYPE_CHECKING:
    from .conditional import ConditionedEmbedding


Function = Callable[[Tensor], Tensor]


def is_fixed(kernel: Kernel, *tensors: Tensor | None) -> bool:
    """Whether no parameter is trainable, and no feature map is random or stateful, as in training mode."""
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


MEMORY_REMEDY = (
    "Use kernel_embed.approximate(embedding, x, y, method=Nystrom(1000)), whose cost is linear in n, learn from "
    "mini-batches with fit(..., batch_size=500), or use fewer rows."
)


def kernel_system(kernel: Kernel, x: Tensor, ridge: Tensor, weights: Tensor | None = None) -> LinearSystem:
    """K + ηW⁻¹ for the rows of ``x``, through explicit features where ``kernel`` has fewer of them than rows."""
    n = x.shape[-2]
    Z = explicit_features(kernel, x, limit=min(MAX_WIDTH, n)) if has_explicit_features(kernel) else None
    if Z is not None and Z.shape[-1] < n:
        return FeatureSystem(Z.to(x), ridge, weights)
    check_memory(n, x, batch_shape_of(kernel).numel(), MEMORY_REMEDY)
    check_columns(kernel, x.shape[-1])
    K = (evaluate_gram(kernel, x.clone() if x.is_inference() else x) if Z is None else Z @ Z.mT).to(x)
    if K.shape[-2:] != (n, n):
        raise ValueError(
            f"Expected one kernel value for each pair of the {n} rows of x, got a matrix of shape "
            f"{tuple(K.shape[-2:])} from {type(kernel).__name__}. Kernels with several outputs for each input have no "
            "conditional embedding."
        )
    return DenseSystem(K, ridge, weights)


def updated_system(conditioned: ConditionedEmbedding, x: Tensor, weights: Tensor | None) -> LinearSystem:
    """The system of ``conditioned`` with more rows ``x``, and its ridge η = nλ fixed."""
    old, n, t = conditioned.system, conditioned.num_data, len(x)
    joined = joined_weights(old.weights, weights, n, t, conditioned.x)
    if isinstance(old, FeatureSystem):
        return FeatureSystem(torch.cat([old.Z, conditioned.representation(x)], dim=-2), old.ridge, joined)
    if not isinstance(old, DenseSystem):
        raise TypeError(f"A solution by {type(old).__name__} cannot be extended. Condition again on all rows.")
    kernel = conditioned.embedding.kernel
    B, D = gram(kernel, conditioned.x, x).to(conditioned.x), gram(kernel, x).to(conditioned.x)
    return extended(old, B, D, weights)
