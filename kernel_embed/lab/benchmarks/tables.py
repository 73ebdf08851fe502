"""Learners on tables compared with those of other libraries: time, memory, latency, many rows, and distributions."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from ...archive import load, save
from ...results import Record, group, number
from ...tabular import TableEncoder
from ..compare.reading import Categories
from ..compare.regressors import Normal
from ..compare.tables import read_user_table
from ..compare.tasks import CLASSIFICATION, COVERAGE, REGRESSION, Task
from ..datasets import data_folder
from ..experiment import Settings
from . import NOTES, OURS, Call, Measurement, part

NUM_TEST = 1000
REFERENCES = ("svc grid", "gpc", "dirichlet")
SMALL, MILLION, HETEROSCEDASTIC = "500 × 10", "a million rows", "heteroscedastic"
ROWS = {SMALL: 500, "robot": 5456, "shuttle": 58_000, MILLION: 1_000_000, HETEROSCEDASTIC: 100_000}
DRAWN = {SMALL: (10, 3), MILLION: (20, 10)}
"""Columns and classes of simulated tables."""
DEFAULT = f"{OURS}: default"
LABELS = {"default": DEFAULT}
Array = NDArray[np.float64]


def problem(n: int) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """(x, y, x_test, y_test): two classes by noisy smooth scores of three of eight features, in the unit cube.

    The test points are the same for every n; their labels are drawn again, so compare NLL at one n only.
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, 2))
    x = rng.uniform(size=(NUM_TEST + n, 8))
    scores = 4.0 * np.sin(4.0 * x[:, :3]) @ weights
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(x), 1))).sum(axis=1)
    return x[NUM_TEST:], y[NUM_TEST:], x[:NUM_TEST], y[:NUM_TEST]


def _prepare(learner: str, n: int) -> Call:
    make, split = CLASSIFICATION.learners()[learner].make, problem(n)
    return lambda: _figures(CLASSIFICATION.measure(make, split, np.arange(2)).record)


def _figures(record: Record) -> Record:
    fields = ("nll", "accuracy", "crps", "coverage", "peak_megabytes", "processor_seconds", "predict_seconds")
    return {"seconds": record["fit_seconds"], **{field: record[field] for field in fields if field in record}}


@part("classifier")
def classifier_cases(settings: Settings) -> Iterator[Measurement]:
    """Training time and NLL of the classifier, compared with SVC, GPC and Dirichlet."""
    for n in (150, 300) if settings.quick else (500, 1000, 2000, 4000):
        for learner in ("default", *REFERENCES):
            prepare, label = partial(_prepare, learner, n), LABELS.get(learner, learner)
            yield Measurement("time to a learned classifier", label, n, prepare, against=DEFAULT)


def heteroscedastic(n: int, seed: int = 0) -> tuple[pd.DataFrame, Array, Array]:
    """x uniform in the unit square, y normal around sin 6x₁ with a scale from 0.1 to 0.9 along x₂; and the CRPS of y.

    That is the score of the true distribution (Gneiting and Raftery 2007).
    """
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=(n, 2)), rng.normal(size=n)
    mean, scale = np.sin(6 * x[:, 0]), 0.1 + 0.8 * x[:, 1]
    y = mean + scale * z
    return pd.DataFrame(x), y, Normal(mean, scale).crps(y)


def _table(name: str, n: int, data: pathlib.Path | None) -> tuple[Any, NDArray[Any]]:
    if name not in DRAWN:
        table = read_user_table(data_folder(f"{name}.csv", data) / f"{name}.csv")
        return table.x.iloc[:n], table.y[:n]
    d, m = DRAWN[name]
    # m classes, each in two normal clusters, in three of five of d columns; 1 % of labels wrong
    x, y = make_classification(n, d, n_informative=3 * d // 5, n_redundant=0, n_classes=m, random_state=0)
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(d)]), y


def _measure(name: str, learner: str, n: int, data: pathlib.Path | None) -> Record:
    """One learner in its preferred encoding: on four fifths of the rows of a table, or on simulated numbers."""
    if name == HETEROSCEDASTIC:
        (x, y, _), (x_test, y_test, best) = heteroscedastic(n), heteroscedastic(4000, seed=1)
        make = REGRESSION.learners()[learner].for_tables
        record = _figures(REGRESSION.measure(make, (x, y, x_test, y_test), y).record)
        return {**record, "over_truth": float(number(record, "crps") * y.std() / best.mean())}
    x, y = _table(name, n, data)
    stratify = y if np.unique(y, return_counts=True)[1].min() > 1 else None
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=0, stratify=stratify)
    make = CLASSIFICATION.learners()[learner].for_tables
    return _figures(CLASSIFICATION.measure(make, (x_train, y_train, x_test, y_test), y).record)


def _alone(*arguments: object) -> Call:
    """:func:`_measure` in a new process, so that its peak memory can be measured."""

    def call() -> Record:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(_measure, arguments)

    return call


def _on_table(settings: Settings, name: str, others: dict[str, str]) -> Iterator[Measurement]:
    n = min(ROWS[name], 300) if settings.quick else ROWS[name]
    for learner, package in {"default": "", **others}.items():
        prepare = partial(_alone, name, learner, n, settings.data)
        yield Measurement(f"whole tables: {name}", LABELS.get(learner, learner), n, prepare, package, DEFAULT)


@part("tables")
def table_cases(settings: Settings) -> Iterator[Measurement]:
    """The default compared with SVC, boosting and CatBoost on a small, a medium and a large table."""
    for name in (SMALL,) if settings.quick else (SMALL, "robot", "shuttle"):
        yield from _on_table(settings, name, {"svc grid": "", "boosting": "", "catboost": "catboost"})


@part("rows")
def row_cases(settings: Settings) -> Iterator[Measurement]:
    """A million rows of ten classes and 100,000 rows of a numeric target, compared with boosting."""
    for name in (MILLION, HETEROSCEDASTIC):
        yield from _on_table(settings, name, {"boosting": ""})


def _latency(task: Task, learner: str, rows: int) -> Call:
    """Predictions of a fitted model; ours is saved and loaded first."""
    x, y = (load_breast_cancer if task is CLASSIFICATION else load_diabetes)(return_X_y=True, as_frame=True)
    model, figures = task.learners()[learner].for_tables().fit(x, y.to_numpy()), Record()
    if learner == "default":
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "model.ke"
            save(model, file)
            start = time.perf_counter()
            model = load(file)
            figures["load_seconds"] = time.perf_counter() - start
    predict, x_new = model.predict_proba if task is CLASSIFICATION else model.predict, x[:rows]

    def call() -> Record:
        predict(x_new)
        return figures

    return call


@part("latency")
def latency_cases(settings: Settings) -> Iterator[Measurement]:
    """Prediction of one row and of a table by a loaded model, compared with boosting."""
    for target, task, n in (("classes", CLASSIFICATION, 569), ("a number", REGRESSION, 442)):
        for words, rows in {"one row": 1, "all rows": n}.items() if not settings.quick else [("one row", 1)]:
            for learner in ("default", "boosting"):
                prepare, title = partial(_latency, task, learner, rows), f"prediction of {target}, {words}"
                yield Measurement(title, LABELS.get(learner, learner), n, prepare, against=DEFAULT, repeats=30)


TABLES = "distributions: tables"
NAMES = ("concrete", "boston", "sacramento", "ozone", "diabetes")
"""Tables of the data directory; the last is scikit-learn's."""
FOLDS = 5
COMPARED = {
    OURS: "default",
    f"{OURS}: one kernel by the score": "one kernel",
    f"{OURS}: one kernel by the evidence": "evidence",
    "NGBoost": "ngboost",
    "quantile forest": "quantile forest",
    "CatBoost with uncertainty": "catboost",
    "histogram boosting, quantiles": "boosting",
    "Gaussian process, ARD": "gaussian process",
}
"""Learners of ``kernel-embed compare``, with the same preparation of the table."""
MAPIE = "MAPIE CV+"
INTERVALS: dict[str, tuple[Any, Any]] = {
    f"{MAPIE}, random forest": (TableEncoder(), RandomForestRegressor(300, random_state=0)),
    f"{MAPIE}, histogram boosting": (
        Categories(),
        HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0),
    ),
}
"""Regressors inside MAPIE's intervals."""


def _predict(name: str, x: pd.DataFrame, y: Array, new: pd.DataFrame, outcomes: Array) -> dict[str, Array]:
    """The CRPS of each new row, means and intervals; MAPIE's CV+ has no distribution, so no CRPS."""
    if name in COMPARED:
        return REGRESSION.predict(REGRESSION.learners()[COMPARED[name]].for_tables().fit(x, y), new, outcomes, y)
    from mapie.regression import CrossConformalRegressor

    base = clone(make_pipeline(*INTERVALS[name]))
    model = CrossConformalRegressor(base, confidence_level=COVERAGE, cv=10, random_state=0)
    mean, interval = model.fit_conformalize(x, y).predict_interval(new)
    return {"crps": np.full(len(new), np.nan), "mean": mean, "interval": interval[:, :, 0]}


def _load(name: str, data: pathlib.Path | None) -> tuple[pd.DataFrame, Array]:
    """A table with its numbers and texts, and its column ``target``."""
    if name == "diabetes":
        x, y = load_diabetes(return_X_y=True, as_frame=True)
        return x, y.to_numpy(dtype=np.float64)
    frame = pd.read_csv(data_folder(f"{name}.csv", data) / f"{name}.csv")
    return frame, frame.pop("target").to_numpy(dtype=np.float64)


def _predict_folds(learner: str, name: str, data: pathlib.Path | None, rows: int | None) -> Call:
    x, y = _load(name, data)
    order = np.random.RandomState(0).permutation(len(y))[:rows]
    x, y, scale = x.iloc[order].reset_index(drop=True), y[order], y[order].std()
    folds = [np.arange(len(y)) % FOLDS == fold for fold in range(FOLDS)]

    def call() -> Record:
        parts = [_predict(learner, x[~test], y[~test], x[test], y[test]) for test in folds]
        record: Record = {f"crps_{k}": float(part["crps"].mean() / scale) for k, part in enumerate(parts)}
        crps, mean, interval = (np.concatenate([p[field] for p in parts]) for field in ("crps", "mean", "interval"))
        outcomes = np.concatenate([y[test] for test in folds])
        inside = (interval[:, 0] <= outcomes) & (outcomes <= interval[:, 1])
        return record | {
            "crps": float(crps.mean() / scale),
            "rmse": float(np.sqrt(np.mean((mean - outcomes) ** 2)) / scale),
            "coverage": float(inside.mean()),
            "width": float((interval[:, 1] - interval[:, 0]).mean() / scale),
        }

    return call


@part("distributions")
def distribution_cases(settings: Settings) -> Iterator[Measurement]:
    """Every learner on every table, five folds, CRPS and width in standard deviations of the target."""
    rows = 60 if settings.quick else None
    for name in settings.datasets or (("diabetes",) if settings.quick or settings.data is None else NAMES):
        n = len(_load(name, settings.data)[1][:rows])
        for learner in (OURS, "NGBoost") if settings.quick else (*COMPARED, *INTERVALS):
            package = REGRESSION.learners()[COMPARED[learner]].package if learner in COMPARED else "mapie"
            prepare = partial(_predict_folds, learner, name, settings.data, rows)
            yield Measurement(f"{TABLES}: {name}", learner, n, prepare, package)


def distribution_note(records: Sequence[Record]) -> str:
    """Our CRPS minus the best other one, with its paired standard error; width of our intervals over MAPIE's."""
    lines = []
    for title, own in group(records, lambda record: record["part"]).items():
        by_name = {str(r["name"]): r for r in own}
        if OURS not in by_name:
            continue
        ours, table = by_name.pop(OURS), str(title).removeprefix(TABLES + ": ")
        others = [n for n in by_name if not n.startswith((OURS, MAPIE))]
        if others:
            best = min(others, key=lambda name: number(by_name[name], "crps"))
            folds = [f"crps_{k}" for k in range(FOLDS)]
            difference = np.array([number(ours, f) - number(by_name[best], f) for f in folds])
            error = difference.std(ddof=1) / np.sqrt(FOLDS)
            lines.append(f"{table}: ours less {best}, the best of the others: {difference.mean():+.4f} ± {error:.4f}")
        for name in (n for n in by_name if n.startswith(MAPIE)):
            width = number(ours, "width") / number(by_name[name], "width")
            lines.append(f"{table}: width of ours over that of {name}: {width:.3f}")
    return "\n".join(lines)


NOTES[TABLES] = distribution_note
