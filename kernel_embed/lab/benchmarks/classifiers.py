"""Time to a learned classifier, and the NLL it reaches, beside what people use today; growth; and whole tables."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import make_classification
from sklearn.model_selection import train_test_split

from ...results import Record
from ..compare.data import data_directory
from ..compare.tables import read_user_table
from ..compare.tasks import CLASSIFICATION
from .measurement import OURS, Call, Measurement, Scope, in_own_process, part

PART, GROWTH, TABLES = "time to a learned classifier", "growth with n", "whole tables"
NUM_TEST = 1000
REFERENCES = ("svc grid", "gpc", "dirichlet")
ALIKE = ("rademacher 4e/sqrt(n)", "rademacher 4e", "empirical risk")
GROWING = tuple(name for name, learner in CLASSIFICATION.learners().items() if learner.default and name not in ALIKE)
"""All ways to learn that are compared, but one of each kind of cost."""


NAMED = {"robot": 5456, "shuttle": 58_000}
"""Tables of the data directory, with their rows."""
DRAWN = {"500 × 10": (500, 10, 3), "a million rows": (1_000_000, 20, 10)}
"""Rows, columns and classes of simulated tables."""
DEFAULT = f"{OURS}: default"


def problem(
    n: int, d: int = 8, m: int = 2
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """(x, y, x_test, y_test): two classes by noisy smooth scores of three of eight features, in the unit cube.

    Two classes favor the references, which learn one kernel for each class or pair of classes. The test points are the
    same for every n; their labels are drawn again, so compare NLL at one n only.
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, m))
    x = rng.uniform(size=(NUM_TEST + n, d))
    scores = 4.0 * np.sin(4.0 * x[:, :3]) @ weights
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(x), 1))).sum(axis=1)
    return x[NUM_TEST:], y[NUM_TEST:], x[:NUM_TEST], y[:NUM_TEST]


def _prepare(name: str, n: int) -> Call:
    make = CLASSIFICATION.learners()[name].make
    x, y, x_test, y_test = problem(n)

    def call() -> Record:
        record = CLASSIFICATION.measure(make, (x, y, x_test, y_test), np.arange(2)).record
        fields = ("nll", "accuracy", "peak_megabytes", "processor_seconds", "num_evaluations")
        return {"seconds": record["fit_seconds"], **{field: record[field] for field in fields}}

    return call


@part("classifier")
def classifier_cases(scope: Scope) -> Iterator[Measurement]:
    """Time to a learned classifier and its NLL, beside SVC, GPC and Dirichlet."""
    for n in (150, 300) if scope.quick else (500, 1000, 2000, 4000):
        yield Measurement(PART, DEFAULT, n, partial(_prepare, "default", n), against=DEFAULT)
        for name in REFERENCES:
            yield Measurement(PART, name, n, partial(_prepare, name, n), against=DEFAULT)


@part("growth")
def growth_cases(scope: Scope) -> Iterator[Measurement]:
    """Time and memory of every learner at sizes that double, and the exponents."""
    for n in (75, 150) if scope.quick else (250, 500, 1000, 2000):
        for name in GROWING:
            yield Measurement(GROWTH, name, n, partial(_prepare, name, n), against="default")


def _table(name: str, n: int, data: pathlib.Path | None) -> tuple[Any, NDArray[Any]]:
    if name in NAMED:
        folder = data_directory(data)
        if folder is None:
            raise FileNotFoundError(f"No directory with {name}.csv. Give --data DIR.")
        table = read_user_table(folder / f"{name}.csv")
        return table.x.iloc[:n], table.y[:n]
    _, d, m = DRAWN[name]
    # m classes, each in two normal clusters, in three of five of d columns; 1 % of labels wrong
    x, y = make_classification(n, d, n_informative=3 * d // 5, n_redundant=0, n_classes=m, random_state=0)
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(d)]), y


def _measure(name: str, learner: str, n: int, data: pathlib.Path | None) -> Record:
    """One learner on four fifths of the rows of a table, in the form that suits it, in this process alone."""
    x, y = _table(name, n, data)
    rare = np.isin(y, np.unique(y)[np.unique(y, return_counts=True)[1] < 2])
    split = train_test_split(x, y, test_size=0.2, random_state=0, stratify=None if rare.any() else y)
    x_train, x_test, y_train, y_test = split
    make = CLASSIFICATION.learners()[learner].for_tables
    record = CLASSIFICATION.measure(make, (x_train, y_train, x_test, y_test), y).record
    fields = ("nll", "accuracy", "peak_megabytes", "processor_seconds", "predict_seconds")
    return {"seconds": record["fit_seconds"], **{field: record[field] for field in fields}}


@part("tables")
def table_cases(scope: Scope) -> Iterator[Measurement]:
    """The default and the references on a small, a middling and a large table."""
    others = {"svc grid": "", "boosting": "", "catboost": "catboost"}
    for name, rows in ({"500 × 10": 500} if scope.quick else {"500 × 10": 500, **NAMED}).items():
        yield from _on_table(scope, name, rows, others)


@part("million-rows")
def million_cases(scope: Scope) -> Iterator[Measurement]:
    """A million rows of twenty columns, beside boosting."""
    yield from _on_table(scope, "a million rows", 1_000_000, {"boosting": ""})


def _on_table(scope: Scope, name: str, rows: int, others: dict[str, str]) -> Iterator[Measurement]:
    n = min(rows, 300) if scope.quick else rows
    for learner, package in {"default": "", **others}.items():
        label = DEFAULT if learner == "default" else learner
        prepare = partial(in_own_process, _measure, name, learner, n, scope.data)
        yield Measurement(f"{TABLES}: {name}", label, n, prepare, package, against=DEFAULT)
