"""An embedding as a sum over points, f(x) = Σ_i k(x, x_i) V_i: a few that stand for all data."""

from __future__ import annotations

from torch import Tensor

from ..embeddings import ConditionalEmbedding, KernelValues, LinearPredictor, MulticlassEmbedding, MulticlassPredictor
from ..validation import check_features, check_finite, check_tensor


class Expansion(LinearPredictor):
    """f(x) = Σ_i k(x, x_i) V_i.

    Attributes:
        embedding: whose kernel k is.
        points: the x_i, ``(s, d)``.
        coefficients: V, ``(s, m)``.

    Raises:
        TypeError: if an argument is not a tensor of real numbers.
        ValueError: if there is not one row of coefficients for each point, or a value is not finite.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel())
        >>> ke.scale.Expansion(embedding, torch.rand(5, 2), torch.rand(5, 1)).mean(torch.rand(3, 2)).shape
        torch.Size([3, 1])
    """

    def __init__(self, embedding: ConditionalEmbedding, points: Tensor, coefficients: Tensor) -> None:
        points = check_features(points, "points")
        check_tensor(coefficients, "coefficients")
        check_finite(coefficients, "coefficients")
        if coefficients.dim() != 2 or coefficients.shape[0] != points.shape[0]:
            raise ValueError(
                f"Expected coefficients of shape ({points.shape[0]}, m), got {tuple(coefficients.shape)}. "
                "Give one row for each point."
            )
        self.embedding, self.points, self._coefficients = embedding, points, coefficients

    @property
    def representation(self) -> KernelValues:
        """k(x, x_i), a function of new points."""
        return KernelValues(self.embedding.kernel, self.points)

    @property
    def coefficients(self) -> Tensor:
        """V, ``(s, m)``."""
        return self._coefficients


class MulticlassExpansion(MulticlassPredictor, Expansion):
    """The same for class labels, with the questions of :class:`kernel_embed.embeddings.ConditionedMulticlass`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.scale.MulticlassExpansion(embedding, torch.rand(5, 2), torch.rand(5, 2)).predict(torch.rand(3, 2)).shape
        torch.Size([3])
    """

    embedding: MulticlassEmbedding

    @property
    def num_classes(self) -> int:
        """m."""
        return self.embedding.num_classes


def expansion(embedding: ConditionalEmbedding, points: Tensor, coefficients: Tensor) -> Expansion:
    """The expansion with the questions that fit a frozen ``embedding``."""
    kind = MulticlassExpansion if isinstance(embedding, MulticlassEmbedding) else Expansion
    return kind(embedding, points, coefficients)
