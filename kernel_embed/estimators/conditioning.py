r"""Condition an embedding on all rows of a table, exactly or through features, with the ridge learned on all rows.

Hyperparameters learned from a sample suit all rows, except for the ridge: more rows need a smaller one. It is learned
again on all rows, from the leave-one-out values of explicit features for a path of ridges
(:class:`kernel_embed.linalg.RidgePath`), which one eigendecomposition gives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings import ConditionalEmbedding, LinearPredictor
from ..kernels import explicit_features, has_explicit_features
from ..kernels.features.explicit import nystrom_kernel
from ..kernels.parameters import frozen
from ..linalg import RidgePath, Units
from ..linalg.cholesky import joined_weights
from ..objectives import calibrate
from ..scale.predictors import FeaturePredictor, expansion
from ..scale.statistics import FeatureStatistics

PRODUCTS = 4e11
"""The product n p² of an embedding with p features, which determines p between the two limits below."""
FEWEST_POINTS, MOST_POINTS = 500, 2500

PROBES = 800
"""Number of Nyström points from which the ridge is learned, before conditioning exactly or with more points."""

RIDGES = tuple(float(factor) for factor in 10.0 ** np.arange(-2.5, 1.01, 0.5))
"""Factors of the ridge that are tried with all rows."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Encoded rows with labels, and the meaning of the encoded columns.

    Attributes:
        x: ``(n, D)``.
        y: class numbers ``(n,)``, soft labels ``(n, m)``, or real targets ``(n,)``.
        weights: how many rows each row stands for, ``(n,)``, or ``None``.
        groups: the table column of each encoded column, ``(D,)``.
        numbers: which encoded columns are numeric, ``(D,)``.
        num_classes: m; 0 for real targets.
        units: what is left out at a time.
        places: a number for each row, ``(n,)``: rows with the same one are on the same side of every split; ``None`` if
            all differ.
    """

    x: Tensor
    y: Tensor
    weights: Tensor | None
    groups: Tensor
    numbers: Tensor
    num_classes: int = 0
    units: Units = Units()  # noqa: RUF009
    places: NDArray[np.int64] | None = None

    @property
    def labels(self) -> NDArray[np.int64]:
        """The (most probable) class of each row."""
        labels: NDArray[np.int64] = (self.y if self.y.dim() == 1 else self.y.argmax(-1)).cpu().numpy()
        return labels

    @property
    def total_weight(self) -> float:
        """n = Σ w."""
        return len(self.x) if self.weights is None else float(self.weights.sum())

    @property
    def data(self) -> tuple[Tensor, Tensor]:
        """x and y."""
        return self.x, self.y

    @property
    def options(self) -> dict[str, Any]:
        """Weights and units, as arguments of ``fit``."""
        return {"weights": self.weights, "groups": self.units}

    def rows(self, numbers: NDArray[np.int64]) -> Tensor:
        """Row numbers, on the device of the rows."""
        return torch.as_tensor(numbers, device=self.x.device)

    def Y(self, rows: Tensor) -> Tensor:
        """One-hot or soft labels of some rows, ``(n', m)``."""
        y = self.y[rows]
        return y.to(self.x) if y.dim() == 2 else torch.nn.functional.one_hot(y, self.num_classes).to(self.x)

    def weights_of(self, rows: Tensor) -> Tensor | None:
        """The weights of some rows."""
        return None if self.weights is None else self.weights[rows]

    def subset(self, rows: Tensor) -> Table:
        """Some of the rows."""
        places = None if self.places is None else self.places[rows.cpu().numpy()]
        parts = {"x": self.x[rows], "y": self.y[rows], "units": self.units.subset(rows), "places": places}
        return dataclasses.replace(self, weights=self.weights_of(rows), **parts)  # type: ignore[arg-type]

    def joined(self, other: Table) -> Table:
        """The rows of both, these first."""
        soft = 2 in (self.y.dim(), other.y.dim())
        y = [table.Y(torch.arange(len(table.x), device=table.x.device)) if soft else table.y for table in (self, other)]
        weights = joined_weights(self.weights, other.weights, len(self.x), len(other.x), self.x)
        x, units = torch.cat([self.x, other.x]), self.units.extended(len(other.x))
        return dataclasses.replace(self, x=x, y=torch.cat(y), weights=weights, units=units, places=None)


def num_points(n: int) -> int:
    """p, the points of Nyström's features for n rows.

    Example:
        >>> [num_points(n) for n in (20_000, 200_000, 1_000_000)]
        [2500, 1414, 632]
    """
    return int(min(max(math.sqrt(PRODUCTS / n), FEWEST_POINTS), MOST_POINTS))


Loss = Callable[[Tensor, Tensor, Tensor | None], float]
"""A loss of leave-one-out values and targets ``(n', m)``, with weights of the rows."""


def calibrated_loss(F: Tensor, Y: Tensor, weights: Tensor | None) -> float:
    """The negative log probability of the labels after calibration."""
    log_p = calibrate(F, Y, weights=weights).log_probabilities(F)
    return weighted_mean(-(Y * log_p).sum(-1), weights)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> float:
    """The weighted mean of one loss for each row."""
    return float(losses.mean() if weights is None else (weights * losses).sum() / weights.sum())


def condition_exactly(
    embedding: ConditionalEmbedding,
    table: Table,
    validation_rows: Tensor,
    ridge: float,
    probes: Tensor | None,
    loss: Loss = calibrated_loss,
) -> tuple[Tensor, LinearPredictor]:
    """Leave-one-out values at the validation rows, and the predictor; the ridge is learned at the points ``probes``."""
    if probes is not None:
        Z, Y = _features(_featured(embedding, probes), table.x), embedding.targets(table.y, table.x)
        C = (Z if table.weights is None else table.weights.unsqueeze(-1) * Z).mT @ Y
        path, weights = RidgePath.from_rows(Z, table.weights), table.weights_of(validation_rows)
        units = table.units.subset(validation_rows)
        selector = RidgeSelector(path, C, Z[validation_rows], Y[validation_rows], weights, units, loss)
        ridge = selector.best_ridge(ridge)
    embedding.regularization = ridge / table.total_weight
    learns = any(parameter.requires_grad for parameter in embedding.parameters())
    # A frozen embedding needs no copy, which would be large for an input transform of many columns.
    conditioned = (embedding.condition if learns else embedding.attach)(table.x, table.y, table.weights, table.units)
    values = conditioned.leave_one_out()[validation_rows]
    if conditioned.system.num_features is not None:
        return values, conditioned
    # The factor is no longer needed: predictions use only the kernel, the points and the coefficients.
    return values, expansion(conditioned.embedding, conditioned.x, conditioned.V)


def ridge_of(predictor: LinearPredictor, table: Table) -> float:
    """η = nλ of a predictor that was conditioned on ``table``, or on sums of more rows."""
    total = predictor.num_data if isinstance(predictor, FeaturePredictor) else table.total_weight
    ridge: float = predictor.embedding.regularization.item() * total  # type: ignore[attr-defined]
    return ridge


def through_features(embedding: ConditionalEmbedding, table: Table, points: Tensor) -> FeatureStatistics:
    """The statistics of all rows, with Nyström features at ``points`` if the kernel has no explicit features."""
    return FeatureStatistics(_featured(embedding, points)).update(table.x, table.y, table.weights)


def _featured(embedding: ConditionalEmbedding, points: Tensor) -> ConditionalEmbedding:
    if has_explicit_features(embedding.kernel):
        return embedding
    kernel, embedding = nystrom_kernel(embedding.kernel, points), frozen(embedding)
    embedding.kernel = kernel.to(points)
    return embedding


def _features(embedding: ConditionalEmbedding, x: Tensor) -> Tensor:
    Z = explicit_features(embedding.kernel, x)
    assert Z is not None
    return Z


def condition_through_features(
    embedding: ConditionalEmbedding,
    table: Table,
    validation_rows: Tensor,
    ridge: float,
    points: Tensor,
    loss: Loss = calibrated_loss,
) -> tuple[Tensor, LinearPredictor]:
    """Condition through explicit features; if there are many, the ridge is learned with fewer of them."""
    if has_explicit_features(embedding.kernel) or len(points) < 1.5 * PROBES:
        return condition_on_sums(through_features(embedding, table, points), table, validation_rows, ridge, loss)
    probes = points[:: math.ceil(len(points) / PROBES)]
    ridge = _ridge_selector(through_features(embedding, table, probes), table, validation_rows, loss).best_ridge(ridge)
    statistics = through_features(embedding, table, points)
    statistics.embedding.regularization = ridge / statistics.num_data
    predictor = statistics.condition()
    part = table.subset(validation_rows)
    return predictor.leave_one_out_at(part.x, part.y, part.weights, part.units), predictor


def condition_on_sums(
    statistics: FeatureStatistics, table: Table, validation_rows: Tensor, ridge: float, loss: Loss = calibrated_loss
) -> tuple[Tensor, LinearPredictor]:
    """Condition on statistics of rows; the table holds at least the validation rows."""
    selector = _ridge_selector(statistics, table, validation_rows, loss)
    ridge = selector.best_ridge(ridge)
    statistics.embedding.regularization = ridge / statistics.num_data
    return selector.left_out(ridge), statistics.condition()


def _ridge_selector(statistics: FeatureStatistics, table: Table, validation_rows: Tensor, loss: Loss) -> RidgeSelector:
    G, C = statistics.G, statistics.C
    if G is None or C is None:
        raise ValueError("There are no rows to learn from.")
    Y = statistics.embedding.targets(table.y[validation_rows], table.x)
    Z, weights = statistics.features(table.x[validation_rows]), table.weights_of(validation_rows)
    return RidgeSelector(RidgePath.from_sums(G), C, Z, Y, weights, table.units.subset(validation_rows), loss)


class RidgeSelector:
    """An embedding through explicit features on all rows, for every ridge, at validation rows with features ``Z``."""

    def __init__(
        self, path: RidgePath, C: Tensor, Z: Tensor, Y: Tensor, weights: Tensor | None, units: Units, loss: Loss
    ) -> None:
        self._path, self._C, self._ZQ = path, C, path.rotate(Z)
        self._Y, self._weights, self._units, self._loss = Y, weights, units, loss

    def left_out(self, ridge: float) -> Tensor:
        """Leave-one-out values at the validation rows."""
        return self._path.leave_one_out(self._ZQ, self._Y, self._C, ridge, self._weights, self._units)

    def best_ridge(self, ridge: float) -> float:
        """The multiple of ``ridge`` with the smallest leave-one-out loss."""
        losses = [self._loss(self.left_out(factor * ridge), self._Y, self._weights) for factor in RIDGES]
        return RIDGES[int(np.argmin(losses))] * ridge
