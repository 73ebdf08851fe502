"""scikit-learn front ends."""

from .classifier import MulticlassEmbeddingClassifier
from .importance import FeatureImportances
from .pooled import Member, PooledPredictor
from .regressor import ConditionalEmbeddingRegressor
from .voted import VotedKernelClassifier

__all__ = [
    "ConditionalEmbeddingRegressor",
    "FeatureImportances",
    "Member",
    "MulticlassEmbeddingClassifier",
    "PooledPredictor",
    "VotedKernelClassifier",
]
