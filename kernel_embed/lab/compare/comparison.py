"""Every learner on every fold of every table: the cases of a comparison, and the arrays stored with their records."""

from __future__ import annotations

import hashlib
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
from sklearn.datasets import load_iris, load_wine

from ...files import read_arrays, write_whole
from ...resources import few_threads
from ...results import Record, Results, column
from ...splits import cross_validation_folds, proportional_sample
from ..runner import LEFT_OUT, Case, affordable_rows, finished, last_step, run_cases, take
from .tables import UserTable, table_of
from .tasks import TASKS, Arrays, Split

KEY = ("experiment", "dataset", "data", "task", "kernel", "method", "fold", "folds", "seed", "budget")
TablePair = tuple[UserTable, UserTable | None]
"""A table, and its test table if there is one."""
IMPORTANCE_REPEATS, IMPORTANCE_ROWS = 2, 300
"""Permutations of each column, and rows, in each fold; the report averages over folds."""


class Settings(NamedTuple):
    """How a comparison is made: see :func:`kernel_embed.compare`; ``folds`` is 1 with a test table."""

    methods: tuple[str, ...]
    kernel: str = "rbf"
    folds: int = 5
    seed: int = 0
    budget: float | None = 90.0
    task: str = "classification"


class Comparison:
    """Records in ``results``, and one file of arrays for each, in ``out/folds`` or in memory.

    Args:
        results: where records are written, and read after an interruption.
        settings: how to compare.
        out: the directory of the arrays; ``None`` keeps them in memory.
    """

    def __init__(self, results: Results, settings: Settings, out: pathlib.Path | None = None) -> None:
        self.results, self.settings, self.out = results, settings, out
        self.task = TASKS[settings.task]
        self.learners = self.task.learners(settings.kernel)
        for method in settings.methods:
            if method not in self.learners:
                raise ValueError(
                    f"There is no method {method!r} for {self.task.name}. Choose among {', '.join(self.learners)}, or "
                    "name another task."
                )
        self._memory: dict[str, Arrays] = {}

    def run(self, tables: Sequence[TablePair], progress: bool | None = None) -> None:
        """Add one record for each table, method and fold that has none yet."""
        total = len(tables) * len(self.settings.methods) * self.settings.folds
        run_cases(self._cases(tables), self.results, name="compare", total=total, progress=progress)

    def _cases(self, tables: Sequence[TablePair]) -> Iterator[Case]:
        for train, test in tables:
            shared = self._key(train)
            for method in self.settings.methods:
                for fold in range(self.settings.folds):
                    key: Record = {**shared, "method": method, "fold": fold}
                    yield Case(key, partial(self._fold, key, train, test), f"{train.name}, {method}")

    def _key(self, table: UserTable) -> Record:
        settings = {name: getattr(self.settings, name) for name in ("task", "kernel", "folds", "seed", "budget")}
        return {"experiment": "compare", "dataset": table.name, "data": table.fingerprint, **settings}

    def records(self, table: UserTable) -> list[Record]:
        """The records of one table, in the order of the methods and folds."""
        shared = self._key(table)
        order = {method: place for place, method in enumerate(self.settings.methods)}
        same = [r for r in self.results.records if shared.items() <= r.items() and r["method"] in order]
        return sorted(same, key=lambda record: (order[str(record["method"])], record["fold"]))

    def split(self, train: UserTable, test: UserTable | None, fold: int) -> Split:
        """(x, y, x_test, y_test) of a fold."""
        if test is not None:
            return train.x, train.y, test.x, test.y
        x, y = train.x, train.y
        rows, others = list(cross_validation_folds(y, self.settings.folds, self.settings.seed))[fold]
        return take(x, rows), y[rows], take(x, others), y[others]

    def _fold(self, key: Record, train: UserTable, test: UserTable | None) -> Record:
        fold, budget = int(str(key["fold"])), self.settings.budget
        earlier = [r for f in range(fold) for r in self.results.find({**key, "fold": f})]
        seconds = column(finished(earlier), "processor_seconds")
        if budget is not None and len(seconds) > 1 and seconds.sum() + seconds.mean() > 1.5 * budget:
            return {LEFT_OUT: "the budget is used up by the folds before", "row_limit": earlier[-1].get("row_limit")}
        x, y, x_test, y_test = self.split(train, test, fold)
        make = self.learners[str(key["method"])].for_tables
        with few_threads(len(train.y)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the record holds the important ones
            limits = [r["row_limit"] for r in earlier if LEFT_OUT not in r or r.get("row_limit") == 0]
            if limits or budget is None:
                limit = limits[-1] if limits else None
            else:
                limit = affordable_rows(make, x, y, budget / self.settings.folds, self.settings.seed)
                limit = None if limit >= len(y) else limit
            if limit == 0:
                return {LEFT_OUT: "takes far more than its share of the budget even on the fewest rows", "row_limit": 0}
            rows = proportional_sample(y, len(y) if limit is None else int(limit), self.settings.seed)
            measured = self.task.measure(make, (take(x, rows), y[rows], x_test, y_test), train.y)
        # The arrays first: a record in the file means that everything of this fold is there.
        self._keep(key, {**measured.arrays, **learned_arrays(measured.model)})
        return {**measured.record, "num_available": len(y), "row_limit": limit}

    def arrays(self, record: Record) -> Arrays:
        """The stored arrays of one fold: the predictions, the truth, and the learned parameters."""
        name = _file_name(record)
        if self.out is None:
            return self._memory.get(name, {})
        path = self.out / "folds" / name
        return read_arrays(path) if path.exists() else {}

    def _keep(self, key: Record, arrays: Arrays) -> None:
        if self.out is None:
            self._memory[_file_name(key)] = arrays
        else:
            write_whole(self.out / "folds" / _file_name(key), partial(_write_arrays, arrays))


def _write_arrays(arrays: Arrays, file: IO[bytes]) -> None:
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # the stub takes names for its own options


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
        importances = model.permutation_importance(IMPORTANCE_REPEATS, IMPORTANCE_ROWS)
        arrays["importance"], arrays["importance_names"] = importances.mean, np.array(importances.names, dtype=str)
    pool = getattr(getattr(model, "conditioned_", None), "pool", None)
    if pool is not None:
        arrays["weights"] = pool.weights.detach().cpu().numpy()
    arrays.update(getattr(model, "draws_", {}))
    return arrays
