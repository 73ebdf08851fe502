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

from ..results import Record, column, group, standard_error
from .evaluate import brier_losses, calibration_error, log_losses

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
        num_folds: folds that it finished.
        num_train: rows it was learned on, the mean over folds, and ``num_available``, those it might have had.
        accuracy, nll, brier: with standard errors over folds, or over rows of a single test table.
        calibration_error: of all held-out predictions together.
        bound: of the loss, in its tight form; NaN where there is none.
        num_evaluations, seconds, megabytes: what it cost, the mean over folds; NaN where not known.
        losses: negative log probabilities, one mean for each fold or one value for each row of a single test table.
        folds: which folds ``losses`` belong to; ``None`` for rows.
        note: why it is cut or left out, in words; empty where it is neither.
        behind: how far its NLL is behind the best one's, paired, and ``pvalue``, that this is chance.
    """

    method: str
    note: str
    accuracy: Estimate
    nll: Estimate
    brier: Estimate
    calibration_error: Estimate
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


def rows_of(records: Sequence[Record], arrays: Arrays) -> list[Row]:
    """One row for each method, the best NLL first, the ones left out last."""
    rows = [
        _row(str(method), chosen, arrays) for method, chosen in group(records, lambda record: record["method"]).items()
    ]
    ranked = sorted((row for row in rows if row.finished), key=lambda row: row.nll.mean)
    return [*_compared(ranked), *(row for row in rows if not row.finished)]


def _row(method: str, records: Sequence[Record], arrays: Arrays) -> Row:
    done = [record for record in records if "nll" in record]
    if not done:
        nothing = Estimate(math.nan, math.nan)
        why = f"left out: {records[0].get('left_out')}"
        return Row(method, note=why, accuracy=nothing, nll=nothing, brier=nothing, calibration_error=nothing)
    train, available = column(done, "num_train").mean(), column(done, "num_available").mean()
    notes = []
    if train < available:
        notes.append(f"on {train:.0f} of {available:.0f} rows, to keep to the time")
    if len(done) < len(records):
        missing = next(str(record["left_out"]) for record in records if "nll" not in record)
        notes.append(f"{len(done)} of {len(records)} folds ({missing})")
    single = records[0]["folds"] == 1
    values = _by_row(arrays(done[0])) if single else {}
    accuracy, nll, brier = (
        _estimate(values[name] if single and values else column(done, name)) for name in ("accuracy", "nll", "brier")
    )
    return Row(
        method,
        "; ".join(notes),
        accuracy,
        nll,
        brier,
        _calibration(done, arrays),
        num_folds=len(done),
        num_train=float(train),
        num_available=float(available),
        bound=_mean(done, "tight_bound"),
        num_evaluations=_mean(done, "num_evaluations"),
        seconds=_mean(done, "fit_seconds"),
        megabytes=_mean(done, "peak_megabytes"),
        losses=values["nll"] if values else column(done, "nll"),
        folds=None if single else tuple(int(fold) for fold in column(done, "fold")),
        test_share=float((column(done, "num_test") / column(done, "num_available")).mean()),
    )


def _calibration(done: Sequence[Record], arrays: Arrays) -> Estimate:
    """Of the predictions of all folds together: a fold has too few of them for ten bins."""
    kept = [found for found in map(arrays, done) if found]
    if not kept:
        return Estimate(float(column(done, "calibration_error").mean()), math.nan)
    p, truth = (np.concatenate([found[name] for found in kept]) for name in ("probabilities", "truth"))
    return Estimate(calibration_error(p.max(axis=1), p.argmax(axis=1) == truth), math.nan)


def _by_row(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """Accuracy, NLL and Brier score of every row of a test table."""
    if not arrays:
        return {}
    p = arrays["probabilities"]
    truth = np.arange(p.shape[1])[None, :] == arrays["truth"][:, None]
    correct = (p.argmax(axis=1) == arrays["truth"]).astype(np.float64)
    return {"accuracy": correct, "nll": log_losses(p, truth), "brier": brier_losses(p, truth)}


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
    """NLL(row) − NLL(other) on the folds that both have, or on every row of a single test table."""
    if row.folds is None or other.folds is None:
        return row.losses - other.losses
    ours, theirs = (dict(zip(r.folds or (), r.losses, strict=True)) for r in (row, other))
    return np.array([ours[fold] - theirs[fold] for fold in row.folds if fold in theirs])


def paired(row: Row, best: Row) -> tuple[Estimate, float]:
    """The mean of NLL(row) − NLL(best), its standard error with the correction above, and the p-value."""
    difference = differences(row, best)
    k, share = len(difference), 0.0 if row.folds is None else best.test_share
    if k < 2:
        return Estimate(float(difference.mean()) if k else math.nan, math.nan), math.nan
    error = math.sqrt((1.0 / k + share) * difference.var(ddof=1))
    mean = float(difference.mean())
    if error == 0.0:
        return Estimate(mean, 0.0), 1.0 if mean == 0.0 else 0.0
    return Estimate(mean, error), float(2.0 * stats.t.sf(abs(mean) / error, k - 1))
