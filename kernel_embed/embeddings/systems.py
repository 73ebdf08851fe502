"""More rows for the linear system of a conditional embedding, with its ridge η = nλ fixed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..kernels import gram
from ..linalg import DenseSystem, FeatureSystem, LinearSystem, extended
from ..linalg.cholesky import joined_weights

if TYPE_CHECKING:
    from .conditional import ConditionedEmbedding


def updated_system(conditioned: ConditionedEmbedding, x: Tensor, weights: Tensor | None) -> LinearSystem:
    old, n, t = conditioned.system, conditioned.num_data, len(x)
    joined = joined_weights(old.weights, weights, n, t, conditioned.x)
    if isinstance(old, FeatureSystem):
        return FeatureSystem(torch.cat([old.Z, conditioned.representation(x)], dim=-2), old.ridge, joined)
    if not isinstance(old, DenseSystem):
        raise TypeError(
            f"Expected an embedding with its own factor, got one solved by {type(old).__name__}. Condition it anew on "
            "all rows."
        )
    kernel = conditioned.embedding.kernel
    B, D = gram(kernel, conditioned.x, x).to(conditioned.x), gram(kernel, x).to(conditioned.x)
    return extended(old, B, D, weights)
