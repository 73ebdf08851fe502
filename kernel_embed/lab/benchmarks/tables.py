"""The default classifier and regressor compared with other learners: time, memory, latency, and many rows."""

from __future__ import annotations

import pathlib
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.datasets import load_breast_cancer, load_diabetes, make_classification
from sklearn.model_selection import train_test_split

from ...archive import load, save
from ...results import Record, number
from ..compare.reading import data_directory
from ..compare.tables import read_user_table
from ..compare.tasks import CLASSIFICATION, REGRESSION, Task
from .measurement import OURS, Call, Measurement, Scope, in_own_process, part

CLASSIFIERS, TABLES, LATENCY = "time to a learned classifier", "whole tables: {}", "prediction of {}, {}"
NUM_TEST = 1000
REFERENCES = ("svc grid", "gpc", "dirichlet")
SMALL, MILLION, HETEROSCEDASTIC = "500 × 10", "a million rows", "heteroscedastic"
ROWS = {SMALL: 500, "robot": 5456, "shuttle": 58_000, MILLION: 1_000_000, HETEROSCEDASTIC: 100_000}
DRAWN = {SMALL: (10, 3), MILLION: (20, 10)}
"""Columns and classes of simulated tables."""
DEFAULT = f"{OURS}: default"
Array = NDArray[np.float64]


def problem(n: int) -> tuple[Array, NDArray[np.int64], Array, NDArray[np.int64]]:
    """(x, y, x_test, y_test): two classes by noisy smooth scores of three of eight features, in the unit cube.

    Two classes favor the references, which learn one kernel for each class or pair of classes. The test points are the
    same for every n; their labels are drawn again, so compare NLL at one n only.
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
def classifier_cases(scope: Scope) -> Iterator[Measurement]:
    """Training time and NLL of the classifier, compared with SVC, GPC and Dirichlet."""
    for n in (150, 300) if scope.quick else (500, 1000, 2000, 4000):
        for learner in ("default", *REFERENCES):
            yield Measurement(CLASSIFIERS, _label(learner), n, partial(_prepare, learner, n), against=DEFAULT)


def _label(learner: str) -> str:
    return DEFAULT if learner == "default" else learner


def heteroscedastic(n: int, seed: int = 0) -> tuple[pd.DataFrame, Array, Array]:
    """x uniform in the unit square, y normal around sin 6x₁ with a scale from 0.1 to 0.9 along x₂; and the CRPS of y.

    That is the score of the true distribution (Gneiting and Raftery 2007).
    """
    rng = np.random.default_rng(seed)
    x, z = rng.uniform(size=(n, 2)), rng.normal(size=n)
    scale = 0.1 + 0.8 * x[:, 1]
    crps = scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    return pd.DataFrame(x), np.sin(6 * x[:, 0]) + scale * z, crps


def _table(name: str, n: int, data: pathlib.Path | None) -> tuple[Any, NDArray[Any]]:
    if name not in DRAWN:
        folder = data_directory(data)
        if folder is None:
            raise FileNotFoundError(f"No directory with {name}.csv. Give --data DIR.")
        table = read_user_table(folder / f"{name}.csv")
        return table.x.iloc[:n], table.y[:n]
    d, m = DRAWN[name]
    # m classes, each in two normal clusters, in three of five of d columns; 1 % of labels wrong
    x, y = make_classification(n, d, n_informative=3 * d // 5, n_redundant=0, n_classes=m, random_state=0)
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(d)]), y


def _measure(name: str, learner: str, n: int, data: pathlib.Path | None) -> Record:
    """One learner on four fifths of the rows of a table, in its preferred encoding, in this process alone."""
    if name == HETEROSCEDASTIC:
        return _measure_regression(learner, n)
    x, y = _table(name, n, data)
    rare = np.isin(y, np.unique(y)[np.unique(y, return_counts=True)[1] < 2])
    x_train, x_test, y_train, y_test = train_test_split(
        x, y, test_size=0.2, random_state=0, stratify=None if rare.any() else y
    )
    make = CLASSIFICATION.learners()[learner].for_tables
    return _figures(CLASSIFICATION.measure(make, (x_train, y_train, x_test, y_test), y).record)


def _measure_regression(learner: str, n: int) -> Record:
    (x, y, _), (x_new, y_new, best) = heteroscedastic(n), heteroscedastic(4000, seed=1)
    make = REGRESSION.learners()[learner].for_tables
    record = _figures(REGRESSION.measure(make, (x, y, x_new, y_new), y).record)
    return {**record, "over_truth": float(number(record, "crps") * y.std() / best.mean())}


def _on_table(scope: Scope, name: str, others: dict[str, str]) -> Iterator[Measurement]:
    n = min(ROWS[name], 300) if scope.quick else ROWS[name]
    for learner, package in {"default": "", **others}.items():
        prepare = partial(in_own_process, _measure, name, learner, n, scope.data)
        yield Measurement(TABLES.format(name), _label(learner), n, prepare, package, against=DEFAULT)


@part("tables")
def table_cases(scope: Scope) -> Iterator[Measurement]:
    """The default compared with SVC, boosting and CatBoost on a small, a medium and a large table."""
    for name in (SMALL,) if scope.quick else (SMALL, "robot", "shuttle"):
        yield from _on_table(scope, name, {"svc grid": "", "boosting": "", "catboost": "catboost"})


@part("rows")
def row_cases(scope: Scope) -> Iterator[Measurement]:
    """A million rows of ten classes and 100,000 rows of a numeric target, compared with boosting."""
    for name in (MILLION, HETEROSCEDASTIC):
        yield from _on_table(scope, name, {"boosting": ""})


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
def latency_cases(scope: Scope) -> Iterator[Measurement]:
    """Prediction of one row and of a table by a loaded model, compared with boosting."""
    for target, task, n in (("classes", CLASSIFICATION, 569), ("a number", REGRESSION, 442)):
        for words, rows in {"one row": 1, "all rows": n}.items() if not scope.quick else [("one row", 1)]:
            for learner in ("default", "boosting"):
                prepare = partial(_latency, task, learner, rows)
                title = LATENCY.format(target, words)
                yield Measurement(title, _label(learner), n, prepare, against=DEFAULT, repeats=30)
