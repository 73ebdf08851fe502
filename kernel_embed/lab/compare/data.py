"""The papers' data sets, loaded from a directory, from scikit-learn, or from OpenML; none of them ships with us."""

from __future__ import annotations

import csv
import os
import pathlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

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


def data_directory(given: str | os.PathLike[str] | None = None) -> pathlib.Path | None:
    """The directory of data sets: ``given``, else the environment variable, else ``None``."""
    place = given if given is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    return pathlib.Path(place) if place else None


def load_table(name: str, directory: str | os.PathLike[str] | None = None, drop_incomplete: bool = True) -> Table:
    """Load the data set ``name`` (``"wine"``, ``"ecoli"``, …).

    It is looked for as ``NAME.csv`` (features first, last column the target) in the data directory, and fetched from
    OpenML otherwise. Rows with an empty cell are dropped unless ``drop_incomplete`` is false.
    """
    place = data_directory(directory)
    if place is not None:
        if pathlib.PurePath(name).name != name or "\\" in name:
            raise ValueError(f"Expected the name of a data set, got the path {name!r}. Give its directory with --data.")
        path = place / f"{name}.csv"
        if not path.exists():
            known = ", ".join(sorted(p.stem for p in place.glob("*.csv"))) or "none"
            raise FileNotFoundError(f"Expected {path}, got no such file. Data sets there: {known}.")
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
            f"Data set {name!r} is not on OpenML under a name we know. Give the directory that holds {name}.csv "
            f"with --data or in {ENVIRONMENT_VARIABLE}."
        )
    title, version = OPENML[name]
    bunch = fetch_openml(title, version=version, as_frame=False)
    return Table(np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target))
