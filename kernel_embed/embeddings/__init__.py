"""Embeddings: parameters, and ``condition(x, y)`` that turns them into answers."""

from .conditional import ConditionalEmbedding, ConditionedEmbedding
from .multiclass import ConditionedMulticlass, MulticlassEmbedding, clip_normalize

__all__ = [
    "ConditionalEmbedding",
    "ConditionedEmbedding",
    "ConditionedMulticlass",
    "MulticlassEmbedding",
    "clip_normalize",
]
