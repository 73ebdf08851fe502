r"""Rows of an encoded table, and embeddings conditioned on all of them, with the ridge learned on all rows.

Hyperparameters learned from a sample suit all rows, except for the ridge: more rows need a smaller one. It is learned
again on all rows, from the leave-one-out values of explicit features for a path of ridges
(:class:`kernel_embed.linalg.RidgePath`), which one eigendecomposition gives.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

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
from ..splits import Floats, distinct_rows
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
        x: Floats,
        y: NDArray[Any],
        targets: Targets,
        encoder: TableEncoder | None,
        m: int = 0,
        device: str | None = None,
    ) -> Table:
        """Encoded rows with targets ``y``, and the weights and groups of ``targets``, as tensors of their own."""
        groups, numbers = np.arange(x.shape[1]), np.ones(x.shape[1], dtype=bool)
        if encoder is not None:
            groups, numbers = encoder.groups_, encoder.numbers_
        arrays = {"x": x, "y": y, "weights": targets.weights, "groups": groups, "numbers": numbers}
        tensors = {name: _tensor(array, device or "cpu") for name, array in arrays.items()}
        return cls(**tensors, num_classes=m, units=Units(_tensor(targets.groups, device or "cpu")))

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
    def shares(self) -> Tensor:
        """w/n, ``(n,)``."""
        w = self.x.new_ones(len(self.x)) if self.weights is None else self.weights
        return w / w.sum()

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
        parts: list[Any] = [self.x, self.Y() if self.num_classes else self.y[:, None], self.weights, self.units.labels]
        x, Y, weights, units = (None if part is None else part.cpu().numpy() for part in parts)
        distinct = distinct_rows(x, Y, weights, units, scale)  # type: ignore[arg-type]
        rows, places = self.rows(distinct.rows), distinct.places
        of_rows = (distinct.weights, None if units is None else places, distinct.shares)
        counts, labels, shares = (_tensor(array, self.x.device) for array in of_rows)
        part = dataclasses.replace(self.subset(rows), weights=counts, units=Units(labels, shares), places=places)
        return part, rows, distinct.scale


def _tensor(array: NDArray[Any] | None, device: str | torch.device) -> Any:
    """A copy: the caller may change the array later, and read-only arrays are allowed."""
    return None if array is None else torch.tensor(array, device=device)


def is_exact(n: int) -> bool:
    """Whether embeddings of the classifier are conditioned exactly on n rows."""
    return n <= EXACT


def num_points(n: int) -> int:
    """p, the points of Nyström's features for n rows."""
    return int(min(max(math.sqrt(PRODUCTS / n), FEWEST_POINTS), MOST_POINTS))


def thinned(points: Tensor) -> Tensor:
    """Every k-th point, so that at most :data:`PROBES` are left."""
    return points[:: math.ceil(len(points) / PROBES)]


Loss = Callable[[Tensor, Tensor, Tensor | None], float]  # of left-out values and targets (n', m), and weights of rows


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
        part = table.subset(validation_rows)
        if has_explicit_features(embedding.kernel) or len(points) < 1.5 * PROBES:
            return condition_on_sums(through_features(embedding, table, points), part, ridge, loss)
        ridge = _Ridges.of(through_features(embedding, table, thinned(points)), part, loss).best(ridge)
        statistics = through_features(embedding, table, points)
        statistics.embedding.regularization = ridge / statistics.num_data
        predictor = statistics.condition()
        return predictor.leave_one_out_at(part.x, part.y, part.weights, part.units), predictor
    if points is not None:
        Z, Y = explicit_features(_featured(embedding, points).kernel, table.x), embedding.targets(table.y, table.x)
        assert Z is not None
        C = (Z if table.weights is None else table.weights.unsqueeze(-1) * Z).mT @ Y
        path, rows = RidgePath.from_rows(Z, table.weights), validation_rows
        ZQ, weights, units = path.rotate(Z[rows]), table.weights_of(rows), table.units.subset(rows)
        ridge = _Ridges(path, C, ZQ, Y[rows], weights, units, loss).best(ridge)
    embedding.regularization = ridge / table.total_weight
    # A frozen embedding needs no copy, which would be large for an input transform of many columns.
    learns = any(parameter.requires_grad for parameter in embedding.parameters())
    conditioned = (embedding.condition if learns else embedding.attach)(**table.data)
    values = conditioned.leave_one_out()[validation_rows]
    if conditioned.system.num_features is not None:
        return values, conditioned
    # The factor is no longer needed: predictions use only the kernel, the points and the coefficients.
    return values, conditioned.expansion()


def condition_on_sums(
    statistics: FeatureStatistics, validation: Table, ridge: float, loss: Loss = calibrated_loss
) -> tuple[Tensor, LinearPredictor]:
    """Leave-one-out values at the ``validation`` rows, and the predictor, from statistics of all rows."""
    ridges = _Ridges.of(statistics, validation, loss)
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


class _Ridges(NamedTuple):
    """An embedding through explicit features on all rows, for every ridge."""

    path: RidgePath  # of all rows
    C: Tensor  # ZᵀWY of all rows
    ZQ: Tensor  # rotated features of the validation rows, and their targets
    Y: Tensor
    weights: Tensor | None
    units: Units
    loss: Loss

    @classmethod
    def of(cls, statistics: FeatureStatistics, part: Table, loss: Loss) -> _Ridges:
        """The same from statistics of all rows, for the validation rows ``part``."""
        G, C = statistics.G, statistics.C
        assert G is not None
        assert C is not None
        path, Z, Y = RidgePath.from_sums(G), statistics.features(part.x), statistics.embedding.targets(part.y, part.x)
        return cls(path, C, path.rotate(Z), Y, part.weights, part.units, loss)

    def left_out(self, ridge: float) -> Tensor:
        """Leave-one-out values at the validation rows."""
        return self.path.leave_one_out(self.ZQ, self.Y, self.C, ridge, self.weights, self.units)

    def best(self, ridge: float) -> float:
        """The multiple of ``ridge`` with the smallest leave-one-out loss."""
        losses = [self.loss(self.left_out(factor * ridge), self.Y, self.weights) for factor in RIDGES]
        return RIDGES[int(np.argmin(losses))] * ridge
