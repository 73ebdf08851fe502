"""More rows for an embedding that has its data: the ridge η = nλ is held, so that λ falls as n grows."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from ..kernels import gram
from ..kernels.frozen import frozen
from ..linalg import DenseSystem, FeatureSystem, LinearSystem, extended
from ..linalg.cholesky import joined_weights
from ..validation import check_question

if TYPE_CHECKING:
    from .conditional import ConditionedEmbedding

C = TypeVar("C", bound="ConditionedEmbedding")


@torch.no_grad()
def updated(conditioned: C, x: Tensor, y: Tensor, weights: Tensor | None = None) -> C:
    """``conditioned`` with the rows ``x``, ``y`` too; see :meth:`ConditionedEmbedding.updated`."""
    x, y, weights = conditioned.embedding.checked(check_question(x, conditioned.x), y, weights)
    embedding, old = frozen(conditioned.embedding), conditioned.system
    system = _updated_system(conditioned, x, weights)
    all_y = torch.cat([_alike(conditioned.y, y, conditioned), _alike(y, conditioned.y, conditioned)])
    added = len(x) if weights is None else float(weights.sum())
    embedding.regularization = (old.ridge / (conditioned.total_weight + added)).to(embedding.regularization)
    return type(conditioned)(embedding, torch.cat([conditioned.x, x]), all_y, system)


def _updated_system(conditioned: ConditionedEmbedding, x: Tensor, weights: Tensor | None) -> LinearSystem:
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


def _alike(y: Tensor, other: Tensor, conditioned: ConditionedEmbedding) -> Tensor:
    """Class numbers as soft labels where the others are soft."""
    return y if y.dim() == other.dim() else conditioned.embedding.targets(y, conditioned.x)
