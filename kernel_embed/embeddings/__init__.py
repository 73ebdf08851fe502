"""Embeddings: parameters, ``attach`` and ``condition`` that join them with data, and the predictors."""

from .bayesian import BayesianMeanEmbedding, ConditionedMeanEmbedding, NoiseKind
from .calibration import CalibratedMulticlass
from .conditional import ConditionalEmbedding, KernelEmbedding, MulticlassEmbedding, RegularizedEmbedding
from .conditioned import ConditionedEmbedding, ConditionedMulticlass, Expansion, MulticlassExpansion
from .conformal import conformal_quantile, interval_scores, jackknife_plus_interval, prediction_sets
from .distribution import Distribution, clip_normalize
from .empirical import EmpiricalEmbedding, empirical_embedding
from .mean import (
    JointEmbedding,
    MeanEmbedding,
    ShrinkageMeanEmbedding,
    WeightedEmbedding,
    bayes_rule,
    chain_rule,
    sum_rule,
)
from .predictors import ConditionalPredictor, LinearPredictor, MulticlassPredictor
from .representation import Representation
from .witness import SquaredDistancePosterior, Witness

__all__ = [
    "BayesianMeanEmbedding",
    "CalibratedMulticlass",
    "ConditionalEmbedding",
    "ConditionalPredictor",
    "ConditionedEmbedding",
    "ConditionedMeanEmbedding",
    "ConditionedMulticlass",
    "Distribution",
    "EmpiricalEmbedding",
    "Expansion",
    "JointEmbedding",
    "KernelEmbedding",
    "LinearPredictor",
    "MeanEmbedding",
    "MulticlassEmbedding",
    "MulticlassExpansion",
    "MulticlassPredictor",
    "NoiseKind",
    "RegularizedEmbedding",
    "Representation",
    "ShrinkageMeanEmbedding",
    "SquaredDistancePosterior",
    "WeightedEmbedding",
    "Witness",
    "bayes_rule",
    "chain_rule",
    "clip_normalize",
    "conformal_quantile",
    "empirical_embedding",
    "interval_scores",
    "jackknife_plus_interval",
    "prediction_sets",
    "sum_rule",
]
