r"""Which learner is best and which differences are real: means, standard errors, paired comparisons.

With :math:`\delta_f` the difference of two learners on fold f of k, the folds share most of their training rows, so
that the standard error of their mean is taken with the correction of Nadeau and Bengio (2003),

.. math::  \mathrm{se}^2 = \Big(\frac1k + \frac{n_\text{test}}{n_\text{train}}\Big) \operatorname{var}_f \delta_f ,

and :math:`\bar\delta / \mathrm{se}` is compared with Student's t of k − 1 degrees of freedom. With a single test table
the differences are those of its rows, which are independent, and no correction is needed. P-values are not adjusted for
the number of rows: what is said of two learners must not change with the company of a third.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...results import Record, column, group, standard_error
from .task import CLASSIFICATION, Task

Arrays = Callable[[Record], dict[str, NDArray[Any]]]


class Estimate(NamedTuple):
    """A mean with its standard error, which is NaN where there is nothing to take it over."""

    mean: float
    error: float

    def text(self, digits: int = 3, factor: float = 1.0) -> str:
        """``0.912 ± 0.021``."""
        if math.isnan(self.mean):
            return "–"
        spread = "" if math.isnan(self.error) else f" ± {factor * self.error:.{digits}f}"
        return f"{factor * self.mean:.{digits}f}{spread}"


class Row(NamedTuple):
    """One learner on one table.

    Attributes:
        method: its name.
        note: why it is cut or left out, in words; empty where it is neither.
        loss: what learners are ranked by, the NLL of classes and the CRPS of numbers, with its standard error over
            folds, or over rows of a single test table.
        scores: all scores by name, the loss among them; coverage and calibration error of all held-out predictions
            together.
        num_folds: folds that it finished.
        num_train: rows it was learned on, the mean over folds, and ``num_available``, those it might have had.
        bound: of the loss, in its tight form; NaN where there is none.
        num_evaluations, seconds, megabytes: what it cost, the mean over folds; NaN where not known.
        losses: the loss, one mean for each fold or one value for each row of a single test table.
        folds: which folds ``losses`` belong to; ``None`` for rows.
        behind: how far its loss is behind the best one's, paired, and ``pvalue``, that this is chance.
    """

    method: str
    note: str
    loss: Estimate
    scores: dict[str, Estimate]
    num_folds: int = 0
    num_train: float = 0.0
    num_available: float = 0.0
    bound: float = math.nan
    num_evaluations: float = math.nan
    seconds: float = math.nan
    megabytes: float = math.nan
    losses: NDArray[np.float64] = np.empty(0)
    folds: tuple[int, ...] | None = ()
    test_share: float = 0.0
    behind: Estimate = Estimate(math.nan, math.nan)
    pvalue: float = math.nan

    @property
    def finished(self) -> bool:
        """Whether it has figures at all."""
        return self.num_folds > 0

    @property
    def nll(self) -> Estimate:
        """Of classes, the loss."""
        return self.scores["nll"]

    @property
    def calibration_error(self) -> Estimate:
        """Of classes, of all held-out predictions together."""
        return self.scores["calibration_error"]


def rows_of(records: Sequence[Record], arrays: Arrays, task: Task = CLASSIFICATION) -> list[Row]:
    """One row for each method, the lowest loss first, the ones left out last."""
    by_method = group(records, lambda record: record["method"])
    rows = [_row(str(method), chosen, arrays, task) for method, chosen in by_method.items()]
    ranked = sorted((row for row in rows if row.finished), key=lambda row: row.loss.mean)
    return [*_compared(ranked), *(row for row in rows if not row.finished)]


def _row(method: str, records: Sequence[Record], arrays: Arrays, task: Task) -> Row:
    done = [record for record in records if "left_out" not in record]
    if not done:
        nothing = Estimate(math.nan, math.nan)
        why = f"left out: {records[0].get('left_out')}"
        return Row(method, why, nothing, dict.fromkeys(task.scores, nothing))
    train, available = column(done, "num_train").mean(), column(done, "num_available").mean()
    notes = []
    if train < available:
        notes.append(f"on {train:.0f} of {available:.0f} rows, to keep to the time")
    if len(done) < len(records):
        missing = next(str(record["left_out"]) for record in records if "left_out" in record)
        notes.append(f"{len(done)} of {len(records)} folds ({missing})")
    single = records[0]["folds"] == 1
    values = task.by_row(arrays(done[0])) if single else {}
    scores = {name: _estimate(values[name] if name in values else column(done, name)) for name in task.scores}
    kept = [found for found in map(arrays, done) if found]
    if kept:
        scores.update({name: Estimate(value, math.nan) for name, value in task.pooled(kept).items()})
    return Row(
        method,
        "; ".join(notes),
        scores[task.loss],
        scores,
        num_folds=len(done),
        num_train=float(train),
        num_available=float(available),
        bound=_mean(done, "tight_bound"),
        num_evaluations=_mean(done, "num_evaluations"),
        seconds=_mean(done, "fit_seconds"),
        megabytes=_mean(done, "peak_megabytes"),
        losses=values[task.loss] if values else column(done, task.loss),
        folds=None if single else tuple(int(fold) for fold in column(done, "fold")),
        test_share=float((column(done, "num_test") / column(done, "num_available")).mean()),
    )


def _estimate(values: NDArray[np.float64]) -> Estimate:
    return Estimate(float(values.mean()), standard_error(values) if len(values) > 1 else math.nan)


def _mean(records: Sequence[Record], field: str) -> float:
    known = [record for record in records if record.get(field) is not None]
    return float(column(known, field).mean()) if known else math.nan


def _compared(ranked: list[Row]) -> list[Row]:
    """Each row with its paired difference from the first, and the p-value of that."""
    if not ranked:
        return []
    best = ranked[0]
    compared = [best._replace(behind=Estimate(0.0, math.nan))]
    for row in ranked[1:]:
        difference, pvalue = paired(row, best)
        compared.append(row._replace(behind=difference, pvalue=pvalue))
    return compared


def differences(row: Row, other: Row) -> NDArray[np.float64]:
    """The loss of ``row`` less that of ``other`` on the folds that both have, or on every row of a test table."""
    if row.folds is None or other.folds is None:
        return row.losses - other.losses
    ours, theirs = (dict(zip(r.folds or (), r.losses, strict=True)) for r in (row, other))
    return np.array([ours[fold] - theirs[fold] for fold in row.folds if fold in theirs])


def paired(row: Row, best: Row) -> tuple[Estimate, float]:
    """The mean difference of their losses, its standard error with the correction above, and the p-value."""
    difference = differences(row, best)
    k, share = len(difference), 0.0 if row.folds is None else best.test_share
    if k < 2:
        return Estimate(float(difference.mean()) if k else math.nan, math.nan), math.nan
    error = math.sqrt((1.0 / k + share) * difference.var(ddof=1))
    mean = float(difference.mean())
    if error == 0.0:
        return Estimate(mean, 0.0), 1.0 if mean == 0.0 else 0.0
    return Estimate(mean, error), float(2.0 * stats.t.sf(abs(mean) / error, k - 1))
