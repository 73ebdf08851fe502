"""Embeddings: parameters, and ``condition(x, y)`` that turns them into answers."""

from .conditional import ConditionalEmbedding, ConditionedEmbedding, in_blocks
from .multiclass import ConditionedMulticlass, MulticlassAnswers, MulticlassEmbedding, clip_normalize

__all__ = [
    "ConditionalEmbedding",
    "ConditionedEmbedding",
    "ConditionedMulticlass",
    "MulticlassAnswers",
    "MulticlassEmbedding",
    "clip_normalize",
    "in_blocks",
]
