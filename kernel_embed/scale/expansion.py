"""An embedding as a sum over points, f(x) = Σ_i k(x, x_i) V_i: of all data, or of a few that stand for them."""

from __future__ import annotations

from torch import Tensor

from ..embeddings import ConditionalEmbedding, MulticlassEmbedding, in_blocks
from ..embeddings.snapshot import KernelSnapshot
from ..kernels import gram
from ..validation import check_features
from .multiclass import MulticlassRegression


class Expansion:
    """f(x) = Σ_i k(x, x_i) V_i.

    Attributes:
        points: the x_i, ``(s, d)``.
        coefficients: V, ``(s, m)``.
    """

    def __init__(
        self, embedding: ConditionalEmbedding, snapshot: KernelSnapshot, points: Tensor, coefficients: Tensor
    ) -> None:
        self.embedding, self.points, self.coefficients = embedding, points, coefficients
        self._snapshot = snapshot

    def representation(self, x: Tensor) -> Tensor:
        """k(x, x_i) for points ``x`` of shape ``(t, d)``."""
        x = check_features(x, width=self.points.shape[-1], integers_as=self.points.dtype).to(self.points)
        return gram(self._snapshot.kernel(), x, self.points).to(self.points)

    def regression(self, x: Tensor) -> Tensor:
        """f(x): ``(t, m)``, a block of rows at a time where no gradient is asked for."""
        return in_blocks(self.representation, x, self.coefficients)


class MulticlassExpansion(Expansion, MulticlassRegression):
    """The same for class labels, with the questions of :class:`kernel_embed.ConditionedMulticlass`."""


def expansion(
    embedding: ConditionalEmbedding, points: Tensor, coefficients: Tensor, snapshot: KernelSnapshot | None = None
) -> Expansion:
    """The expansion with the questions that fit the embedding, from its kernel as it is or as ``snapshot`` has it."""
    kind = MulticlassExpansion if isinstance(embedding, MulticlassEmbedding) else Expansion
    return kind(embedding, snapshot or KernelSnapshot(embedding.kernel), points, coefficients)
