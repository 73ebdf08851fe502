"""The data sets of the papers: files of a directory, or OpenML; their scaling and their folds."""

from __future__ import annotations

import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold

ENVIRONMENT_VARIABLE = "KERNEL_EMBED_DATA"
Directory = str | os.PathLike[str] | None

OPENML = {
    "banknote": ("banknote-authentication", 1), "breastcancer": ("breast-w", 1), "diabetes": ("diabetes", 1),
    "ecoli": ("ecoli", 1), "ionosphere": ("ionosphere", 1), "musk": ("clean1", 1), "segment": ("segment", 1),
    "robot": ("wall-robot-navigation", 1), "vertebral": ("vertebra-column", 1), "waveform": ("waveform-5000", 1),
    "wine": ("wine", 1), "yeast": ("yeast", 4),
}  # fmt: skip
"""Names and versions on OpenML; the copies there may differ in row order from the papers'."""


def data_directory(directory: Directory = None) -> pathlib.Path | None:
    """The directory of data sets: the one given, else the environment variable, else ``None``."""
    place = directory if directory is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    return pathlib.Path(place) if place else None


def data_folder(files: str, directory: Directory = None) -> pathlib.Path:
    """The directory of data sets, which should hold these files; an error without one."""
    place = data_directory(directory)
    if place is None:
        remedy = f"Give the directory that holds {files} with --data or in {ENVIRONMENT_VARIABLE}."
        raise FileNotFoundError(f"There are no data sets. {remedy}")
    return place


def load_table(name: str, directory: Directory = None) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features and labels of the rows without an empty cell of the data set ``name`` (``"wine"``, ``"ecoli"``, …).

    It is ``NAME.csv`` (the target is the last column) in the data directory, or fetched from OpenML without one.
    """
    place = data_directory(directory)
    if place is None:
        x, y = _fetch(name)
    else:
        if pathlib.PurePath(name).name != name or "\\" in name:
            raise ValueError(f"{name!r} is a path, not the name of a data set. Give its directory with --data.")
        path = place / f"{name}.csv"
        if not path.exists():
            stems = ", ".join(sorted(p.stem for p in place.glob("*.csv"))) or "none"
            raise FileNotFoundError(f"File not found: {path}. Data sets there: {stems}.")
        cells = pd.read_csv(path, dtype=str, keep_default_na=False).to_numpy(dtype=str)
        x, y = np.where(cells == "", "nan", cells)[:, :-1].astype(np.float64), cells[:, -1]
    complete = np.isfinite(x).all(axis=1)
    return x[complete], y[complete]


def _fetch(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    from sklearn.datasets import fetch_openml

    remedy = f"the directory that holds {name}.csv with --data or in {ENVIRONMENT_VARIABLE}"
    if name not in OPENML:
        raise ValueError(f"Data set {name!r} has no known name on OpenML. Give {remedy}.")
    title, version = OPENML[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it tries again
            bunch = fetch_openml(title, version=version, as_frame=False, n_retries=1)
    except OSError as error:
        words = f"The data set {name!r} could not be fetched from OpenML ({error}). Without a network, give {remedy}"
        raise OSError(f"{words}; kernel-embed reproduce --list names all files of an experiment.") from error
    return np.asarray(bunch.data, dtype=np.float64), np.asarray(bunch.target)


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
