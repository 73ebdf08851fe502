"""Embeddings: parameters, and ``condition(x, y)`` that turns them into answers."""

from .bayesian import BayesianMeanEmbedding, ConditionedMeanEmbedding
from .conditional import ConditionalEmbedding, ConditionedEmbedding, in_blocks
from .empirical import EmpiricalEmbedding, empirical_embedding
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
    "EmpiricalEmbedding",
    "MeanEmbedding",
    "MulticlassAnswers",
    "MulticlassEmbedding",
    "ShrinkageMeanEmbedding",
    "SquaredDistancePosterior",
    "WeightedEmbedding",
    "Witness",
    "clip_normalize",
    "empirical_embedding",
    "in_blocks",
]
