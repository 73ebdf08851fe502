"""Permutation importance of the columns, from predictions of rows that were held out.

The importance of a column is the increase in loss when its values are exchanged between rows (Breiman 2001). Each row
is predicted by a model without it: kernels and ridges stay as learned, by those of a pool that were learned without the
row, and the coefficients are computed again from the rows of the other folds. All numbers that encode one column move
together, and they come from rows that the model has not seen either.

Two rows in different folds predict each other. For a column without effect the sum over rows is therefore a degenerate
U-statistic, in which every pair counts twice, and its variance is twice that of independent rows. The standard error
includes this factor; for columns with an effect it is too large by up to √2.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ..embeddings import ConditionedMulticlass, LinearPredictor
from ..runtime import cpu_by_default, few_threads
from ..splits import Floats, Integers, RandomState, seed_of
from ..tabular.encoder import TableEncoder, TakesTables
from ..validation import check_count
from .conditioning import Table
from .pooled import PooledPredictor, refitted

NUM_FOLDS = 5  # for a model that was learned on all rows at once
TRAINING_ROWS = 1000  # rows from which coefficients are computed, at most
CELLS, FEWEST_ROWS = 200_000, 100
"""Rows times columns, at most, but no fewer than this many rows: many columns take fewer rows."""

Fold = tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]
"""Row numbers, and the loss of a model without them at points ``(t, D)`` in the place of rows with numbers ``(t,)``."""


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """The rows of one output, and folds of some of them."""

    table: Table
    folds: Sequence[Fold]

    def importance(self, columns: Tensor, num_repeats: int, generator: np.random.Generator) -> tuple[float, float]:
        """The mean increase in loss over permutations of encoded ``columns`` within folds, and its standard error."""
        x, parts = self.table.x, []
        for rows, loss in self.folds:
            again, points = rows.repeat(num_repeats), x[rows].repeat(num_repeats, 1)
            sources = torch.cat([rows[_cycle(len(rows), generator)] for _ in range(num_repeats)])
            points[:, columns] = x[sources][:, columns]
            losses = loss(torch.cat([points, x[rows]]), torch.cat([again, rows]))
            permuted, plain = losses[: len(again)].reshape(num_repeats, -1), losses[len(again) :]
            parts.append(permuted.mean(0) - plain)
        increases, p = torch.cat(parts), self.table.subset(torch.cat([rows for rows, _ in self.folds])).shares
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
    mean: Floats
    standard_error: Floats
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


class ImportanceMixin(TakesTables, abc.ABC):
    """Feature importances of an estimator, from predictions of its training rows by models without them."""

    encoder_: TableEncoder | None
    n_features_in_: int
    _loss_name: str
    _importances: FeatureImportances | None = None

    @property
    def feature_importances_(self) -> Floats:
        """The means of :meth:`permutation_importance`, one for each column of X, computed at the first access.

        They are increases in loss and do not add up to one; a column without effect has about 0, or slightly less.
        """
        check_is_fitted(self)
        if self._importances is None:
            self._importances = self.permutation_importance()
        return self._importances.mean

    @cpu_by_default()
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
        d = self.n_features_in_
        # The table column of each encoded one
        source = np.array(range(d) if self.encoder_ is None else [one.source for one in self.encoder_.encoded_])
        outputs = []
        with few_threads(TRAINING_ROWS):
            for held_out in self._held_out(min(max_rows, max(FEWEST_ROWS, CELLS // d)), generator):
                values = np.zeros((d, 2))
                for column in np.unique(source).tolist():
                    columns = torch.as_tensor(source == column, device=held_out.table.x.device)
                    values[column] = held_out.importance(columns, num_repeats, generator)
                outputs.append(values)
        names = getattr(self, "feature_names_in_", [f"x{j}" for j in range(d)])
        mean, error = np.mean(
            outputs, axis=0
        ).T  # the standard error of a mean over outputs is at most the mean of theirs
        num_rows = sum(len(rows) for rows, _ in held_out.folds)
        return FeatureImportances(tuple(map(str, names)), mean, error, self._loss_name, num_rows)

    @abc.abstractmethod
    def _held_out(self, max_rows: int, generator: np.random.Generator) -> Iterator[HeldOut]:
        """At most ``max_rows`` rows of each output, with models that have not seen them."""


def _cycle(n: int, generator: np.random.Generator) -> Tensor:
    """A random permutation that is one cycle: no row keeps its value."""
    order = generator.permutation(n)
    return torch.as_tensor(np.roll(order, 1)[order.argsort()], device="cpu")


def random_folds(table: Table, max_rows: int, generator: np.random.Generator) -> list[tuple[Tensor, Tensor]]:
    """Row numbers to predict and to learn from; rows with equal inputs, or of one group, share a fold."""
    n, units = len(table.x), table.places
    if units is None:
        units = np.unique(table.x.cpu().numpy(), axis=0, return_inverse=True)[1].ravel()
    numbers, inverse = np.unique(units, return_inverse=True)
    if len(numbers) == 1:
        return [(table.rows(np.arange(n)), table.rows(np.arange(n)))]
    fold = (generator.permutation(len(numbers)) % min(NUM_FOLDS, len(numbers)))[inverse]
    predicted = generator.permutation(n)[:max_rows]
    folds = []
    for k in np.unique(fold[predicted]):
        training = _training_rows(np.flatnonzero(fold != k), generator)
        folds.append((table.rows(np.sort(predicted[fold[predicted] == k])), table.rows(training)))
    return folds


def _training_rows(rows: Integers, generator: np.random.Generator) -> Integers:
    return rows if len(rows) <= TRAINING_ROWS else np.sort(generator.permutation(rows)[:TRAINING_ROWS])


def classifier_held_out(
    predictor: PooledPredictor | ConditionedMulticlass,
    table: Table,
    calibrated: Callable[[Tensor], Tensor],
    max_rows: int,
    generator: np.random.Generator,
) -> HeldOut:
    """Rows, and the negative log probability of their labels; ``calibrated`` are the values of one embedding."""

    def loss(model: PooledPredictor | LinearPredictor, x: Tensor, rows: Tensor) -> Tensor:
        p = model.evaluate(x) if isinstance(model, PooledPredictor) else calibrated(model.evaluate(x))
        return -(table.Y(rows) * p.clamp_min(1e-300).log()).sum(-1)

    models = _models_without(predictor, table, max_rows, generator)
    return HeldOut(table, [(rows, functools.partial(loss, model)) for rows, model in models])


def _models_without(
    predictor: PooledPredictor | ConditionedMulticlass, table: Table, max_rows: int, generator: np.random.Generator
) -> Iterator[tuple[Tensor, PooledPredictor | LinearPredictor]]:
    """Rows, and the model without them: with kernels that were learned without them if it is a pool of parts."""
    if not isinstance(predictor, PooledPredictor):
        for inside, training in random_folds(table, max_rows, generator):
            yield inside, refitted(predictor, table, table.subset(training))
        return
    rows, parts = predictor.left_out_rows.cpu().numpy(), predictor.left_out_parts.cpu().numpy()
    predicted = np.sort(generator.permutation(len(rows))[:max_rows])
    for k in np.unique(parts):
        others = np.setdiff1d(np.arange(len(table.x)), rows[parts == k])
        if len(others) == 0:  # too few rows for parts
            for inside, training in random_folds(table, max_rows, generator):
                yield inside, predictor.refitted(table, training, int(k))
        elif bool((parts[predicted] == k).any()):
            training = table.rows(_training_rows(others, generator))
            yield table.rows(rows[predicted[parts[predicted] == k]]), predictor.refitted(table, training, int(k))
