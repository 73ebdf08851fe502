"""Whole tables, as the classifier meets them: CPU time, memory and NLL beside what people use today.

Every learner gets four fifths of the rows, in the form that suits it, in a process of its own; the other rows judge it.
"""

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
from .cases import OURS, Case, Scope, in_own_process

PART = "whole tables"
REFERENCES = {"svc grid": "", "boosting": "", "catboost": "catboost"}
"""By the package that must be installed."""
NAMED = {"robot": 5456, "shuttle": 58_000}
"""Tables of the data directory, with their rows."""
DRAWN = {"500 × 10": (500, 10, 3)}
MILLION = {"a million rows": (1_000_000, 20, 10)}
"""Rows, columns and classes of tables that are drawn."""


def drawn(n: int, d: int, m: int) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """A table of n rows: m classes, each in two normal clusters, in three of five of d columns; 1 % of labels wrong."""
    x, y = make_classification(n, d, n_informative=3 * d // 5, n_redundant=0, n_classes=m, random_state=0)
    return pd.DataFrame(x, columns=[f"x{j}" for j in range(d)]), y


def _table(name: str, n: int, data: pathlib.Path | None) -> tuple[Any, NDArray[Any]]:
    if name in NAMED:
        place = data_directory(data)
        if place is None:
            raise FileNotFoundError(f"Expected a directory with {name}.csv, got none. Give --data DIR.")
        found = read_user_table(place / f"{name}.csv")
        return found.x.iloc[:n], found.y[:n]
    return drawn(n, *{**DRAWN, **MILLION}[name][1:])


def _measure(name: str, learner: str, n: int, data: pathlib.Path | None) -> Record:
    """One learner on one table, in this process alone."""
    x, y = _table(name, n, data)
    rare = np.isin(y, np.unique(y)[np.unique(y, return_counts=True)[1] < 2])
    split = train_test_split(x, y, test_size=0.2, random_state=0, stratify=None if rare.any() else y)
    x_train, x_test, y_train, y_test = split
    record = CLASSIFICATION.measure(
        CLASSIFICATION.learners()[learner].for_tables, (x_train, y_train, x_test, y_test), y
    ).record
    kept = ("nll", "accuracy", "peak_megabytes", "processor_seconds", "predict_seconds")
    return {"seconds": record["fit_seconds"], **{field: record[field] for field in kept}}


def _cases(scope: Scope, sizes: dict[str, int], others: dict[str, str]) -> Iterator[Case]:
    ours = f"{OURS}: default"
    for name, rows in sizes.items():
        n = min(rows, 300) if scope.quick else rows
        for learner, package in {"default": "", **others}.items():
            label = ours if learner == "default" else learner
            prepare = partial(in_own_process, _measure, name, learner, n, scope.data)
            yield Case(f"{PART}: {name}", label, n, prepare, package, against=ours)


def cases(scope: Scope) -> Iterator[Case]:
    """The default and the references on a small, a middling and a large table."""
    drawn_sizes = {name: shape[0] for name, shape in DRAWN.items()}
    yield from _cases(scope, drawn_sizes if scope.quick else {**drawn_sizes, **NAMED}, REFERENCES)


def million_cases(scope: Scope) -> Iterator[Case]:
    """A million rows of twenty columns, beside boosting."""
    yield from _cases(scope, {name: shape[0] for name, shape in MILLION.items()}, {"boosting": ""})
