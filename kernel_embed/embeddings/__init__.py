"""Embeddings: parameters, and ``condition(x, y)`` that turns them into answers."""

from .bayesian import BayesianMeanEmbedding, ConditionedMeanEmbedding
from .conditional import ConditionalEmbedding, ConditionedEmbedding, in_blocks
from .mean import MeanEmbedding, WeightedEmbedding
from .multiclass import ConditionedMulticlass, MulticlassAnswers, MulticlassEmbedding, clip_normalize
from .shrinkage import ShrinkageMeanEmbedding
from .witness import SquaredDistancePosterior, Witness

__all__ = [
    "BayesianMeanEmbedding",
    "ConditionalEmbedding",
    "ConditionedEmbedding",
    "ConditionedMeanEmbedding",
    "ConditionedMulticlass",
    "MeanEmbedding",
    "MulticlassAnswers",
    "MulticlassEmbedding",
    "ShrinkageMeanEmbedding",
    "SquaredDistancePosterior",
    "WeightedEmbedding",
    "Witness",
    "clip_normalize",
    "in_blocks",
]
