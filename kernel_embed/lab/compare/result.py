"""The result of a comparison: its ranking, predictions, fitted learners, figures and report, and its printed tables."""

from __future__ import annotations

import functools
import math
import os
import pathlib
import re
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ...results import table
from ..runner import finished, fit_model
from .ranking import Recommendation, Row, is_tied, recommend, rows_of, rule, standing
from .tables import UserTable
from .tasks import CLASSIFICATION, TASKS, Arrays, Task

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .comparison import Comparison


class ComparisonResult:
    """A finished comparison on one table: ``table``, ``test`` if one was given, and the run behind it, ``comparison``.

    Args:
        comparison: a run, all of whose cases have records.

    Example:
        >>> import kernel_embed as ke
        >>> from sklearn.datasets import load_iris
        >>> iris = load_iris(as_frame=True)
        >>> compared = ke.compare(iris.data, iris.target, methods=["logistic"], folds=2)
        >>> compared.recommendation.method
        'logistic'
    """

    def __init__(self, comparison: Comparison) -> None:
        self.comparison, self.table, self.test = comparison, comparison.table, comparison.test
        self.task, self.settings, self.learners = comparison.task, comparison.settings, comparison.learners
        self.records = comparison.records()

    @functools.cached_property
    def rows(self) -> list[Row]:
        """One row for each learner, the best first."""
        return rows_of(self.records, self.comparison.arrays, self.task)

    @property
    def finished_rows(self) -> list[Row]:
        """The rows that have figures."""
        return [row for row in self.rows if row.finished]

    @property
    def recommendation(self) -> Recommendation:
        """Which learner to use, which are tied with the best, and why."""
        return recommend(self.rows, self.task)

    @property
    def ranking(self) -> pd.DataFrame:
        """The rows as a data frame, the best first."""
        best = self.rows[0]
        return pd.DataFrame(
            {
                "learner": row.method,
                **{name: row.scores[name].mean for name, *_ in self.task.scores},
                f"{self.task.loss}_error": row.loss.error,
                "behind": row.behind.mean,
                "behind_error": row.behind.error,
                "pvalue": row.pvalue,
                "tied": row.finished and is_tied(row, best),
                "seconds": row.seconds,
                "note": row.note,
            }
            for row in self.rows
        )

    def folds(self, method: str) -> list[Arrays]:
        """The predictions of a learner on each finished fold, as :meth:`Comparison.arrays` returns them."""
        return [self.comparison.arrays(record) for record in finished(self.records) if record["method"] == method]

    def held_out(self, method: str) -> Arrays:
        """Its predictions of all held-out rows, fold after fold; empty if a fold is missing."""
        folds = self.folds(method)
        if not folds or not all(folds):
            return {}
        names = ("truth", "probabilities", "quantiles", "interval", "mean", "crps")
        arrays = {name: np.concatenate([fold[name] for fold in folds]) for name in names if name in folds[0]}
        return {**arrays, "scale": folds[0]["scale"]} if "scale" in folds[0] else arrays

    def predictions(self, method: str | None = None) -> tuple[NDArray[Any], NDArray[np.float64]]:
        """Labels of all held-out rows and the probabilities that ``method`` gave to the classes, fold after fold.

        For numbers, the values of all held-out rows and their predicted quantiles at 0.5, 1.5, …, 99.5 %.

        Raises:
            ValueError: if the learner has no finished folds.
        """
        method = method or self.recommendation.method
        arrays = self.held_out(method)
        if not arrays:
            raise ValueError(f"{method!r} has no finished folds. Compare it without a budget, or with a larger one.")
        return self.task.decode(arrays["truth"], self.table.y), arrays[self.task.prediction]

    def fitted(self, method: str | None = None) -> Any:
        """The learner ``method``, the recommended one by default, fitted to all rows of the table."""
        model = self.learners[method or self.recommendation.method].for_tables()
        return fit_model(model, self.table.x, self.table.y, self.table.groups)

    def save(self, folder: str | os.PathLike[str], method: str | None = None) -> pathlib.Path:
        """Write :meth:`fitted` to a file of ``folder`` for :func:`kernel_embed.load`, and return its path.

        The name contains the table, the learner and a fingerprint of the data: a file that exists is the same model.

        Raises:
            ValueError: if the learner cannot be saved, or has classes that :func:`kernel_embed.load` would refuse.
        """
        from ...archive import load, save

        method = method or self.recommendation.method
        words = re.sub(r"[^\w.-]+", "-", f"{self.table.name}-{method}-{self.table.fingerprint[:6]}")
        path = pathlib.Path(folder) / f"{words}.ke"
        if not path.exists():
            save(self.fitted(method), path)
            try:
                load(path)
            except ValueError as error:
                path.unlink()
                raise ValueError(f"ke.load would refuse {method!r}: {error.__cause__}") from error
        return path

    def code(self, method: str | None = None) -> str:
        """The lines that do what :meth:`fitted` does."""
        return self.learners[method or self.recommendation.method].code(self.table.groups is not None)

    def plot(self, ax: Axes | None = None, method: str | None = None) -> Axes:
        """The learners by their NLL, or CRPS, with standard errors (extra ``plots``); ``method`` is highlighted."""
        from ...plots import plot_ranking

        method, rows = method or self.recommendation.method, self.finished_rows
        means, errors = [row.loss.mean for row in rows], [row.loss.error for row in rows]
        axes = plot_ranking([row.method for row in rows], means, errors, highlight=method, ax=ax)
        axes.set_xlabel(self.task.axis)
        return axes

    def report(self, path: str | os.PathLike[str], progress: bool | None = None) -> pathlib.Path:
        """Write the report, one HTML file, and return its path."""
        from .report import write_report

        return write_report([self], pathlib.Path(path), progress)

    def __str__(self) -> str:
        return printed([self])

    def __repr__(self) -> str:
        return f"<ComparisonResult {self.table.name}: {len(self.rows)} learners>"


def ranking_table(rows: Sequence[Row], task: Task, full: bool = False) -> tuple[list[str], list[list[str]]]:
    """Header and cells: scores, paired difference from the best row, p-value, tie and cost; ``full`` for the report."""
    scores = [score for score in task.scores if full or score.short or score.name == task.loss]
    titles = [score.header if full else score.short or task.loss_name for score in scores]
    header = ["learner", *titles, "behind best", "p", "tied", *_costs(rows[0], task, full)]
    lines = []
    for row in rows:
        if not row.finished:
            lines.append([row.method, *["–"] * (len(header) - 1)])
            continue
        cells = [row.method + ("*" if row.note else "")]
        for score in scores:
            with_error = full or score.name == task.loss
            cells.append(row.scores[score.name].text(score.digits, score.factor, with_error))
        difference = [row.behind.text(), _number(row.pvalue, ".3f"), "tied" if is_tied(row, rows[0]) else ""]
        if row.method == rows[0].method:
            difference = [""] * 3
        lines.append([*cells, *difference, *_costs(row, task, full).values()])
    return header, lines


def _costs(row: Row, task: Task, full: bool) -> dict[str, str]:
    if not full:
        return {"s": _number(row.seconds, ".1f")}
    bound = {"bound": "vacuous" if row.bound >= 1.0 else _number(row.bound, ".2f")} if task.bound else {}
    costs = {"evals": _number(row.num_evaluations, ".0f"), "seconds": _number(row.seconds, ".2f")}
    return {**bound, **costs, "MB": _number(row.megabytes, ".0f")}


def printed(results: Sequence[ComparisonResult]) -> str:
    """The tables of one comparison, each with its notes and recommendation, and the meaning of their columns."""
    task, several = results[0].task, len(results[0].settings.methods) > 1
    text = "\n\n\n".join(summary(result.table, result.rows, task) for result in results)
    if len(results) > 2 and several:
        text += f"\n\n\n{_overall(results, task)}"
    words = (
        f"{task.loss_words} Behind best is the paired difference from the first row, p its p-value, s the seconds of "
        "one fit."
    )
    return f"{text}\n\n{_filled(f'{words} {rule(task)}' if several else words)}"


def summary(data: UserTable, rows: Sequence[Row], task: Task = CLASSIFICATION) -> str:
    """The table of one data set, its notes, and the recommendation."""
    if not rows:
        return f"{data.name}: nothing was finished"
    lines = [heading(data), "", table(*ranking_table(rows, task))]
    notes = [*(f"{row.method}: {row.note}" for row in rows if row.note), *data.notes]
    lines += ["", *(_filled(f"* {note}", "  ") for note in notes)] if notes else []
    if rows[0].finished:
        advice = recommend(rows, task)
        lines += ["", _filled(f"{advice.use} {advice.method!r} on these data. {advice.why}".strip())]
    return "\n".join(lines)


def _overall(results: Sequence[ComparisonResult], task: Task) -> str:
    """Over several tables: how often the first method is ahead of each other one, and of the best of them."""
    first, *others = results[0].settings.methods
    overall = standing([result.rows for result in results], first, others)
    ranks = {name: _number(overall.ranks.get(name, math.nan), ".2f") for name in (first, *others)}
    rows = [[other, *map(str, counts), ranks[other]] for other, counts in overall.tallies.items()]
    head = [f"{first} against", "ahead", "within 1 s.e.", "behind", "mean rank"]
    share = (
        f"{first} (mean rank {ranks[first]}) against the best of the others: ahead or within one standard error of the "
        f"paired difference on {overall.num_level} of {overall.num_tables} tables; {task.loss_name} more than 5 % "
        f"higher on {len(overall.worse)} ({', '.join(results[place].table.name for place in overall.worse) or 'none'})."
    )
    return f"{task.loss_name} over {len(results)} tables\n\n{table(head, rows)}\n\n{_filled(share)}"


def heading(data: UserTable) -> str:
    """``wine: 178 rows, 13 features, 3 classes``."""
    n, d = data.x.shape
    return f"{data.name}: {n} rows, {d} feature{'' if d == 1 else 's'}, {TASKS[data.task].describe(data.y)}"


def _number(value: float, form: str) -> str:
    return "–" if math.isnan(value) else f"{value:{form}}"


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, 80, subsequent_indent=indent)
