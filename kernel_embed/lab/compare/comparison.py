"""``ke.compare``: every learner on every fold of a table, each a case, and the arrays stored with their records."""

from __future__ import annotations

import hashlib
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.datasets import load_iris, load_wine

from ...archive import read_plain, write_plain
from ...results import Record, Results, column
from ...runtime import few_threads
from ...splits import cross_validation_folds, proportional_sample
from ...validation import check_count, check_number
from ..runner import LEFT_OUT, Case, affordable_rows, finished, last_step, run_cases, take
from .reading import frame_of
from .result import ComparisonResult
from .tables import UserTable, read_user_table, table_of
from .tasks import TASKS, Arrays, Split

KEY = ("experiment", "dataset", "data", "task", "kernel", "method", "fold", "folds", "seed", "budget")
TablePair = tuple[UserTable, UserTable | None]
"""A table, and its test table if there is one."""


def compare(
    X: Any,
    y: ArrayLike | str | None = None,
    *,
    methods: Sequence[str] | None = None,
    test: tuple[Any, ArrayLike] | None = None,
    groups: ArrayLike | str | None = None,
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
        groups: a label for each row, or the name of a column of ``X``, which is then no feature. All rows of a group,
            such as a patient, are in one fold, and learners that take groups get them.
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
        ValueError: if ``folds`` is below 2, ``seed`` is negative, ``budget`` is not positive, or ``groups`` are not one
            for each row or fewer than ``folds``.
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
    num_folds = folds if test is None else 1
    train = _table(X, y, name, drop, task=task, groups=groups, folds=num_folds)
    test_table = None if test is None else table_of(*test, name="test", like=train)
    names = tuple(methods or TASKS[train.task].methods())
    settings = Settings(names, kernel, num_folds, seed, budget, train.task)
    (result,) = compare_tables([(train, test_table)], settings, None if out is None else pathlib.Path(out), progress)
    return result


def compare_tables(
    tables: Sequence[TablePair], settings: Settings, out: pathlib.Path | None, progress: bool | None = None
) -> list[ComparisonResult]:
    """Run the cases missing in ``out``, and return the result of each table."""
    results = Results(None if out is None else out / "results.json", KEY)
    results.check_writable()
    comparisons = [Comparison(table, test, settings, results, out) for table, test in tables]
    total = len(tables) * len(settings.methods) * settings.folds
    cases = (case for comparison in comparisons for case in comparison.cases())
    run_cases(cases, results, name="compare", total=total, progress=progress)
    return [ComparisonResult(comparison) for comparison in comparisons]


def _table(X: Any, y: ArrayLike | str | None, name: str | None, drop: Sequence[str], **options: Any) -> UserTable:
    if isinstance(X, str | os.PathLike):
        if not (y is None or isinstance(y, str)):
            raise ValueError("With a path, y must be the name of the target column, not labels.")
        table = read_user_table(X, y, drop, **options)
        return table if name is None else table._replace(name=name)
    if y is None:
        raise ValueError("There are no labels. Give y=labels, or y='name of the column' with a DataFrame.")
    if isinstance(y, str):
        frame = frame_of(X)
        if y not in frame.columns:
            raise ValueError(f"X has no column {y!r}. Its columns are {', '.join(map(str, frame.columns))}.")
        X, y = frame.drop(columns=y), frame[y]
    return table_of(X, y, name or "table", drop, **options)


class Settings(NamedTuple):
    """How a comparison is made: see :func:`kernel_embed.compare`; ``folds`` is 1 with a test table."""

    methods: tuple[str, ...]
    kernel: str = "rbf"
    folds: int = 5
    seed: int = 0
    budget: float | None = 90.0
    task: str = "classification"


class Comparison:
    """The learners on one table, scored on folds, or on the rows of ``test``.

    Records are in ``results``, and the arrays of each in a file of ``out/folds``, or in memory.
    """

    def __init__(
        self, table: UserTable, test: UserTable | None, settings: Settings, results: Results, out: pathlib.Path | None
    ) -> None:
        self.table, self.test, self.settings, self.results, self.out = table, test, settings, results, out
        self.task = TASKS[settings.task]
        self.learners = self.task.learners(settings.kernel)
        if unknown := [method for method in settings.methods if method not in self.learners]:
            words = f"There is no method {unknown[0]!r} for {self.task.name}"
            raise ValueError(f"{words}. Choose among {', '.join(self.learners)}, or name another task.")
        own = {name: getattr(settings, name) for name in ("task", "kernel", "folds", "seed", "budget")}
        self._key: Record = {"experiment": "compare", "dataset": table.name, "data": table.fingerprint, **own}
        if table.groups is not None:
            self._key["groups"] = int(table.groups.max()) + 1
        self._memory: dict[str, Arrays] = {}

    def cases(self) -> Iterator[Case]:
        """One case for each method and fold."""
        for method in self.settings.methods:
            for fold in range(self.settings.folds):
                key: Record = {**self._key, "method": method, "fold": fold}
                yield Case(key, partial(self._fold, key), f"{self.table.name}, {method}")

    def records(self) -> list[Record]:
        """The records, in the order of the methods and folds."""
        order = {method: place for place, method in enumerate(self.settings.methods)}
        same = [r for r in self.results.records if self._key.items() <= r.items() and r["method"] in order]
        return sorted(same, key=lambda record: (order[str(record["method"])], record["fold"]))

    def split(self, fold: int) -> Split:
        """Training and test rows of a fold."""
        x, y, groups = self.table.x, self.table.y, self.table.groups
        if self.test is not None:
            return Split(x, y, self.test.x, self.test.y, groups)
        rows, others = list(cross_validation_folds(y, self.settings.folds, self.settings.seed, groups))[fold]
        return Split(x, y, take(x, others), y[others], groups).part(rows)

    def _fold(self, key: Record) -> Record:
        fold, budget = int(str(key["fold"])), self.settings.budget
        earlier = [r for f in range(fold) for r in self.results.find({**key, "fold": f})]
        seconds = column(finished(earlier), "processor_seconds")
        if budget is not None and len(seconds) > 1 and seconds.sum() + seconds.mean() > 1.5 * budget:
            return {LEFT_OUT: "the budget is used up by the folds before", "row_limit": earlier[-1].get("row_limit")}
        split = self.split(fold)
        x, y = split.x, split.y
        make = self.learners[str(key["method"])].for_tables
        with few_threads(len(self.table.y)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the record holds the important ones
            limits = [r["row_limit"] for r in earlier if LEFT_OUT not in r or r.get("row_limit") == 0]
            if limits or budget is None:
                limit = limits[-1] if limits else None
            else:
                limit = affordable_rows(make, x, y, budget / self.settings.folds, self.settings.seed, split.groups)
                limit = None if limit >= len(y) else limit
            if limit == 0:
                return {LEFT_OUT: "takes far more than its share of the budget even on the fewest rows", "row_limit": 0}
            rows = proportional_sample(y, len(y) if limit is None else int(limit), self.settings.seed)
            measured = self.task.measure(make, split.part(rows), self.table.y)
        # The arrays first: a record in the file means that everything of this fold is there.
        arrays, name = {**measured.arrays, **learned_arrays(measured.model)}, _file_name(key)
        if self.out is None:
            self._memory[name] = arrays
        else:
            write_plain(self.out / "folds" / name, "folds", arrays)
        return {**measured.record, "num_available": len(y), "row_limit": limit}

    def arrays(self, record: Record) -> Arrays:
        """The stored arrays of one fold: the predictions, the truth, and the learned parameters."""
        name = _file_name(record)
        if self.out is None:
            return self._memory.get(name, {})
        path = self.out / "folds" / name
        return read_plain(path, "folds") if path.exists() else {}


def _file_name(record: Record) -> str:
    text = "|".join(str(record[field]) for field in KEY)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"


def shipped() -> list[TablePair]:
    """Two attributes of iris, and wine."""
    iris, wine = load_iris(as_frame=True), load_wine(as_frame=True)
    names = np.array(iris.target_names)[iris.target]
    tables = (table_of(iris.data.iloc[:, :2], names, "iris (2 attributes)"), table_of(wine.data, wine.target, "wine"))
    return [(table, None) for table in tables]


def learned_arrays(learner: Any) -> Arrays:
    """The arrays of a fitted learner for the report: the history of its objective, its lengthscales, its draws."""
    arrays: Arrays = {}
    model = last_step(learner)
    result, embedding = getattr(model, "result_", None), getattr(model, "embedding_", None)
    if result is not None:
        arrays["history"] = np.array([step["value"] for step in result.history])
    if embedding is not None:
        arrays["regularization"] = np.atleast_1d(embedding.regularization.detach().cpu().numpy())
    kernel = getattr(embedding, "kernel", None)
    if kernel is not None and getattr(kernel, "has_lengthscale", False):
        arrays["lengthscale"] = kernel.lengthscale.detach().cpu().numpy().ravel()
    if hasattr(model, "inverse_lengthscales_"):
        importances = model.permutation_importance(2, 300)  # few repeats and rows: the report averages over folds
        arrays["importance"], arrays["importance_names"] = importances.mean, np.array(importances.names, dtype=str)
    pool = getattr(getattr(model, "conditioned_", None), "pool", None)
    if pool is not None:
        arrays["weights"] = pool.weights.detach().cpu().numpy()
    arrays.update(getattr(model, "draws_", {}))
    return arrays
