r"""The best learner, significant differences, and the recommended learner.

With :math:`\delta_f` the difference of two learners on fold f of k, the folds share most of their training rows, so
that the standard error of their mean has the correction of Nadeau and Bengio (2003),

.. math::  \mathrm{se}^2 = \Big(\frac1k + \frac{n_\text{test}}{n_\text{train}}\Big) \operatorname{var}_f \delta_f ,

and :math:`\bar\delta / \mathrm{se}` is compared with Student's t of k − 1 degrees of freedom. With a single test table
the differences are those of its rows, which are independent, and no correction is needed. P-values are not adjusted for
the number of learners: a statement about two of them must not depend on a third.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from ...results import Record, column, group, standard_error
from ..runner import LEFT_OUT, finished
from .tasks import CLASSIFICATION, Arrays, Task


class Estimate(NamedTuple):
    """A mean with its standard error, which is NaN if it cannot be computed."""

    mean: float
    error: float

    def text(self, digits: int = 3, factor: float = 1.0, with_error: bool = True) -> str:
        """``0.912 ± 0.021``."""
        if math.isnan(self.mean):
            return "–"
        spread = "" if math.isnan(self.error) or not with_error else f" ± {factor * self.error:.{digits}f}"
        return f"{factor * self.mean:.{digits}f}{spread}"


UNKNOWN = Estimate(math.nan, math.nan)


class Row(NamedTuple):
    """One learner on one table; its numbers are means over the folds that it finished, and NaN if not known.

    ``note`` says why it had fewer rows or was left out. ``losses`` are those of ``folds``, or, with ``folds=None``, of
    every row of a single test table. ``behind`` is the paired difference from the best row's loss.
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
    behind: Estimate = UNKNOWN
    pvalue: float = math.nan

    @property
    def finished(self) -> bool:
        """Whether it has figures."""
        return self.num_folds > 0


def rows_of(records: Sequence[Record], arrays: Callable[[Record], Arrays], task: Task = CLASSIFICATION) -> list[Row]:
    """One row for each method, the lowest loss first, the ones left out last."""
    by_method = group(records, lambda record: record["method"])
    rows = [_row(str(method), folds, arrays, task) for method, folds in by_method.items()]
    compared: list[Row] = []
    for row in sorted((row for row in rows if row.finished), key=lambda row: row.loss.mean):
        behind, pvalue = paired(row, compared[0]) if compared else (Estimate(0.0, math.nan), math.nan)
        compared.append(row._replace(behind=behind, pvalue=pvalue))
    return [*compared, *(row for row in rows if not row.finished)]


def _row(method: str, records: Sequence[Record], arrays: Callable[[Record], Arrays], task: Task) -> Row:
    done = finished(records)
    if not done:
        return Row(method, f"left out: {records[0][LEFT_OUT]}", UNKNOWN, {score.name: UNKNOWN for score in task.scores})
    train, available = column(done, "num_train").mean(), column(done, "num_available").mean()
    notes = []
    if train < available:
        notes.append(f"on {train:.0f} of {available:.0f} rows, to keep to the time")
    if len(done) < len(records):
        missing = next(record[LEFT_OUT] for record in records if LEFT_OUT in record)
        notes.append(f"{len(done)} of {len(records)} folds ({missing})")
    single = records[0]["folds"] == 1
    folds = [predictions for predictions in map(arrays, done) if predictions]
    values = task.score_rows(folds[0]) if single and folds else {}
    scores = {}
    for score in task.scores:
        numbers = values[score.name] if score.name in values else column(done, score.name)
        error = standard_error(numbers) if len(numbers) > 1 else math.nan
        scores[score.name] = Estimate(float(numbers.mean()), error)
    if folds:
        scores.update({name: Estimate(value, math.nan) for name, value in task.pool(folds).items()})
    costs = ("tight_bound", "num_evaluations", "fit_seconds", "peak_megabytes")
    bound, evaluations, seconds, megabytes = (_mean(done, field) for field in costs)
    return Row(
        method, "; ".join(notes), scores[task.loss], scores, len(done), float(train), float(available),
        bound, evaluations, seconds, megabytes,
        losses=values[task.loss] if values else column(done, task.loss),
        folds=None if single else tuple(int(fold) for fold in column(done, "fold")),
        test_share=float((column(done, "num_test") / column(done, "num_available")).mean()),
    )  # fmt: skip


def _mean(records: Sequence[Record], field: str) -> float:
    present = [record for record in records if record.get(field) is not None]
    return float(column(present, field).mean()) if present else math.nan


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
    mean = float(difference.mean()) if k else math.nan
    if k < 2:
        return Estimate(mean, math.nan), math.nan
    error = math.sqrt((1.0 / k + share) * difference.var(ddof=1))
    if error == 0.0:
        return Estimate(mean, 0.0), 1.0 if mean == 0.0 else 0.0
    return Estimate(mean, error), float(2.0 * stats.t.sf(abs(mean) / error, k - 1))


LEVEL = 0.05
"""Differences with a p-value of the paired test below this are significant."""


def rule(task: Task = CLASSIFICATION) -> str:
    """The whole rule. Neither time nor the presence of a third learner matters."""
    return (
        f"Choose the learner with the lowest mean {task.loss_name} on held-out rows. If others are tied with it "
        "(within one standard error of its mean, and not separated from it by the paired test at 5 %), choose the "
        "simplest of the tied learners."
    )


def is_tied(row: Row, best: Row) -> bool:
    """Within one standard error of the best row's mean loss, and not separated from it by the paired test."""
    slack = 0.0 if math.isnan(best.loss.error) else best.loss.error
    # a p-value that cannot be computed, NaN, separates nothing
    return row.method == best.method or (row.loss.mean <= best.loss.mean + slack and not row.pvalue < LEVEL)


class Recommendation(NamedTuple):
    """The learner to use, the best one, those tied with it, the reason, and whether the budget cut no learner."""

    method: str
    best: str
    tied: tuple[str, ...]
    why: str
    is_fair: bool = True

    @property
    def use(self) -> str:
        """The start of the sentence that recommends it."""
        return "Use" if self.is_fair else "Within this budget, use"


def recommend(rows: Sequence[Row], task: Task = CLASSIFICATION) -> Recommendation:
    """Apply :func:`rule` to rows as :func:`kernel_embed.lab.compare.ranking.rows_of` returns them, the best first.

    Learners that missed folds are not considered. A learner that the budget limited to a part of the rows
    can win: its scores are what it reaches in this time. The recommendation then states the rows of each learner.
    """
    done = [row for row in rows if row.finished and row.num_folds == max(r.num_folds for r in rows)]
    if not done:
        raise ValueError("No learner finished. Raise --budget, or see the reasons in results.json.")
    best = done[0]
    tied = [row for row in done if is_tied(row, best)]
    learners, names = task.learners(), tuple(row.method for row in tied)
    # of equally simple ones the first in the order of the learners
    simplest = min((name for name in learners if name in names), key=lambda name: learners[name].structure.rank)
    cut = [text for row in rows if (text := _cut(row, done[0].num_folds))]
    if len(done) == 1:
        why = ""
    elif len(tied) == 1:
        why = f"It has {task.lowest} of held-out rows{'' if cut else ', and no other is tied with it'}."
    else:
        parts = learners[simplest].structure.value
        why = f"Tied for {task.lowest}: {', '.join(names)}. It is the simplest of them: {parts}."
    if cut and len(rows) > 1:
        why += f" But the budget cut learners to a part of the rows: {'; '.join(cut)}. With all rows the order may be "
        why += "another. Raise --budget or give --all-rows (in Python budget=None) to compare on the same rows."
    return Recommendation(simplest, best.method, names, why.strip(), not cut)


def _cut(row: Row, num_folds: int) -> str:
    """What the budget took from a learner."""
    if not row.finished:
        return f"{row.method} none" if "budget" in row.note else ""
    if row.num_train < row.num_available:
        return f"{row.method} {row.num_train:,.0f} of {row.num_available:,.0f}"
    missed_folds = row.num_folds < num_folds and "budget" in row.note
    return f"{row.method} {row.num_folds} of {num_folds} folds" if missed_folds else ""


class Standing(NamedTuple):
    """One learner over several tables: against each other learner (``tallies``), and against the best of them.

    A tally counts tables on which it is ahead, within one standard error, and behind. ``ranks`` are averages over the
    tables on which all learners finished. Of ``num_tables``, it is ahead or within one standard error of the best other
    on ``num_level``, and its loss is more than 5 % higher on those numbered in ``worse``.
    """

    tallies: dict[str, tuple[int, int, int]]
    ranks: dict[str, float]
    num_tables: int
    num_level: int
    worse: tuple[int, ...]


def standing(tables: Sequence[Sequence[Row]], learner: str, others: Sequence[str]) -> Standing:
    r"""``learner`` against ``others``; tables on which one of two has no figures do not count for them.

    The error is that of the mean difference over folds, :math:`\operatorname{sd} / \sqrt k`.
    """
    finished_rows = [{row.method: row for row in rows if row.finished} for rows in tables]
    tallies = {}
    for other in others:
        signs = [sign(rows[learner], rows[other]) for rows in finished_rows if {learner, other} <= rows.keys()]
        tallies[other] = (signs.count(-1), signs.count(0), signs.count(1))
    names = [learner, *others]
    places = [[list(rows).index(name) + 1 for name in names] for rows in finished_rows if rows.keys() == set(names)]
    ranks = dict(zip(names, np.mean(places, axis=0).tolist(), strict=True)) if places else {}
    pairs = {}  # with the best of the others, by table
    for place, rows in enumerate(finished_rows):
        best = next((row for name, row in rows.items() if name != learner), None)
        if learner in rows and best is not None:
            pairs[place] = rows[learner], best
    level = sum(sign(ours, best) <= 0 for ours, best in pairs.values())
    worse = tuple(place for place, (ours, best) in pairs.items() if ours.loss.mean > 1.05 * best.loss.mean)
    return Standing(tallies, ranks, len(pairs), level, worse)


def sign(row: Row, other: Row) -> int:
    """−1 where ``row`` has the lower loss by more than one standard error of the difference, 1 the higher, else 0."""
    difference = differences(row, other)
    error = standard_error(difference)
    return 0 if abs(difference.mean()) <= error else int(np.sign(difference.mean()))
