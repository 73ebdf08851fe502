"""The papers' data sets, loaded from a directory or from OpenML, and their folds; none of them ships with us."""

from __future__ import annotations

import csv
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold

ENVIRONMENT_VARIABLE = "KERNEL_EMBED_DATA"

OPENML = {
    "banknote": ("banknote-authentication", 1),
    "breastcancer": ("breast-w", 1),
    "diabetes": ("diabetes", 1),
    "ecoli": ("ecoli", 1),
    "ionosphere": ("ionosphere", 1),
    "musk": ("clean1", 1),
    "robot": ("wall-robot-navigation", 1),
    "segment": ("segment", 1),
    "vertebral": ("vertebra-column", 1),
    "waveform": ("waveform-5000", 1),
    "wine": ("wine", 1),
    "yeast": ("yeast", 4),
}
"""Names and versions on OpenML; the copies there may differ in row order from the papers'."""


class Table(NamedTuple):
    """Features ``x`` of shape (n, d) as float64, and ``y``, the target column as text or numbers."""

    x: NDArray[np.float64]
    y: NDArray[np.generic]


def data_directory(directory: str | os.PathLike[str] | None = None) -> pathlib.Path | None:
    """The directory of data sets: the one given, else the environment variable, else ``None``."""
    place = directory if directory is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    return pathlib.Path(place) if place else None


def load_table(name: str, directory: str | os.PathLike[str] | None = None, drop_incomplete: bool = True) -> Table:
    """Load the data set ``name`` (``"wine"``, ``"ecoli"``, …).

    It is ``NAME.csv`` (the target is the last column) in the data directory, or fetched from OpenML without one. Rows
    with an empty cell are dropped unless ``drop_incomplete`` is false.
    """
    place = data_directory(directory)
    if place is not None:
        if pathlib.PurePath(name).name != name or "\\" in name:
            raise ValueError(f"{name!r} is a path, not the name of a data set. Give its directory with --data.")
        path = place / f"{name}.csv"
        if not path.exists():
            stems = ", ".join(sorted(p.stem for p in place.glob("*.csv"))) or "none"
            raise FileNotFoundError(f"File not found: {path}. Data sets there: {stems}.")
        table = _read_csv(path)
    else:
        table = _fetch(name)
    if drop_incomplete:
        complete = np.isfinite(table.x).all(axis=1)
        table = Table(table.x[complete], table.y[complete])
    return table


def _read_csv(path: pathlib.Path) -> Table:
    with path.open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    x = np.array([[float(cell) if cell else np.nan for cell in row[:-1]] for row in rows])
    return Table(x, np.array([row[-1] for row in rows]))


def _fetch(name: str) -> Table:
    from sklearn.datasets import fetch_openml

    if name not in OPENML:
        raise ValueError(
            f"Data set {name!r} has no known name on OpenML. Give the directory that holds {name}.csv with --data or "
            f"in {ENVIRONMENT_VARIABLE}."
        )
    title, version = OPENML[name]
    bunch = fetch_openml(title, version=version, as_frame=False)
    return Table(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target))


def scaled(x: NDArray[Any], y: NDArray[Any], x_test: NDArray[Any], y_test: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Features in [0, 1] on ``x``, and the same change of ``x_test``; constant columns become zero on ``x``."""
    low, high = x.min(axis=0), x.max(axis=0)
    spread = np.where(high > low, high - low, 1.0)
    return (x - low) / spread, y, (x_test - low) / spread, y_test


def paper_folds(x: NDArray[np.float64], y: NDArray[Any], num_folds: int = 10) -> Iterator[tuple[NDArray[Any], ...]]:
    """The papers' protocol: features scaled to [0, 1], rows permuted with seed 0, then consecutive folds.

    Yields (x_train, y_train, x_test, y_test).
    """
    x = scaled(x, y, x, y)[0]
    # the stream of the legacy generator, because the published figures were made with it
    order = np.random.RandomState(0).permutation(len(y))
    x, y = x[order], y[order]
    for train, test in KFold(num_folds).split(x):
        yield x[train], y[train], x[test], y[test]
