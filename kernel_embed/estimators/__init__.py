"""scikit-learn front ends."""

from .classifier import MulticlassEmbeddingClassifier
from .voted import VotedKernelClassifier

__all__ = ["MulticlassEmbeddingClassifier", "VotedKernelClassifier"]
