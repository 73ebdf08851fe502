"""The linear system K + ηW⁻¹ of a conditional embedding: formed from a kernel and rows, and extended by rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import explicit_features, gram
from ..kernels.features import MAX_WIDTH
from ..kernels.gram import evaluate_gram
from ..kernels.structure import batch_shape_of, check_columns
from ..linalg import DenseSystem, FeatureSystem, LinearSystem, extended
from ..linalg.cholesky import joined_weights
from ..validation import check_memory

if TYPE_CHECKING:
    from .conditional import ConditionedEmbedding

MEMORY_REMEDY = (
    "Use kernel_embed.approximate(embedding, x, y, method=Nystrom(1000)), whose cost is linear in n, learn from "
    "mini-batches with fit(..., batch_size=500), or use fewer rows."
)


def kernel_system(kernel: Kernel, x: Tensor, ridge: Tensor, weights: Tensor | None = None) -> LinearSystem:
    """K + ηW⁻¹ for the rows of ``x``, through explicit features where ``kernel`` has fewer of them than rows."""
    n = x.shape[-2]
    Z = explicit_features(kernel, x, limit=min(MAX_WIDTH, n))
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
