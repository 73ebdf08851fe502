r"""Conditional embeddings with data: the factorized system, and what follows from it.

.. math::  A = K + n\lambda W^{-1}, \qquad V = A^{-1} \mathbf Y, \quad P = KV, \quad \mathbf w(x) = A^{-1} \mathbf k(x)
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from typing_extensions import Self

from ..kernels import SupDiagonal, explicit_features, gram, sup_diagonal
from ..kernels.features import MAX_WIDTH
from ..kernels.gram import evaluate_gram
from ..kernels.parameters import frozen
from ..kernels.structure import batch_shape_of, check_columns, has_explicit_features
from ..linalg import DenseSystem, FeatureSystem, LinearSystem, Regression, Units, extended, repeated_rows
from ..linalg.dense import joined_weights
from ..validation import check_features, check_finite, check_memory, check_query_points, check_tensor
from .calibration import CalibratedMulticlass
from .distribution import Distribution, indicators
from .predictors import LinearPredictor, MulticlassPredictor
from .representation import Representation

if TYPE_CHECKING:
    from .conditional import ConditionalEmbedding, MulticlassEmbedding

MEMORY_REMEDY = (
    "Use approximate(embedding, x, y, method=Nystrom(1000)), fit(..., batch_size=500) with mini-batches, or fewer rows."
)


class ConditionedEmbedding(Regression, LinearPredictor):
    """A conditional embedding with its data: the factorized A, and its predictions.

    Attributes:
        embedding: the embedding; from ``condition`` a frozen copy.
        x: inputs, ``(n, d)``.
        y: targets.
        system: A = K + nλW⁻¹, through the p × p matrix ZᵀWZ + nλI where the kernel has p < n explicit features.
        weights: of the rows, ``(n,)``, or ``None``.
        units: what is left out at a time.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel(), 1.0).condition(torch.zeros(1, 1), torch.ones(1)).P
        tensor([[0.5000]])
    """

    def __init__(
        self,
        embedding: ConditionalEmbedding,
        x: Tensor,
        y: Tensor,
        system: LinearSystem | None = None,
        weights: Tensor | None = None,
        units: Units | None = None,
    ) -> None:
        self.embedding, self.x, self._units = embedding, x, units
        self.y: Tensor = y
        self.regularization: Tensor = embedding.regularization.to(x).clone()  # for it may be the live parameter
        # eq. (1): A = K + nλW⁻¹, with n = Σ w
        n = self.num_data if weights is None else float(weights.sum())
        self.system: LinearSystem = system or kernel_system(embedding.kernel, x, n * self.regularization, weights)

    def __repr__(self) -> str:
        p = self.system.num_features
        kernel = type(self.embedding.kernel).__name__ + ("" if p is None else f" through {p} features")
        return f"<{type(self).__name__}: {kernel} on {self.num_data} rows of {self.x.shape[-1]} columns>"

    @property
    def num_data(self) -> int:
        """The number of rows."""
        return self.x.shape[-2]

    @property
    def row_weights(self) -> Tensor | None:
        """w, how many rows each row stands for; ``None`` for 1 each."""
        return self.system.weights

    @functools.cached_property
    def total_weight(self) -> float:
        """n = Σ w, the sum of the row weights; the number of rows if there are no weights."""
        return self.num_data if self.row_weights is None else float(self.row_weights.sum())

    def weighted_mean(self, values: Tensor) -> Tensor:
        """(1/n) Σ w_i v_i over the last dimension of ``values`` ``(*batch, n)``: the mean that a risk is."""
        return values.mean(-1) if self.row_weights is None else (values * self.row_weights).sum(-1) / self.total_weight

    @property
    def representation(self) -> Representation:
        """k(x, x_i) as a function of new points, or their explicit features φ(x)."""
        return Representation(self.embedding.kernel, self.x, self.system.num_features)

    @functools.cached_property
    def coefficients(self) -> Tensor:
        """V, or with explicit features C = ZᵀV, by which the representation is multiplied to predict."""
        return self.system.coefficients(self.Y)

    def coefficients_of(self, values: Tensor) -> Tensor:
        """The coefficients for other ``values`` ``(n, q)`` at the training targets."""
        return self.system.coefficients(values)

    @property
    def K(self) -> Tensor:
        """The Gram matrix, ``(*batch, n, n)``; with explicit features it is formed when needed."""
        return self.system.gram()

    @functools.cached_property
    def Y(self) -> Tensor:  # type: ignore[override]
        """The targets as an n × m matrix."""
        return self.embedding.targets(self.y, self.x)

    @property
    def squared_norm(self) -> Tensor:
        """tr(VᵀKV), the squared norm of the embedding, of shape ``batch``."""
        # Algorithm 2, line 10: Σ C² with explicit features
        return super().squared_norm if self.system.num_features is None else self.coefficients.square().sum((-2, -1))

    @functools.cached_property
    def sup_diagonal(self) -> SupDiagonal:
        """α² = sup k(x, x), and where it comes from."""
        # From cached values: with dropout a feature map must not be evaluated again.
        return sup_diagonal(self.embedding.kernel, self.x, self.embedding.sup_diagonal_bound, self.system.diagonal())

    @property
    def alpha_squared(self) -> Tensor:
        """α² = sup k(x, x)."""
        return self.sup_diagonal.value

    @functools.cached_property
    def units(self) -> Units | None:  # type: ignore[override]
        """The groups passed, or rows with those equal to them, that are left out together; ``None`` for single rows."""
        return repeated_rows(self.x, self.y) if self._units is None else self._units

    def left_out_residuals(self, values: Tensor) -> Tensor:
        """``values`` ``(n, q)`` at each row less their prediction without it and its group: ``(*batch, n, q)``."""
        V, c = self.system.solve(values), self.system.inverse_parts(self.units)
        return (self.units or Units()).residuals(V, c, self.system.noise)

    def leave_one_out_distribution(self) -> Distribution:
        """P(Y | X = x_i) of a real target without row i and its group, at every row, with the same ridge nλ and F̄."""
        support, F, _ = self._cumulative
        G, _ = indicators(self.real_targets(), support, self.row_weights)
        return Distribution(support, F + G - self.left_out_residuals(G))

    def cross_gram(self, x: Tensor) -> Tensor:
        """k(x, x_i) for new points ``x`` of shape ``(t, d)``: ``(*batch, t, n)``."""
        return self.system.gram_from(self.representation(x))

    def weights(self, x: Tensor) -> Tensor:
        """w(x) = A⁻¹k(x), the weights of the data in the embedding at ``x``: ``(*batch, n, t)``."""
        return self.system.solve(self.cross_gram(x).mT)

    @torch.no_grad()
    def updated(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> Self:
        """The same with more rows and the ridge η = nλ fixed; an exact factor grows by a block, for n²t operations.

        Raises:
            TypeError: if the system was solved by iteration, and so cannot be extended.
        """
        x, y, weights = self.embedding.checked(check_query_points(x, self.x), y, weights)
        embedding, system = frozen(self.embedding), self._extended_system(x, weights)
        soft = self.y.dim() != y.dim()  # class numbers and probabilities mixed
        ys = [self.embedding.targets(part, self.x) if soft and part.dim() == 1 else part for part in (self.y, y)]
        total = self.total_weight + (len(x) if weights is None else float(weights.sum()))
        embedding.regularization = (self.system.ridge / total).to(embedding.regularization)
        units = self._units and self._units.extended(len(x))
        return type(self)(embedding, torch.cat([self.x, x]), torch.cat(ys), system, units=units)

    def _extended_system(self, x: Tensor, weights: Tensor | None) -> LinearSystem:
        old, kernel = self.system, self.embedding.kernel
        if isinstance(old, FeatureSystem):
            joined = joined_weights(old.weights, weights, self.num_data, len(x), self.x)
            return FeatureSystem(torch.cat([old.Z, self.representation(x)], dim=-2), old.ridge, joined)
        if isinstance(old, DenseSystem):
            return extended(old, gram(kernel, self.x, x).to(self.x), gram(kernel, x).to(self.x), weights)
        raise TypeError(f"A solution by {type(old).__name__} cannot be extended. Condition again on all rows.")

    def restricted(self, rows: Tensor) -> ConditionedEmbedding:
        """The same embedding conditioned on some of the data, from the stored Gram matrix or features."""
        total = len(rows) if self.row_weights is None else float(self.row_weights[rows].sum())
        system = self.system.restricted(rows, total * self.regularization)
        units = self._units and self._units.subset(rows)
        return type(self)(self.embedding, self.x[rows], self.y[rows], system, units=units)

    def expansion(self) -> Expansion:
        """The same predictions from the kernel, the points and V alone."""
        kind = MulticlassExpansion if isinstance(self, MulticlassPredictor) else Expansion
        return kind(self.embedding, self.x, self.V)

    def fitted_by(self, part: ConditionedEmbedding, part_rows: Tensor, rows: Tensor) -> Tensor:
        """The values at some ``rows`` of the data of ``part``, which is this embedding ``restricted(part_rows)``."""
        return self.system.between(part.system, rows, part_rows) @ part.coefficients


class ConditionedMulticlass(MulticlassPredictor, ConditionedEmbedding):
    """A multiclass embedding with its data; the attributes are those of :class:`ConditionedEmbedding`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> embedding.condition(torch.eye(2), torch.arange(2)).predict(torch.eye(2))
        tensor([0, 1])
    """

    embedding: MulticlassEmbedding

    def calibrated(self) -> CalibratedMulticlass:
        """The same with probabilities calibrated on leave-one-out values, as the classifier reports them."""
        return CalibratedMulticlass(self)


class Expansion(LinearPredictor):
    """f(x) = Σ_i k(x, x_i) V_i, with the x_i in ``points`` ``(s, d)`` and V in ``coefficients`` ``(s, m)``."""

    def __init__(self, embedding: ConditionalEmbedding, points: Tensor, coefficients: Tensor) -> None:
        points = check_features(points, "points")
        check_tensor(coefficients, "coefficients")
        check_finite(coefficients, "coefficients")
        if coefficients.dim() != 2 or len(coefficients) != len(points):
            shape = tuple(coefficients.shape)
            raise ValueError(f"Expected coefficients of shape ({len(points)}, m), one row a point, got {shape}.")
        self.embedding, self.points, self._coefficients = embedding, points, coefficients

    @property
    def representation(self) -> Representation:
        """x ↦ k(x, x_i) at the ``points`` x_i, ``(t, s)``."""
        return Representation(self.embedding.kernel, self.points)

    @property
    def coefficients(self) -> Tensor:
        """V, ``(s, m)``, as passed."""
        return self._coefficients


class MulticlassExpansion(MulticlassPredictor, Expansion):
    """The same for class labels, with the methods of :class:`ConditionedMulticlass`."""

    embedding: MulticlassEmbedding


def kernel_system(kernel: Kernel, x: Tensor, ridge: Tensor, weights: Tensor | None = None) -> LinearSystem:
    """K + ηW⁻¹ for the rows of ``x``, through explicit features where ``kernel`` has fewer of them than rows."""
    n = x.shape[-2]
    Z = explicit_features(kernel, x, limit=min(MAX_WIDTH, n)) if has_explicit_features(kernel) else None
    if Z is not None and Z.shape[-1] < n:
        return FeatureSystem(Z.to(x), ridge, weights)
    check_memory(n, x, batch_shape_of(kernel).numel(), MEMORY_REMEDY)
    check_columns(kernel, x.shape[-1])
    K = (evaluate_gram(kernel, x.clone() if x.is_inference() else x) if Z is None else Z @ Z.mT).to(x)
    if K.shape[-2:] != (n, n):
        raise ValueError(
            f"Expected one kernel value for each pair of the {n} rows, got shape {tuple(K.shape[-2:])}. Kernels with "
            "several outputs for each input have no conditional embedding."
        )
    return DenseSystem(K, ridge, weights)
