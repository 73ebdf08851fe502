"""Embeddings: parameters, and ``condition(x, y)`` that turns them into answers."""

from .bayesian import BayesianMeanEmbedding, ConditionedMeanEmbedding
from .conditional import ConditionalEmbedding, ConditionedEmbedding
from .mean import MeanEmbedding, WeightedEmbedding
from .multiclass import ConditionedMulticlass, MulticlassEmbedding, clip_normalize
from .shrinkage import ShrinkageMeanEmbedding
from .witness import SquaredDistancePosterior, Witness

__all__ = [
    "BayesianMeanEmbedding",
    "ConditionalEmbedding",
    "ConditionedEmbedding",
    "ConditionedMeanEmbedding",
    "ConditionedMulticlass",
    "MeanEmbedding",
    "MulticlassEmbedding",
    "ShrinkageMeanEmbedding",
    "SquaredDistancePosterior",
    "WeightedEmbedding",
    "Witness",
    "clip_normalize",
]
