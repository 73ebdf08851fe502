"""Predictors that need no n × n matrix: from statistics of explicit features, and as sums over a few points."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor
from typing_extensions import Self

from ..embeddings import (
    ConditionalEmbedding,
    KernelFeatures,
    KernelValues,
    LinearPredictor,
    MulticlassEmbedding,
    MulticlassPredictor,
)
from ..embeddings.distribution import Distribution, indicators
from ..embeddings.representation import FEATURE_NUMBERS
from ..kernels import SupDiagonal
from ..linalg import DenseSystem, Units, repeated_rows
from ..linalg.ridge_path import left_out_blocks, left_out_from_leverage
from ..validation import check_features, check_finite, check_tensor

if TYPE_CHECKING:
    from .statistics import FeatureStatistics

FEW = 256
"""The smallest block of rows."""


class FeaturePredictor(LinearPredictor):
    """An embedding conditioned on statistics. It stores W and the feature map, and the data only if they were passed.

    Attributes:
        embedding: the frozen embedding.
        num_data: n.

    Args:
        system: ZᵀZ + nλI.
        C: ZᵀY.
        largest_diagonal: the largest k(x_i, x_i).
        data: inputs and targets, if they are stored.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RFFKernel(8, num_dims=2))
        >>> predictor = ke.scale.accumulate(embedding, torch.rand(50, 2), torch.rand(50)).condition()
        >>> predictor.mean(torch.rand(3, 2)).shape, predictor.num_data
        (torch.Size([3, 1]), 50)
    """

    def __init__(
        self,
        embedding: ConditionalEmbedding,
        system: DenseSystem,
        C: Tensor,
        num_data: float,
        largest_diagonal: float,
        data: tuple[Tensor, Tensor] | None = None,
    ) -> None:
        self.embedding, self.num_data = embedding, num_data
        self._system, self._W, self._largest_diagonal = system, system.solve(C), largest_diagonal
        self._C, self._data = C, data

    @property
    def representation(self) -> KernelFeatures:
        """φ, a function of new points."""
        return KernelFeatures(self.embedding.kernel, self._W.shape[-2])

    @property
    def coefficients(self) -> Tensor:
        """W, ``(p, m)``."""
        return self._W

    @property
    def training_targets(self) -> Tensor | None:
        """The training targets, if they are stored."""
        return None if self._data is None else self._data[1]

    @torch.no_grad()
    def coefficients_of(self, values: Tensor) -> Tensor:
        """(G + nλI)⁻¹ Zᵀ ``values``, by one more pass over the data."""
        if self._data is None:
            return super().coefficients_of(values)
        x, phi = self._data[0], self.representation
        rows = max(FEW, FEATURE_NUMBERS // self._W.shape[-2])
        blocks = zip(x.split(rows), values.split(rows), strict=True)
        C = torch.stack([phi(block).mT @ part.to(block) for block, part in blocks]).sum(0)
        return self._system.solve(C.to(self._W))

    @property
    def statistics(self) -> FeatureStatistics:
        """A copy of the sums behind this predictor, to which rows can be added."""
        from .statistics import FeatureStatistics  # which conditions to this class

        statistics = FeatureStatistics(self.embedding)
        statistics.merge(self._system.K, self._C, self.num_data, self._largest_diagonal)
        return statistics

    def updated(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Self:
        """The same with more rows and the same ridge nλ: their sums are added. The data themselves are not stored."""
        statistics = self.statistics.update(x, y, weights)
        regularization = statistics.embedding.regularization
        statistics.embedding.regularization = regularization.detach() * (self.num_data / statistics.num_data)
        return cast(Self, statistics.condition())

    def leave_one_out_at(
        self, x: Tensor, y: Tensor, weights: Tensor | None = None, units: Units | None = None
    ) -> Tensor:
        """Leave-one-out values at training rows ``x``: ``(t, m)``; groups of ``units`` must be there as a whole."""
        return self._left_out(x, self.embedding.targets(y, self._W), self._W, weights, units)

    @torch.no_grad()
    def leave_one_out_distribution(self) -> Distribution:
        """P(Y | X = x_i) of a real target without row i, at every row; nλ and F̄ stay the same.

        Raises:
            TypeError: if there is no single real target, or the rows are not stored.
        """
        y = self.real_targets()
        support, F, coefficients = self._cumulative
        G, _ = indicators(y, support)
        x = self._inputs()
        return Distribution(support, F + self._left_out(x, G, coefficients, None, repeated_rows(x, y)))

    @torch.no_grad()
    def weights(self, x: Tensor) -> Tensor:
        """w(x) = Z(G + nλI)⁻¹φ(x), the weights of the rows in the prediction at ``x``: ``(n, t)``.

        Raises:
            TypeError: if the rows are not stored.
        """
        inputs, phi = self._inputs(), self.representation
        B = self._system.solve(phi(x).mT.to(self._W))
        rows = max(FEW, FEATURE_NUMBERS // self._W.shape[-2])
        return torch.cat([phi(block).to(B) @ B for block in inputs.split(rows)])

    def _inputs(self) -> Tensor:
        if self._data is None:
            raise self._without_data()
        return self._data[0]

    def _left_out(
        self, x: Tensor, Y: Tensor, coefficients: Tensor, weights: Tensor | None, units: Units | None
    ) -> Tensor:
        phi, ridge = self.representation, float(self._system.ridge)
        size, values = max(FEW, FEATURE_NUMBERS // self._W.shape[-2]), torch.empty_like(Y)
        grouped = units is not None and units.labels is not None
        all_rows = units.rows if grouped and units else (torch.arange(len(x), device=x.device).unsqueeze(-1),)
        for rows in (
            part.flatten() for of_size in all_rows for part in of_size.split(max(1, size // of_size.shape[1]))
        ):
            Z = phi(x[rows]).to(self._W)
            U, P, own = self._system.solve(Z.mT).mT, Z @ coefficients, None if weights is None else weights[rows]
            part = None if units is None else units.subset(rows)
            if grouped and part:
                values[rows] = Y[rows] - left_out_blocks(Y[rows] - P, U, Z, part, own)
            else:
                norms, leverage = Z.square().sum(-1), (Z * U).sum(-1)
                values[rows] = left_out_from_leverage(P, leverage, norms, Y[rows], ridge, own, part)
        return values

    @property
    def squared_norm(self) -> Tensor:
        """Σ W², the squared norm of the embedding (Algorithm 2, line 10)."""
        return self.coefficients.square().sum((-2, -1))

    @functools.cached_property
    def sup_diagonal(self) -> SupDiagonal:
        """α², the largest k(x_i, x_i) over all training rows."""
        return SupDiagonal(self.coefficients.new_tensor(self._largest_diagonal), "maximum over the data")


class MulticlassFeaturePredictor(MulticlassPredictor, FeaturePredictor):
    """The same for class labels, with the methods of :class:`kernel_embed.embeddings.ConditionedMulticlass`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RFFKernel(8, num_dims=2), num_classes=3)
        >>> predictor = ke.scale.accumulate(embedding, torch.rand(50, 2), torch.randint(3, (50,))).condition()
        >>> predictor.probabilities(torch.rand(3, 2)).shape
        torch.Size([3, 3])
    """

    embedding: MulticlassEmbedding


class Expansion(LinearPredictor):
    """f(x) = Σ_i k(x, x_i) V_i.

    Attributes:
        embedding: the embedding with the kernel k.
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
    """The same for class labels, with the methods of :class:`kernel_embed.embeddings.ConditionedMulticlass`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.scale.MulticlassExpansion(embedding, torch.rand(5, 2), torch.rand(5, 2)).predict(torch.rand(3, 2)).shape
        torch.Size([3])
    """

    embedding: MulticlassEmbedding


def expansion(embedding: ConditionalEmbedding, points: Tensor, coefficients: Tensor) -> Expansion:
    """The expansion of the class that fits a frozen ``embedding``."""
    kind = MulticlassExpansion if isinstance(embedding, MulticlassEmbedding) else Expansion
    return kind(embedding, points, coefficients)
