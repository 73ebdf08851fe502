"""``ke.compare``, and its result: the ranking, predictions, fitted learners, figures and report."""

from __future__ import annotations

import functools
import os
import pathlib
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ...results import Results
from ...validation import check_count, check_number
from ..runner import finished
from .comparison import KEY, Comparison, Settings, TablePair
from .tables import UserTable, frame_of, read_user_table, table_of
from .tasks import TASKS, Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .ranking import Recommendation, Row


def compare(
    X: Any,
    y: ArrayLike | str | None = None,
    *,
    methods: Sequence[str] | None = None,
    test: tuple[Any, ArrayLike] | None = None,
    folds: int = 5,
    seed: int = 0,
    budget: float | None = 90.0,
    kernel: str = "rbf",
    drop: Sequence[str] = (),
    name: str | None = None,
    task: str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> ComparisonResult:
    """Compare learners on one table, scored on held-out rows.

    Args:
        X: a data frame of pandas or polars, a matrix, or the path of a CSV or Parquet file.
        y: labels or numbers, or the name of their column; with a path, ``None`` takes the column ``target``,
            else the last.
        methods: names of learners, listed by ``kernel-embed compare --help``; by default those that are installed.
        test: features and labels to score on, instead of folds.
        folds: of the cross validation.
        seed: of the folds.
        budget: CPU seconds for one learner, all folds together; one that would take longer is fitted to a part of
            the rows. ``None`` for no limit.
        kernel: of the learners that take one: ``"rbf"``, ``"matern12"``, ``"matern32"``, ``"matern52"``.
        drop: columns to leave out.
        name: of the table, for printing.
        task: ``"classification"`` or ``"regression"``; ``None`` takes numbers of many values for regression.
        out: a directory for ``results.json`` and the predictions; what an earlier run finished there is reused.
            ``None`` keeps them in memory.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Returns:
        The ranking, the predictions, the fitted learners and the report.

    Raises:
        TypeError: if ``methods`` is not a list of names, or ``folds`` or ``seed`` is not a whole number.
        ValueError: if ``folds`` is below 2, ``seed`` is negative, or ``budget`` is not positive.
        OSError: if the results cannot be written.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> iris = load_iris(as_frame=True)
        >>> methods = ["median heuristic", "logistic"]
        >>> compared = compare(iris.data, iris.target, methods=methods, folds=2)
        >>> sorted(compared.ranking["learner"])
        ['logistic', 'median heuristic']
        >>> compared.fitted("logistic").predict(iris.data[:1])
        array([0])
    """
    if methods is not None and (isinstance(methods, str) or not isinstance(methods, Sequence)):
        raise TypeError(f"methods must be a list of names, not {methods!r}. Give [{methods!r}], or None for all.")
    folds, seed = check_count("folds", folds, 2), check_count("seed", seed, 0, 2**32 - 1)
    if budget is not None and not 0.0 < check_number("budget", budget) < np.inf:
        raise ValueError(f"budget must be positive, not {budget!r}. Give None for no limit.")
    budget = None if budget is None else float(budget)
    train = _table(X, y, name, drop, task)
    test_table = None if test is None else table_of(*test, name="test", like=train)
    names = tuple(methods or TASKS[train.task].methods())
    settings = Settings(names, kernel, folds if test_table is None else 1, seed, budget, train.task)
    (result,) = compare_tables([(train, test_table)], settings, None if out is None else pathlib.Path(out), progress)
    return result


def compare_tables(
    tables: Sequence[TablePair], settings: Settings, out: pathlib.Path | None, progress: bool | None = None
) -> list[ComparisonResult]:
    """Run the cases missing in ``out``, and return the result of each table."""
    results = Results(None if out is None else out / "results.json", KEY)
    results.check_writable()
    comparison = Comparison(results, settings, out)
    comparison.run(tables, progress)
    return [ComparisonResult(comparison, train, test) for train, test in tables]


def _table(X: Any, y: ArrayLike | str | None, name: str | None, drop: Sequence[str], task: str | None) -> UserTable:
    if isinstance(X, str | os.PathLike):
        if not (y is None or isinstance(y, str)):
            raise ValueError("With a path, y must be the name of the target column, not labels.")
        table = read_user_table(X, y, drop, task=task)
        return table if name is None else table._replace(name=name)
    if y is None:
        raise ValueError("There are no labels. Give y=labels, or y='name of the column' with a DataFrame.")
    if isinstance(y, str):
        frame = frame_of(X)
        if y not in frame.columns:
            raise ValueError(f"X has no column {y!r}. Its columns are {', '.join(map(str, frame.columns))}.")
        X, y = frame.drop(columns=y), frame[y]
    return table_of(X, y, name or "table", drop, task=task)


class ComparisonResult:
    """A finished comparison on one table.

    Attributes:
        table: the training table, with notes on dropped columns and rows.
        test: the table that learners were scored on, if one was given.
        comparison: the run behind it, with its records.

    Example:
        >>> import kernel_embed as ke
        >>> from sklearn.datasets import load_iris
        >>> iris = load_iris(as_frame=True)
        >>> compared = ke.compare(iris.data, iris.target, methods=["logistic"], folds=2)
        >>> compared.recommendation.method
        'logistic'
    """

    def __init__(self, comparison: Comparison, table: UserTable, test: UserTable | None = None) -> None:
        self.comparison, self.table, self.test = comparison, table, test
        self.task, self.settings, self.learners = comparison.task, comparison.settings, comparison.learners
        self.records = comparison.records(table)

    @functools.cached_property
    def rows(self) -> list[Row]:
        """One row for each learner, the best first."""
        from .ranking import rows_of

        return rows_of(self.records, self.comparison.arrays, self.task)

    @property
    def finished_rows(self) -> list[Row]:
        """The rows that have figures."""
        return [row for row in self.rows if row.finished]

    @property
    def recommendation(self) -> Recommendation:
        """Which learner to use, which are tied with the best, and why."""
        from .ranking import recommend

        return recommend(self.rows, self.task)

    @property
    def ranking(self) -> pd.DataFrame:
        """The rows as a data frame, the best first."""
        from .ranking import is_tied

        best = self.rows[0]
        return pd.DataFrame(
            {
                "learner": row.method,
                **{name: row.scores[name].mean for name in self.task.scores},
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
        """The arrays of the finished folds of a learner; see :meth:`Comparison.arrays`."""
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
        return self.learners[method or self.recommendation.method].for_tables().fit(self.table.x, self.table.y)

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
        return self.learners[method or self.recommendation.method].code

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
        from .summary import explanation, summary

        return f"{summary(self.table, self.rows, self.task)}\n\n{explanation(len(self.rows) > 1, self.task)}"

    def __repr__(self) -> str:
        return f"<ComparisonResult {self.table.name}: {len(self.rows)} learners>"
