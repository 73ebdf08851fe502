"""Class probabilities from anything that has a regression function f(x), whatever holds it."""

from __future__ import annotations

import abc

from torch import Tensor

from ..embeddings import MulticlassAnswers, MulticlassEmbedding


class MulticlassRegression(MulticlassAnswers):
    """The questions about classes, where f(x) regresses on their one-hot vectors."""

    embedding: MulticlassEmbedding

    @abc.abstractmethod
    def regression(self, x: Tensor) -> Tensor:
        """f(x): ``(t, m)``."""

    @property
    def num_classes(self) -> int:  # type: ignore[override]
        """m."""
        return self.embedding.num_classes

    def decision_probabilities(self, x: Tensor) -> Tensor:
        """p̂(x) = f(x), eq. (5): ``(t, m)``."""
        return self.regression(x)
