"""What to use, and how a learner fares over several tables: the rules behind the words of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...results import standard_error
from .ranking import Row, differences
from .task import CLASSIFICATION, Task

LEVEL = 0.05
"""Below this p-value of the paired test a difference is not put down to chance."""


def rule(task: Task = CLASSIFICATION) -> str:
    """The whole rule. Neither time nor the presence of a third learner enters."""
    return (
        f"Take the learner with the lowest mean {task.loss_name} on held-out rows; where others are tied with it, "
        "meaning within one standard error of its mean and not told from it by the paired test at 5 %, take of the "
        "tied the one with the fewest parts."
    )


ORDER = {
    "logistic": "one coefficient for each column",
    "ridge": "one coefficient for each column",
    "evidence of inputs": "one kernel with one lengthscale",
    "median heuristic": "one kernel with one lengthscale",
    "one kernel": "one kernel, with a relevance for each column, and no validation set",
    "evidence": "one kernel, with a relevance for each column",
    "leave-one-out": "one kernel, with a relevance for each column",
    "cross validation": "one kernel, with a relevance for each column",
    "rademacher 4e/n": "one kernel, with a relevance for each column",
    "rademacher 4e/sqrt(n)": "one kernel, with a relevance for each column",
    "rademacher e/sqrt(n)": "one kernel, with a relevance for each column",
    "rademacher 4e": "one kernel, with a relevance for each column",
    "empirical risk": "one kernel, with a relevance for each column",
    "svc grid": "one kernel and its support vectors",
    "svc grid, pairwise": "one kernel and its support vectors",
    "gaussian process": "one kernel, with a relevance for each column",
    "gpc": "one kernel for each class",
    "dirichlet": "one kernel for each class",
    "default": "a pool of kernels, with a relevance for each column, and no validation set",
    "voted kernels": "a few votes",
    "random forest": "independent trees",
    "quantile forest": "independent trees",
    "boosting": "a sum of trees",
    "lightgbm": "a sum of trees",
    "ngboost": "a sum of trees",
    "catboost": "a sum of trees",
    "nuts average": "an average over draws",
    "cen-1": "a network",
    "cen-2": "a network",
}
"""Learners from fewer parts to more, with what they consist of: the lasting reason among those that are tied."""


def is_tied(row: Row, best: Row) -> bool:
    """Within one standard error of the best row's mean loss, and not told from it by the paired test."""
    if row.method == best.method:
        return True
    slack = 0.0 if math.isnan(best.loss.error) else best.loss.error
    told_apart = not math.isnan(row.pvalue) and row.pvalue < LEVEL
    return row.loss.mean <= best.loss.mean + slack and not told_apart


class Recommendation(NamedTuple):
    """The learner to use, the best row, the rows tied with it (and itself), and the reason in words."""

    method: str
    best: str
    tied: tuple[str, ...]
    why: str


def recommend(rows: Sequence[Row], task: Task = CLASSIFICATION) -> Recommendation:
    """Apply :func:`rule` to rows as :func:`kernel_embed.lab.compare.ranking.rows_of` gives them, the best first.

    Learners that missed folds take no part. One that the budget cut to a part of the rows can win, because its figures
    are those that it reaches in the time.
    """
    done = [row for row in rows if row.finished and row.num_folds == max(r.num_folds for r in rows)]
    if not done:
        raise ValueError("Expected at least one learner that finished, got none. Raise --budget, or see results.json.")
    best = done[0]
    tied = [row for row in done if is_tied(row, best)]
    order = list(ORDER)
    chosen = min(tied, key=lambda row: order.index(row.method) if row.method in ORDER else len(order))
    why = _reason(chosen, done, tied, task)
    return Recommendation(chosen.method, best.method, tuple(r.method for r in tied), why)


def _reason(chosen: Row, done: Sequence[Row], tied: Sequence[Row], task: Task) -> str:
    if len(done) == 1:
        return ""
    if len(tied) == 1:
        return f"It has {task.lowest} of held-out rows, and no other is tied with it."
    names = ", ".join(row.method for row in tied)
    parts = f": {ORDER[chosen.method]}" if chosen.method in ORDER else ""
    return f"Tied for {task.lowest}: {names}. Of these it has the fewest parts{parts}."


class Tally(NamedTuple):
    r"""On how many tables one learner is ahead of another in NLL, within one standard error of it, or behind.

    The error is that of the mean difference over folds, :math:`\operatorname{sd} / \sqrt k`.
    """

    other: str
    ahead: int
    within: int
    behind: int


def tally(tables: Sequence[Sequence[Row]], learner: str, others: Sequence[str]) -> list[Tally]:
    """Count over tables; tables on which one of the two has no figures do not count."""
    found = []
    for other in others:
        counts = {-1: 0, 0: 0, 1: 0}
        for rows in tables:
            by_name = {row.method: row for row in rows if row.finished}
            if learner in by_name and other in by_name:
                counts[sign(by_name[learner], by_name[other])] += 1
        found.append(Tally(other, counts[-1], counts[0], counts[1]))
    return found


def mean_ranks(tables: Sequence[Sequence[Row]]) -> dict[str, float]:
    """The rank in NLL of each learner, averaged over the tables on which all of them finished."""
    names = list(dict.fromkeys(row.method for rows in tables for row in rows))
    whole = [rows for rows in tables if {row.method for row in rows if row.finished} == set(names)]
    if not whole:
        return {}
    ranks = np.array([[[row.method for row in rows].index(name) + 1 for name in names] for rows in whole])
    return dict(zip(names, ranks.mean(axis=0).tolist(), strict=True))


class AgainstBest(NamedTuple):
    """One learner against the best of the others on each table: how many tables, on how many it is ahead or within one
    standard error, and the tables (by number) on which its NLL is more than 5 % higher."""

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
