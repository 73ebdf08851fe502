"""Which learner to use, and how a learner does over several tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...results import standard_error
from .ranking import Row, differences
from .task import Task
from .tasks import CLASSIFICATION

LEVEL = 0.05
"""Below this p-value of the paired test a difference is not attributed to chance."""


def rule(task: Task = CLASSIFICATION) -> str:
    """The whole rule. Neither time nor the presence of a third learner matters."""
    return (
        f"Choose the learner with the lowest mean {task.loss_name} on held-out rows. If others are tied with it "
        "(within one standard error of its mean, and not separated from it by the paired test at 5 %), choose the "
        "simplest of the tied learners."
    )


def is_tied(row: Row, best: Row) -> bool:
    """Within one standard error of the best row's mean loss, and not separated from it by the paired test."""
    if row.method == best.method:
        return True
    slack = 0.0 if math.isnan(best.loss.error) else best.loss.error
    separated = not math.isnan(row.pvalue) and row.pvalue < LEVEL
    return row.loss.mean <= best.loss.mean + slack and not separated


class Recommendation(NamedTuple):
    """The learner to use, the best one, those tied with it (and itself), and the reason."""

    method: str
    best: str
    tied: tuple[str, ...]
    why: str


def recommend(rows: Sequence[Row], task: Task = CLASSIFICATION) -> Recommendation:
    """Apply :func:`rule` to rows as :func:`kernel_embed.lab.compare.ranking.rows_of` returns them, the best first.

    Learners that missed folds are not considered. One that the budget cut to a part of the rows can win, because its
    figures are those that it reaches in the time.
    """
    done = [row for row in rows if row.finished and row.num_folds == max(r.num_folds for r in rows)]
    if not done:
        raise ValueError("No learner finished. Raise --budget, or see the reasons in results.json.")
    best = done[0]
    tied = [row for row in done if is_tied(row, best)]
    learners = task.learners()
    order = list(learners)
    simplest = min(tied, key=lambda row: (learners[row.method].structure.rank, order.index(row.method))).method
    names = tuple(row.method for row in tied)
    if len(done) == 1:
        why = ""
    elif len(tied) == 1:
        why = f"It has {task.lowest} of held-out rows, and no other is tied with it."
    else:
        parts = learners[simplest].structure.value
        why = f"Tied for {task.lowest}: {', '.join(names)}. It is the simplest of them: {parts}."
    return Recommendation(simplest, best.method, names, why)


class Tally(NamedTuple):
    r"""On how many tables one learner is ahead of another, within one standard error of it, or behind.

    The error is that of the mean difference over folds, :math:`\operatorname{sd} / \sqrt k`.
    """

    other: str
    ahead: int
    within: int
    behind: int


def tally(tables: Sequence[Sequence[Row]], learner: str, others: Sequence[str]) -> list[Tally]:
    """Count over tables; tables on which one of the two has no figures do not count."""
    tallies = []
    for other in others:
        counts = {-1: 0, 0: 0, 1: 0}
        for rows in tables:
            by_name = {row.method: row for row in rows if row.finished}
            if learner in by_name and other in by_name:
                counts[sign(by_name[learner], by_name[other])] += 1
        tallies.append(Tally(other, counts[-1], counts[0], counts[1]))
    return tallies


def mean_ranks(tables: Sequence[Sequence[Row]]) -> dict[str, float]:
    """The rank of each learner, averaged over the tables on which all of them finished."""
    names = list(dict.fromkeys(row.method for rows in tables for row in rows))
    whole = [rows for rows in tables if {row.method for row in rows if row.finished} == set(names)]
    if not whole:
        return {}
    ranks = np.array([[[row.method for row in rows].index(name) + 1 for name in names] for rows in whole])
    return dict(zip(names, ranks.mean(axis=0).tolist(), strict=True))


class AgainstBest(NamedTuple):
    """One learner against the best of the others: how many tables, on how many it is ahead or within one standard
    error, and the tables (by number) on which its loss is more than 5 % higher."""

    tables: int
    level: int
    clearly_worse: tuple[int, ...]


def against_best(tables: Sequence[Sequence[Row]], learner: str) -> AgainstBest:
    """Compare ``learner`` with the best other one, table by table."""
    count = level = 0
    worse = []
    for number, rows in enumerate(tables):
        done = [row for row in rows if row.finished]
        ours = next((row for row in done if row.method == learner), None)
        others = [row for row in done if row.method != learner]
        if ours is None or not others:
            continue
        count += 1
        level += sign(ours, others[0]) <= 0
        if ours.loss.mean > 1.05 * others[0].loss.mean:
            worse.append(number)
    return AgainstBest(count, level, tuple(worse))


def sign(row: Row, other: Row) -> int:
    """−1 where ``row`` has the lower loss by more than one standard error of the difference, 1 the higher, else 0."""
    difference = differences(row, other)
    error = standard_error(difference)
    return 0 if abs(difference.mean()) <= error else int(np.sign(difference.mean()))
