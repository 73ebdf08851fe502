"""Probabilities averaged over the posterior of the hyperparameters, as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.priors import LogNormalPrior
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from ..estimators import MulticlassEmbeddingClassifier


class PosteriorAverageClassifier(ClassifierMixin, BaseEstimator):
    """The default classifier learned first, then NUTS from there; predictions are averages over the draws.

    Args:
        kernel: see :class:`kernel_embed.MulticlassEmbeddingClassifier`.
        num_samples: draws.
        warmup_steps: draws before them that are thrown away.
        random_state: seed.
    """

    def __init__(
        self, kernel: Any = None, num_samples: int = 60, warmup_steps: int = 60, random_state: int = 0
    ) -> None:
        self.kernel = kernel
        self.num_samples = num_samples
        self.warmup_steps = warmup_steps
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> PosteriorAverageClassifier:
        """Learn, then sample."""
        start = MulticlassEmbeddingClassifier(self.kernel, progress=False).fit(X, y)
        raise NotImplementedError
