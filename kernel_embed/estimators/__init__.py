"""scikit-learn front ends."""

from .classifier import MulticlassEmbeddingClassifier
from .pooled import Member, PooledPredictor
from .regressor import ConditionalEmbeddingRegressor
from .voted import VotedKernelClassifier

__all__ = [
    "ConditionalEmbeddingRegressor",
    "Member",
    "MulticlassEmbeddingClassifier",
    "PooledPredictor",
    "VotedKernelClassifier",
]
