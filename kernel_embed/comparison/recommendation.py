"""What to use, and how a learner fares over several tables: the rules behind the words of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..results import standard_error
from .ranking import Row, differences

LEVEL = 0.05
"""Below this adjusted p-value a difference is called worse."""


def verdict(row: Row, best: Row) -> str:
    """What the comparison with the best row says, in a word."""
    if row.method == best.method:
        return "best"
    if math.isnan(row.pvalue):
        return "–"
    if row.pvalue < LEVEL:
        return "worse"
    return "level" if row.behind.mean <= row.behind.error else "unclear"


class Recommendation(NamedTuple):
    """The learner to use, the best row, the rows within one standard error of it, and the reason in words."""

    method: str
    best: str
    level: tuple[str, ...]
    why: str


def recommend(rows: Sequence[Row]) -> Recommendation:
    """The one-standard-error rule: of all learners within one standard error of the best NLL, the fastest.

    Within means within both: the standard error of the best row's mean, and that of the paired difference. Those that
    are also within one standard error of the highest accuracy among them come first. A learner that was cut short by
    the budget, or missed folds, can win, because its figures are those that it reaches in the time.
    """
    done = [row for row in rows if row.finished and row.num_folds == max(r.num_folds for r in rows)]
    if not done:
        raise ValueError("Expected at least one learner that finished, got none. Raise --budget, or see results.json.")
    best = done[0]
    near = [row for row in done if row.nll.mean <= best.nll.mean + _slack(row, best)]
    sharpest = max(near, key=lambda row: row.accuracy.mean)
    error = 0.0 if math.isnan(sharpest.accuracy.error) else sharpest.accuracy.error
    sharp = [row for row in near if row.accuracy.mean >= sharpest.accuracy.mean - error]
    chosen = min(sharp, key=lambda row: row.seconds)
    return Recommendation(chosen.method, best.method, tuple(row.method for row in near), _reason(chosen, best, near))


def _slack(row: Row, best: Row) -> float:
    """One standard error: of the best row's mean or of the paired difference, the smaller, so that both hold."""
    errors = [error for error in (best.nll.error, row.behind.error) if not math.isnan(error)]
    return min(errors, default=0.0) if row is not best else 0.0


def _reason(chosen: Row, best: Row, near: Sequence[Row]) -> str:
    others = len(near) - 1
    if chosen.method == best.method and others == 0:
        return (
            "It has the best negative log probability of held-out labels, and no other comes within one standard error "
            "of it (that of its mean and that of the paired difference; “level” in the table asks for the second only)."
        )
    if chosen.method == best.method:
        return (
            f"It has the best negative log probability of held-out labels. {_counted(others)} within one standard "
            "error of it, and none of those is both as accurate and faster."
        )
    gain = (
        f"it is faster: {chosen.seconds:.2g} s for a fit, against {best.seconds:.2g} s"
        if chosen.seconds < best.seconds
        else f"it is more accurate: {chosen.accuracy.text(1, 100)} %, against {best.accuracy.text(1, 100)} %"
    )
    return (
        f"Its negative log probability of held-out labels, {chosen.nll.text()}, is within one standard error of the "
        f"best ({best.method}, {best.nll.text()}), and {gain}."
    )


def _counted(others: int) -> str:
    return "One other is" if others == 1 else f"{others} others are"


class Tally(NamedTuple):
    r"""On how many tables one learner is ahead of another in NLL, level with it, or behind.

    *Level* is a mean difference over folds within one standard error of it, :math:`\operatorname{sd} / \sqrt k`.
    """

    other: str
    ahead: int
    level: int
    behind: int


def tally(tables: Sequence[Sequence[Row]], learner: str, others: Sequence[str]) -> list[Tally]:
    """Count over tables; tables on which one of the two has no figures do not count."""
    found = []
    for other in others:
        counts = {-1: 0, 0: 0, 1: 0}
        for rows in tables:
            by_name = {row.method: row for row in rows if row.finished}
            if learner in by_name and other in by_name:
                counts[_sign(by_name[learner], by_name[other])] += 1
        found.append(Tally(other, counts[-1], counts[0], counts[1]))
    return found


def _sign(row: Row, other: Row) -> int:
    """−1 where ``row`` has the lower NLL by more than one standard error of the difference, 1 the higher, else 0."""
    difference = differences(row, other)
    error = standard_error(difference)
    return 0 if abs(difference.mean()) <= error else int(np.sign(difference.mean()))
