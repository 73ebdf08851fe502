"""scikit-learn front ends."""

from .classifier import MulticlassEmbeddingClassifier
from .regressor import ConditionalEmbeddingRegressor
from .voted import VotedKernelClassifier

__all__ = ["ConditionalEmbeddingRegressor", "MulticlassEmbeddingClassifier", "VotedKernelClassifier"]
