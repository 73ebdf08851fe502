"""Embeddings: parameters, ``attach`` and ``condition`` that join them with data, and the predictors."""

from .base import KernelEmbedding, RegularizedEmbedding
from .bayesian import BayesianMeanEmbedding, ConditionedMeanEmbedding
from .calculus import JointEmbedding, bayes_rule, chain_rule, sum_rule
from .calibration import CalibratedMulticlass
from .conditional import ConditionalEmbedding, ConditionedEmbedding
from .conformal import conformal_quantile, interval_scores, jackknife_plus_interval, prediction_sets
from .distribution import Distribution, RealTargetPredictor
from .empirical import EmpiricalEmbedding, empirical_embedding
from .mean import MeanEmbedding, NoiseKind, ShrinkageMeanEmbedding, WeightedEmbedding
from .multiclass import ConditionedMulticlass, MulticlassEmbedding
from .predictors import ConditionalPredictor, LinearPredictor, MulticlassPredictor
from .probabilities import clip_normalize
from .representation import KernelFeatures, KernelValues, Representation, in_blocks
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
    "JointEmbedding",
    "KernelEmbedding",
    "KernelFeatures",
    "KernelValues",
    "LinearPredictor",
    "MeanEmbedding",
    "MulticlassEmbedding",
    "MulticlassPredictor",
    "NoiseKind",
    "RealTargetPredictor",
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
    "in_blocks",
    "interval_scores",
    "jackknife_plus_interval",
    "prediction_sets",
    "sum_rule",
]
