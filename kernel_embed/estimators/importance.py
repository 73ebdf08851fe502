"""Permutation importance of the columns, from predictions of rows that were held out.

The importance of a column is the increase in loss when its values are exchanged between rows, which breaks their link
to the target (Breiman 2001). Rows that the model learned from would show what it memorized, so each row is predicted by
a model without it: kernels and ridges stay as learned, by those of a pool that were learned without the row, and the
coefficients are computed again from the rows of the other folds. All numbers that encode one column move together, and
they come from rows that the model has not seen either.

Two rows in different folds predict each other. For a column without effect the sum over rows is therefore a degenerate
U-statistic, in which every pair counts twice, and its variance is twice that of independent rows. The standard error
includes this factor; for columns with an effect it is too large by up to √2.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..embeddings import ConditionedMulticlass, LinearPredictor
from ..resources import few_threads
from ..splits import RandomState, seed_of
from ..validation import check_count
from .conditioning import Table
from .pooled import PooledPredictor, refitted

Array = NDArray[np.float64]

NUM_FOLDS = 5
"""Folds, if the model does not bring parts of its own."""

TRAINING_ROWS = 1000
"""Rows from which coefficients are computed, at most."""

CELLS = 200_000
"""Rows times columns, at most, but no fewer than :data:`FEWEST_ROWS` rows: many columns take fewer rows."""
FEWEST_ROWS = 100

Loss = Callable[[Tensor, Tensor], Tensor]
"""The loss at points x ``(t, D)`` in the place of the rows with these numbers, ``(t,)``: ``(t,)``."""


@dataclasses.dataclass(frozen=True)
class Fold:
    """Row numbers of a table that are predicted together, and their loss by a model without them."""

    rows: Tensor
    loss: Loss


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Encoded rows ``x`` ``(n, D)`` of one output with their weights, and folds of some of them."""

    x: Tensor
    weights: Tensor | None
    folds: Sequence[Fold]

    @property
    def rows(self) -> Tensor:
        """The numbers of the rows in all folds."""
        return torch.cat([fold.rows for fold in self.folds])

    def increases(self, columns: Tensor, num_repeats: int, generator: np.random.Generator) -> Tensor:
        """The mean increase in loss of each of the rows over permutations of the encoded ``columns`` within folds."""
        parts = []
        for fold in self.folds:
            again, points = fold.rows.repeat(num_repeats), self.x[fold.rows].repeat(num_repeats, 1)
            sources = [fold.rows[_cycle(len(fold.rows), generator)] for _ in range(num_repeats)]
            points[:, columns] = self.x[torch.cat(sources)][:, columns]
            loss = fold.loss(torch.cat([points, self.x[fold.rows]]), torch.cat([again, fold.rows]))
            permuted, plain = loss[: len(again)].reshape(num_repeats, -1), loss[len(again) :]
            parts.append(permuted.mean(0) - plain)
        return torch.cat(parts)

    def mean_and_error(self, increases: Tensor) -> tuple[float, float]:
        """Their weighted mean, and its standard error; see the module docstring for the factor 2."""
        p = torch.ones_like(increases) if self.weights is None else self.weights[self.rows]
        p = p / p.sum()
        mean = p @ increases
        return float(mean), float((2.0 * p.square() @ (increases - mean).square()).sqrt())


@dataclasses.dataclass(frozen=True, repr=False)
class FeatureImportances:
    """The importance of each column, in the order of the table.

    Attributes:
        names: of the columns.
        mean: the increase in loss, ``(columns,)``; 0 for a column that the model does not use.
        standard_error: its standard error over the rows, ``(columns,)``.
        loss: which loss, in words.
        num_rows: the rows that were predicted.

    Example:
        >>> print(FeatureImportances(("age", "town"), np.array([0.1, 0.5]), np.array([0.02, 0.03]), "log loss", 80))
        increase in log loss, 80 rows
        town    0.500 ± 0.030
        age     0.100 ± 0.020
    """

    names: tuple[str, ...]
    mean: Array
    standard_error: Array
    loss: str
    num_rows: int

    def __repr__(self) -> str:
        width = max(map(len, self.names), default=0)
        lines = [
            f"{self.names[j]:<{width}}  {self.mean[j]:7.3f} ± {self.standard_error[j]:.3f}"
            for j in np.argsort(-self.mean, kind="stable")
        ]
        return "\n".join([f"increase in {self.loss}, {self.num_rows} rows", *lines])

    def as_dict(self) -> dict[str, float]:
        """The means by name, the most important column first."""
        return {self.names[j]: float(self.mean[j]) for j in np.argsort(-self.mean, kind="stable")}


class ImportanceMixin(BaseEstimator, abc.ABC):
    """Feature importances of an estimator that says how its rows are predicted without them."""

    encoder_: Any
    n_features_in_: int
    _loss_name: str
    _importances: FeatureImportances | None = None

    @property
    def feature_importances_(self) -> Array:
        """The means of :meth:`permutation_importance`, one for each column of X, computed at the first access.

        An array in the order of the columns, as scikit-learn's tools expect it. The values are increases in loss and
        do not add up to one; a column without effect has about 0, or slightly less.
        """
        check_is_fitted(self)
        if self._importances is None:
            self._importances = self.permutation_importance()
        return self._importances.mean

    @torch.no_grad()
    def permutation_importance(
        self, num_repeats: int = 5, max_rows: int = 500, random_state: RandomState = 0
    ) -> FeatureImportances:
        """How much the loss on held-out training rows increases when a column is permuted.

        The loss is the negative log probability of the label, in nats, or the CRPS, in standard deviations of the
        target. No new data are needed: each row is predicted by a model that has not seen its target.

        Args:
            num_repeats: permutations of each column.
            max_rows: rows that are predicted, at most; fewer for tables with more than 400 columns.
            random_state: seed of the permutations and of the choice of rows.

        Returns:
            Mean and standard error for each column; print it for a table.

        Raises:
            ValueError: if a number is below 1.
        """
        check_is_fitted(self)
        check_count("num_repeats", num_repeats)
        check_count("max_rows", max_rows)
        generator = np.random.default_rng(seed_of(random_state))
        most = min(max_rows, max(FEWEST_ROWS, CELLS // self.n_features_in_))
        means, errors = [], []
        with few_threads(TRAINING_ROWS):
            for held_out in self._held_out(most, generator):
                source = self._sources().to(held_out.x.device)
                values = np.zeros((self.n_features_in_, 2))
                for column in source.unique().tolist():
                    increases = held_out.increases(source == column, num_repeats, generator)
                    values[column] = held_out.mean_and_error(increases)
                means.append(values[:, 0])
                errors.append(values[:, 1])
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(self.n_features_in_)])
        # The standard error of a mean over outputs is at most the mean of theirs.
        return FeatureImportances(
            tuple(map(str, names)), np.mean(means, axis=0), np.mean(errors, axis=0), self._loss_name, len(held_out.rows)
        )

    def _sources(self) -> Tensor:
        """The table column of each encoded column, ``(D,)``."""
        if self.encoder_ is None:
            return torch.arange(self.n_features_in_)
        return torch.tensor([output.source for output in self.encoder_.encoded_])

    @abc.abstractmethod
    def _held_out(self, max_rows: int, generator: np.random.Generator) -> Iterator[HeldOut]:
        """At most ``max_rows`` rows of each output, with models that have not seen them."""


def _cycle(n: int, generator: np.random.Generator) -> Tensor:
    """A random permutation that is one cycle: no row keeps its value."""
    order = generator.permutation(n)
    cycle = np.empty(n, dtype=np.int64)
    cycle[order] = np.roll(order, 1)
    return torch.as_tensor(cycle)


def random_folds(
    units: NDArray[np.int64], max_rows: int, generator: np.random.Generator
) -> list[tuple[Tensor, Tensor]]:
    """Row numbers to predict and to learn from, in :data:`NUM_FOLDS` folds; rows of one unit share a fold."""
    numbers, inverse = np.unique(units, return_inverse=True)
    fold = (generator.permutation(len(numbers)) % min(NUM_FOLDS, max(len(numbers), 2)))[inverse]
    predicted = generator.permutation(len(units))[:max_rows]
    return [
        (torch.as_tensor(np.sort(predicted[fold[predicted] == k])), training_rows(np.flatnonzero(fold != k), generator))
        for k in np.unique(fold[predicted])
        if len(numbers) > 1
    ] or [(torch.arange(len(units)), torch.arange(len(units)))]


def training_rows(rows: NDArray[np.int64], generator: np.random.Generator) -> Tensor:
    """At most :data:`TRAINING_ROWS` of them."""
    if len(rows) > TRAINING_ROWS:
        rows = np.sort(generator.permutation(rows)[:TRAINING_ROWS])
    return torch.as_tensor(rows)


def units_of(table: Table) -> NDArray[np.int64]:
    """A number for each row; rows with equal inputs, or of one group, share it."""
    if table.places is not None:
        return table.places
    units: NDArray[np.int64] = np.unique(table.x.cpu().numpy(), axis=0, return_inverse=True)[1].ravel()
    return units


def classifier_held_out(
    predictor: PooledPredictor | ConditionedMulticlass,
    table: Table,
    calibrated: Callable[[Tensor], Tensor],
    max_rows: int,
    generator: np.random.Generator,
) -> HeldOut:
    """Rows, and the negative log probability of their labels; ``calibrated`` are the values of one embedding."""

    def fold(rows: Tensor, without: PooledPredictor | LinearPredictor) -> Fold:
        def loss(x: Tensor, rows: Tensor) -> Tensor:
            p = without.evaluate(x) if isinstance(without, PooledPredictor) else calibrated(without.evaluate(x))
            return -(table.Y(rows) * p.clamp_min(1e-300).log()).sum(-1)

        return Fold(rows, loss)

    if isinstance(predictor, PooledPredictor):
        folds = [fold(*part) for part in _pool_folds(predictor, table, max_rows, generator)]
    else:
        folds = [fold(*part) for part in _embedding_folds(predictor, table, max_rows, generator)]
    return HeldOut(table.x, table.weights, folds)


def _pool_folds(
    pool: PooledPredictor, table: Table, max_rows: int, generator: np.random.Generator
) -> Iterator[tuple[Tensor, PooledPredictor]]:
    """Rows, and the pool without them: for each part of the rows, its embeddings conditioned on the other parts."""
    rows, parts = pool.left_out_rows.cpu().numpy(), pool.left_out_parts.cpu().numpy()
    predicted = np.sort(generator.permutation(len(rows))[:max_rows])
    for k in np.unique(parts):
        others = np.setdiff1d(np.arange(len(table.x)), rows[parts == k])
        if len(others) == 0:  # too few rows for parts
            for inside, training in random_folds(units_of(table), max_rows, generator):
                yield inside.to(table.x.device), pool.refitted(table, training.to(table.x.device), int(k))
        elif bool((parts[predicted] == k).any()):
            training = training_rows(others, generator).to(table.x.device)
            yield table.rows(rows[predicted[parts[predicted] == k]]), pool.refitted(table, training, int(k))


def _embedding_folds(
    conditioned: ConditionedMulticlass, table: Table, max_rows: int, generator: np.random.Generator
) -> Iterator[tuple[Tensor, LinearPredictor]]:
    """Rows, and one embedding conditioned on the other folds; its kernel was learned from all rows."""
    for inside, training in random_folds(units_of(table), max_rows, generator):
        subset = table.subset(training.to(table.x.device))
        yield inside.to(table.x.device), refitted(conditioned, table, subset)
