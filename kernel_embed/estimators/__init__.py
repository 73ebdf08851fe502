"""scikit-learn front ends."""

from .classifier import MulticlassEmbeddingClassifier
from .pooled import Member, PooledPredictor
from .regressor import ConditionalEmbeddingRegressor
from .table import TableEncoder
from .voted import VotedKernelClassifier

__all__ = [
    "ConditionalEmbeddingRegressor",
    "Member",
    "MulticlassEmbeddingClassifier",
    "PooledPredictor",
    "TableEncoder",
    "VotedKernelClassifier",
]
