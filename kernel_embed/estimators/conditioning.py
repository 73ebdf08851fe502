r"""Rows of an encoded table, and embeddings conditioned on all of them, with the ridge learned on all rows.

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
from ..kernels.approximations import nystrom_kernel
from ..kernels.parameters import frozen
from ..linalg import RidgePath, Units
from ..linalg.dense import joined_weights
from ..objectives import calibrate
from ..scale.statistics import FeaturePredictor, FeatureStatistics
from ..splits import distinct_rows
from ..tabular import TableEncoder
from .targets import Targets

PRODUCTS = 4e11  # n p² of an embedding with p features, which determines p between the two limits below
FEWEST_POINTS, MOST_POINTS = 500, 2500
EXACT = 5000  # rows up to which every embedding of the classifier is conditioned exactly
PROBES = 800  # Nyström points from which the ridge is learned, before conditioning exactly or with more points
RIDGES = tuple(float(factor) for factor in 10.0 ** np.arange(-2.5, 1.01, 0.5))
"""Factors of the ridge that are tried with all rows."""


@dataclasses.dataclass(frozen=True)
class Table:
    """Encoded or transformed rows with targets, and the meaning of the encoded columns."""

    x: Tensor  # (n, D)
    y: Tensor  # class numbers (n,), soft labels (n, m), or real targets (n,)
    weights: Tensor | None  # how many rows each row stands for, (n,)
    groups: Tensor  # the table column of each encoded column, (D,)
    numbers: Tensor  # which encoded columns are numeric, (D,)
    num_classes: int = 0  # m; 0 for real targets
    units: Units = Units()  # noqa: RUF009  # what is left out at a time
    places: NDArray[np.int64] | None = None  # equal for rows that no split divides, (n,); None if all differ
    coordinates: Tensor | None = None  # x in fewer coordinates, with the same distances and inner products

    @classmethod
    def of(
        cls,
        x: NDArray[np.float64],
        y: NDArray[Any],
        targets: Targets,
        encoder: TableEncoder | None,
        num_classes: int = 0,
        device: str | None = None,
    ) -> Table:
        """Encoded rows with targets ``y``, and the weights and groups of ``targets``, as tensors of their own."""
        d = x.shape[1]
        groups, numbers = (
            (np.arange(d), np.ones(d, dtype=bool)) if encoder is None else (encoder.groups_, encoder.numbers_)
        )
        arrays = {"x": x, "y": y, "weights": targets.weights, "groups": groups, "numbers": numbers}
        tensors = {name: _tensor(array, device or "cpu") for name, array in arrays.items()}
        return cls(**tensors, num_classes=num_classes, units=Units(_tensor(targets.groups, device or "cpu")))

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
    def num_columns(self) -> int:
        """G, the number of table columns."""
        return int(self.groups.max()) + 1

    @property
    def data(self) -> dict[str, Any]:
        """The arguments of ``fit``, ``attach`` and ``condition``."""
        return {"x": self.x, "y": self.y, "weights": self.weights, "groups": self.units}

    def rows(self, numbers: NDArray[np.int64]) -> Tensor:
        """Row numbers, on the device of the rows."""
        return torch.as_tensor(numbers, device=self.x.device)

    def Y(self, rows: Tensor | slice = slice(None)) -> Tensor:
        """One-hot or soft labels of some rows, ``(n', m)``."""
        y = self.y[rows]
        return y.to(self.x) if y.dim() == 2 else torch.nn.functional.one_hot(y, self.num_classes).to(self.x)

    def weights_of(self, rows: Tensor) -> Tensor | None:
        """The weights of some rows."""
        return None if self.weights is None else self.weights[rows]

    def subset(self, rows: Tensor) -> Table:
        """Some of the rows."""
        return dataclasses.replace(
            self,
            x=self.x[rows],
            y=self.y[rows],
            weights=self.weights_of(rows),
            units=self.units.subset(rows),
            places=None if self.places is None else self.places[rows.cpu().numpy()],
            coordinates=None if self.coordinates is None else self.coordinates[rows],
        )

    def joined(self, other: Table) -> Table:
        """The rows of both, these first."""
        soft = 2 in (self.y.dim(), other.y.dim())
        y = torch.cat([table.Y() if soft else table.y for table in (self, other)])
        weights = joined_weights(self.weights, other.weights, len(self.x), len(other.x), self.x)
        x, units = torch.cat([self.x, other.x]), self.units.extended(len(other.x))
        return dataclasses.replace(self, x=x, y=y, weights=weights, units=units, places=None)

    def distinct(self, scale: float | None = None) -> tuple[Table, Tensor, float]:
        """The distinct rows with normalized weights, the number of one copy of each, and the scale of weights.

        See :func:`kernel_embed.splits.distinct_rows`.
        """
        Y = self.Y() if self.num_classes else self.y[:, None]
        parts: list[Any] = [self.x, Y, self.weights, self.units.labels]
        x, y, weights, units = (None if part is None else part.cpu().numpy() for part in parts)
        distinct = distinct_rows(x, y, weights, units, scale)  # type: ignore[arg-type]
        rows, groups = self.rows(distinct.rows), distinct.places if self.units.labels is not None else None
        counts, shares, labels = (_tensor(part, self.x.device) for part in (distinct.weights, distinct.shares, groups))
        part = dataclasses.replace(self.subset(rows), weights=counts, units=Units(labels, shares))
        return dataclasses.replace(part, places=distinct.places), rows, distinct.scale


def _tensor(array: NDArray[Any] | None, device: str | torch.device) -> Any:
    """A copy: the caller may change the array later, and read-only arrays are allowed."""
    return None if array is None else torch.tensor(array, device=device)


def is_exact(n: int) -> bool:
    """Whether embeddings of the classifier are conditioned exactly on n rows."""
    return n <= EXACT


def num_points(n: int) -> int:
    """p, the points of Nyström's features for n rows.

    Example:
        >>> [num_points(n) for n in (20_000, 200_000, 1_000_000)]
        [2500, 1414, 632]
    """
    return int(min(max(math.sqrt(PRODUCTS / n), FEWEST_POINTS), MOST_POINTS))


def thinned(points: Tensor) -> Tensor:
    """Every k-th point, so that at most :data:`PROBES` are left."""
    return points[:: math.ceil(len(points) / PROBES)]


Loss = Callable[[Tensor, Tensor, Tensor | None], float]
"""A loss of leave-one-out values and targets ``(n', m)``, with weights of the rows."""


def calibrated_loss(F: Tensor, Y: Tensor, weights: Tensor | None) -> float:
    """The negative log probability of the labels after calibration."""
    log_p = calibrate(F, Y, weights=weights).log_probabilities(F)
    return weighted_mean(-(Y * log_p).sum(-1), weights)


def weighted_mean(losses: Tensor, weights: Tensor | None) -> float:
    """The weighted mean of one loss for each row."""
    return float(losses.mean() if weights is None else (weights * losses).sum() / weights.sum())


def condition(
    embedding: ConditionalEmbedding,
    table: Table,
    validation_rows: Tensor,
    ridge: float,
    points: Tensor | None,
    exact: bool,
    loss: Loss = calibrated_loss,
) -> tuple[Tensor, LinearPredictor]:
    """Leave-one-out values at the validation rows, and the predictor.

    The ridge is learned again through explicit features, or Nyström features at ``points``, unless those are ``None``.
    Unless ``exact``, the predictor uses the same features; if there are many, the ridge is learned with fewer of them.
    """
    if not exact:
        assert points is not None
        if has_explicit_features(embedding.kernel) or len(points) < 1.5 * PROBES:
            return condition_on_sums(through_features(embedding, table, points), table, validation_rows, ridge, loss)
        few = through_features(embedding, table, thinned(points))
        ridge = _ridges(few, table, validation_rows, loss).best(ridge)
        statistics = through_features(embedding, table, points)
        statistics.embedding.regularization = ridge / statistics.num_data
        predictor = statistics.condition()
        part = table.subset(validation_rows)
        return predictor.leave_one_out_at(part.x, part.y, part.weights, part.units), predictor
    if points is not None:
        Z, Y = explicit_features(_featured(embedding, points).kernel, table.x), embedding.targets(table.y, table.x)
        assert Z is not None
        C = (Z if table.weights is None else table.weights.unsqueeze(-1) * Z).mT @ Y
        path = RidgePath.from_rows(Z, table.weights)
        ridge = _Ridges(path, C, Z[validation_rows], Y[validation_rows], table, validation_rows, loss).best(ridge)
    embedding.regularization = ridge / table.total_weight
    learns = any(parameter.requires_grad for parameter in embedding.parameters())
    # A frozen embedding needs no copy, which would be large for an input transform of many columns.
    conditioned = (embedding.condition if learns else embedding.attach)(**table.data)
    values = conditioned.leave_one_out()[validation_rows]
    if conditioned.system.num_features is not None:
        return values, conditioned
    # The factor is no longer needed: predictions use only the kernel, the points and the coefficients.
    return values, conditioned.expansion()


def condition_on_sums(
    statistics: FeatureStatistics, table: Table, validation_rows: Tensor, ridge: float, loss: Loss = calibrated_loss
) -> tuple[Tensor, LinearPredictor]:
    """Condition on statistics of rows; the table holds at least the validation rows."""
    ridges = _ridges(statistics, table, validation_rows, loss)
    ridge = ridges.best(ridge)
    statistics.embedding.regularization = ridge / statistics.num_data
    return ridges.left_out(ridge), statistics.condition()


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


class _Ridges:
    """An embedding through explicit features on all rows, for every ridge, at validation rows with features ``Z``."""

    def __init__(
        self, path: RidgePath, C: Tensor, Z: Tensor, Y: Tensor, table: Table, validation_rows: Tensor, loss: Loss
    ) -> None:
        self._path, self._C, self._ZQ, self._Y, self._loss = path, C, path.rotate(Z), Y, loss
        self._weights, self._units = table.weights_of(validation_rows), table.units.subset(validation_rows)

    def left_out(self, ridge: float) -> Tensor:
        """Leave-one-out values at the validation rows."""
        return self._path.leave_one_out(self._ZQ, self._Y, self._C, ridge, self._weights, self._units)

    def best(self, ridge: float) -> float:
        """The multiple of ``ridge`` with the smallest leave-one-out loss."""
        losses = [self._loss(self.left_out(factor * ridge), self._Y, self._weights) for factor in RIDGES]
        return RIDGES[int(np.argmin(losses))] * ridge


def _ridges(statistics: FeatureStatistics, table: Table, validation_rows: Tensor, loss: Loss) -> _Ridges:
    if statistics.G is None or statistics.C is None:
        raise ValueError("There are no rows to learn from.")
    x, y = table.x[validation_rows], table.y[validation_rows]
    Z, Y = statistics.features(x), statistics.embedding.targets(y, x)
    return _Ridges(RidgePath.from_sums(statistics.G), statistics.C, Z, Y, table, validation_rows, loss)
