"""The ways to learn a kernel, side by side on data that scikit-learn ships or on the user's own table."""

from __future__ import annotations

import hashlib
import json
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import IO, Any, NamedTuple

import numpy as np
from linear_operator.utils.errors import NanError, NotPSDError
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import KFold, StratifiedKFold

from ...files import read_arrays, write_whole
from ...progress import progress_bar
from ...results import Record, Results, column
from ...threads import few_threads
from ...version import __version__
from .budget import affordable, subset, take
from .data import Table
from .evaluate import Features, Measured, final
from .learner import Learner
from .learners import METHODS
from .tables import UserTable, named_table
from .task import TASKS

KEY = ("experiment", "dataset", "data", "kernel", "method", "fold", "folds", "seed", "budget")

FAILURES = (ValueError, ArithmeticError, MemoryError, ImportError, RuntimeError, NotPSDError, NanError)
"""What a learner may raise on data it cannot take; its row says so, and the others go on."""


ALL_ROWS = 2**62


class Settings(NamedTuple):
    """How a comparison is made.

    Attributes:
        methods: names of learners.
        kernel: see :func:`kernel_embed.lab.compare.learners.learners`.
        folds: of the cross validation; 1 where a test table is given.
        seed: of folds and subsets.
        budget: CPU seconds for one learner on one table, all folds together; ``None`` for no limit, where
            every learner has all rows.
        task: what is predicted, one of :data:`kernel_embed.lab.compare.task.TASKS`.
    """

    methods: tuple[str, ...] = METHODS
    kernel: str = "rbf"
    folds: int = 5
    seed: int = 0
    budget: float | None = 90.0
    task: str = "classification"


class Comparison:
    """Records in ``results``, and beside them one file of arrays for each, in ``out/folds`` or in memory.

    Args:
        results: where records go, and where those of an interrupted run are found.
        settings: how to compare.
        out: the directory of the arrays; ``None`` keeps them in memory.
    """

    def __init__(self, results: Results, settings: Settings, out: pathlib.Path | None = None) -> None:
        self.results, self.settings = results, settings
        self.task = TASKS[settings.task]
        self.learners = self.task.learners(settings.kernel)
        for method in settings.methods:
            if method not in self.learners:
                raise ValueError(
                    f"Expected methods among {', '.join(self.learners)} for {self.task.name}, got {method!r}. Choose "
                    "among these, or name another task."
                )
        self._folder = None if out is None else out / "folds"
        self._memory: dict[str, dict[str, NDArray[Any]]] = {}

    def run(self, tables: Sequence[tuple[UserTable, UserTable | None]], progress: bool | None = None) -> None:
        """Fill ``results`` with one record for each table (and its test table), method and fold."""
        total = len(tables) * self.settings.folds * len(self.settings.methods)
        with progress_bar(total, "compare", progress) as bar:
            for train, test in tables:
                for method in self.settings.methods:
                    bar.set_postfix_str(f"{train.name}, {method}")
                    with few_threads(len(train.y)):
                        for _ in self._method(method, train, test):
                            bar.update()

    def name(self, table: UserTable, method: str, fold: int) -> Record:
        """The fields that name a record."""
        _, kernel, folds, seed, budget, _ = self.settings
        record: Record = {"experiment": "compare", "dataset": table.name, "data": table.fingerprint, "kernel": kernel}
        record.update(method=method, fold=fold, folds=folds, seed=seed, budget=budget)
        return record

    def records(self, table: UserTable) -> list[Record]:
        """The finished records of one table, in the order of the methods and folds."""
        named = self.name(table, "", 0)
        found = []
        for method in self.settings.methods:
            for fold in range(self.settings.folds):
                found += self.results.find({**named, "method": method, "fold": fold})
        return found

    def arrays(self, record: Record) -> dict[str, NDArray[Any]]:
        """What was kept of one fold: ``probabilities``, ``truth`` (class numbers), and the learner's own arrays."""
        name = _file_name(record)
        if self._folder is None:
            return self._memory.get(name, {})
        path = self._folder / name
        if not path.exists():
            return {}
        return read_arrays(path)

    def kept_pictures(self, section: str, figures: Sequence[object]) -> list[list[str]] | None:
        """The pictures of a section that were drawn of the same figures before; ``None`` where there are none."""
        path = self._pictures(section, figures)
        return None if path is None or not path.exists() else list(json.loads(path.read_text()))

    def keep_pictures(self, section: str, figures: Sequence[object], drawn: Sequence[Sequence[str]]) -> None:
        """Keep them for the next time, where there is a directory."""
        path = self._pictures(section, figures)
        if path is not None:
            write_whole(path, lambda file: json.dump([list(picture) for picture in drawn], file), "w")

    def _pictures(self, section: str, figures: Sequence[object]) -> pathlib.Path | None:
        text = json.dumps([section, __version__, figures])
        name = hashlib.sha256(text.encode()).hexdigest()[:16]
        return None if self._folder is None else self._folder.with_name("pictures") / f"{name}.json"

    def splits(self, train: UserTable, test: UserTable | None) -> Iterator[tuple[NDArray[Any], ...]]:
        """(x, y, x_test, y_test) of every fold."""
        if test is not None:
            yield train.x, train.y, test.x, test.y
            return
        x, y = train.x, train.y
        for rows, held in folds_of(y, self.settings.folds, self.settings.seed):
            yield take(x, rows), y[rows], take(x, held), y[held]

    def _method(self, method: str, train: UserTable, test: UserTable | None) -> Iterator[None]:
        # of classes what there is to tell apart, of numbers their spread
        known = train.y if self.task.name == "regression" else np.unique(train.y)
        learner = self.learners[method]
        limit: int | None = None
        for fold, split in enumerate(self.splits(train, test)):
            name = self.name(train, method, fold)
            if name in self.results:
                limit = _limit(self.results.find(name)[0])
            elif self._is_over_time(train, method, fold):
                self._leave_out(name, "the budget is used up by the folds before", limit)
            else:
                limit = self._fold(name, learner, split, known, limit)
            yield

    def _is_over_time(self, train: UserTable, method: str, fold: int) -> bool:
        """Whether two folds or more have used up the budget, and another would go far beyond it."""
        if self.settings.budget is None:
            return False
        done = [r for f in range(fold) for r in self.results.find(self.name(train, method, f)) if "left_out" not in r]
        seconds = column(done, "processor_seconds")
        return len(done) >= 2 and seconds.sum() + seconds.mean() > 1.5 * self.settings.budget

    def _fold(
        self, name: Record, learner: Learner, split: tuple[NDArray[Any], ...], known: NDArray[Any], limit: int | None
    ) -> int | None:
        x, y, x_test, y_test = split
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # what matters of them is in the record
                if limit is None:
                    limit = self._row_limit(learner, x, y)
                if limit == 0:
                    self._leave_out(name, "takes far more than its share of the budget even on the fewest rows", 0)
                    return 0
                chosen = subset(y, limit, self.settings.seed)
                part = (take(x, chosen), y[chosen], x_test, y_test)
                measured = self.task.measure(learner.for_tables, part, known)
        except FAILURES as error:
            self._leave_out(name, f"{type(error).__name__}: {_first_line(error)}", limit)
            return limit
        # The arrays first: a record in the file means that everything of this fold is there.
        self._keep(name, measured)
        row_limit = None if limit == ALL_ROWS else limit
        self.results.add({**name, **measured.record, "num_available": len(y), "row_limit": row_limit})
        return limit

    def _row_limit(self, learner: Learner, x: Features, y: NDArray[Any]) -> int:
        """How many rows the budget allows, 0 where none."""
        if self.settings.budget is None:
            return ALL_ROWS
        share = self.settings.budget / self.settings.folds
        rows = affordable(learner.for_tables, x, y, share, self.settings.seed).rows
        return ALL_ROWS if rows >= len(y) else rows

    def _leave_out(self, name: Record, why: str, limit: int | None) -> None:
        self.results.add({**name, "left_out": why, "row_limit": None if limit == ALL_ROWS else limit})

    def _keep(self, name: Record, measured: Measured) -> None:
        arrays: dict[str, NDArray[Any]] = {**measured.arrays, **learned_arrays(measured.learner)}
        if self._folder is None:
            self._memory[_file_name(name)] = arrays
        else:
            write_whole(self._folder / _file_name(name), partial(_write_arrays, arrays))


def _write_arrays(arrays: dict[str, NDArray[Any]], file: IO[bytes]) -> None:
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]  # the stub takes names for its own options


def shipped() -> list[tuple[UserTable, UserTable | None]]:
    """Two attributes of iris, and wine."""
    iris, wine = load_iris(), load_wine()
    names = np.array(iris.target_names)[iris.target]
    return [
        (named_table("iris (2 attributes)", Table(iris.data[:, :2], names), iris.feature_names[:2]), None),
        (named_table("wine", Table(wine.data, wine.target), wine.feature_names), None),
    ]


def folds_of(y: NDArray[Any], folds: int, seed: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Stratified folds, plain ones for numbers and where no class has enough rows."""
    if y.dtype.kind == "f":
        yield from KFold(folds, shuffle=True, random_state=seed).split(y)
        return
    most = np.unique(y, return_counts=True)[1].max()
    splitter = (StratifiedKFold if most >= folds else KFold)(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        yield from splitter.split(y, y)


def scaled(x: NDArray[Any], y: NDArray[Any], x_test: NDArray[Any], y_test: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Features in [0, 1] on ``x``, and the same change of ``x_test``; constant columns become zero on ``x``."""
    low, high = x.min(axis=0), x.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return (x - low) / spread, y, (x_test - low) / spread, y_test


def learned_arrays(learner: Any) -> dict[str, NDArray[Any]]:
    """What a report can draw of a fitted learner: the history of its objective, its lengthscales, its draws."""
    arrays: dict[str, NDArray[Any]] = {}
    model = final(learner)
    result, embedding = getattr(model, "result_", None), getattr(model, "embedding_", None)
    if result is not None:
        arrays["history"] = np.array([step["value"] for step in result.history])
    if embedding is not None:
        arrays["regularization"] = np.atleast_1d(embedding.regularization.detach().cpu().numpy())
    kernel = getattr(embedding, "kernel", None)
    if kernel is not None and getattr(kernel, "has_lengthscale", False):
        arrays["lengthscale"] = kernel.lengthscale.detach().cpu().numpy().ravel()
    relevances = getattr(model, "feature_relevances_", None)
    if relevances is not None:
        arrays["relevance"] = np.array(list(relevances.values()), dtype=np.float64)
        arrays["relevance_names"] = np.array(list(map(str, relevances)), dtype=str)
    pool = getattr(getattr(model, "conditioned_", None), "pool", None)
    if pool is not None:
        arrays["weights"] = pool.weights.detach().cpu().numpy()
    arrays.update(getattr(model, "draws_", {}))
    return arrays


def _limit(record: Record) -> int:
    """How many rows a finished fold was allowed, for the others to take as many."""
    limit = record.get("row_limit")
    return ALL_ROWS if limit is None else int(limit)


def _file_name(record: Record) -> str:
    text = "|".join(str(record[field]) for field in KEY)
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.npz"


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [""])[0][:200]
