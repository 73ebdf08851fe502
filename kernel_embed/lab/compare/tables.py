"""The user's own table: a file or a data frame, its target column, and what had to be left out of it."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .columns import is_text, typed, usable_columns
from .data import Table
from .reading import listed, read_frame
from .targets import CLASSIFICATION, MOST_FRACTIONS, REGRESSION, are_numbers, labels_of, numbers_of, task_of

FEWEST_ROWS = 10
FEWEST_OF_A_CLASS = 5


class UserTable(NamedTuple):
    """A table that was read and found fit to learn from.

    Attributes:
        name: the stem of the file.
        x: features, each column of float64 (numbers, with NaN), datetime64 (dates) or object (text).
        y: labels as text or whole numbers; for a regression floats.
        notes: what a reader of the results should know: columns and rows left out, classes with few rows.
        task: what is predicted.
    """

    name: str
    x: pd.DataFrame
    y: NDArray[Any]
    notes: tuple[str, ...] = ()
    task: str = CLASSIFICATION

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        return tuple(map(str, self.x.columns))

    @property
    def fingerprint(self) -> str:
        """Twelve letters that change with any cell, so that no result is taken for that of other data."""
        digest = hashlib.sha256("\n".join(self.features).encode())
        for name in self.x.columns:
            column = self.x[name]
            if is_text(column.dtype):
                digest.update("\n".join(column.fillna("").astype(str)).encode())
            else:
                digest.update(np.ascontiguousarray(column.to_numpy()).tobytes())
        digest.update("\n".join(str(label) for label in self.y).encode())
        return digest.hexdigest()[:12]


def named_table(name: str, table: Table, features: Sequence[str]) -> UserTable:
    """A matrix that is in memory already, checked like a table that was read."""
    return table_of(pd.DataFrame(table.x, columns=list(features)), table.y, name)


def table_of(
    X: Any,
    y: ArrayLike,
    name: str = "table",
    drop: Sequence[str] = (),
    like: UserTable | None = None,
    task: str | None = None,
) -> UserTable:
    """A data frame (pandas, polars, or whatever has ``to_pandas``) or matrix with its labels, checked.

    ``like`` is the training table, where this one holds the rows to test on.

    Example:
        >>> table_of({"a": [1.0, 2.0] * 6, "b": ["u", "v", "w"] * 4}, ["yes", "no"] * 6).features
        ('a', 'b')
    """
    if hasattr(X, "to_pandas"):
        X = X.to_pandas()
    frame = X if isinstance(X, pd.DataFrame) else frame_of(X)
    if not isinstance(X, pd.DataFrame | dict):
        frame.columns = pd.Index([f"x{j}" for j in range(frame.shape[1])])
    frame = frame.rename(columns=str).infer_objects().reset_index(drop=True)
    if frame.columns.duplicated().any():
        raise ValueError(
            f"Expected different column names, got {listed(_repeated(frame))} more than once. Rename the columns."
        )
    labels = pd.Series(_vector(y), name="target").infer_objects()
    if len(labels) != len(frame):
        raise ValueError(
            f"Expected one label for each of the {len(frame)} rows, got {len(labels)}. "
            "Give y with one entry for each row of x."
        )
    frame = _without(frame, drop, name)
    return _table(name, frame, labels, task) if like is None else _alike(name, frame, labels, like)


def _vector(y: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(y).ravel()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(
            f"Expected y as a vector of labels, got {type(y).__name__} ({error}). Give a list or an array."
        ) from error


def frame_of(X: Any) -> pd.DataFrame:
    """Whatever pandas makes a frame of, with a column at least."""
    try:
        frame = pd.DataFrame(X)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"Expected X as a data frame or a matrix with one row for each observation, got {type(X).__name__} "
            f"({error}). Give it two dimensions."
        ) from error
    if frame.shape[1] == 0:
        raise ValueError(f"Expected X with at least one column, got shape {frame.shape}. Give features.")
    return frame


def read_user_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    drop: Sequence[str] = (),
    like: UserTable | None = None,
    task: str | None = None,
) -> UserTable:
    """Read a CSV (comma, semicolon, tab or bar between cells) or Parquet file with a header.

    Args:
        path: the file.
        target: the column to predict; by default one called ``target``, else the last.
        drop: columns to leave out.
        like: the training table, where this one holds the rows to test on: its columns and their types are taken.
        task: ``"classification"`` or ``"regression"``; ``None`` looks at the target (:func:`task_of`).

    Text, dates, booleans and missing cells stay as they are. Rows without a label are left out, and so are columns from
    which nothing can be learned; ``notes`` says which.
    """
    path = pathlib.Path(path)
    frame = read_frame(path)
    names = list(frame.columns)
    if target is None:
        target = "target" if "target" in names else names[-1]
    if target not in names:
        raise ValueError(f"Expected a column {target!r} in {path}, got {listed(names, 20)}. Name one with --target.")
    if target in drop:
        raise ValueError(
            f"Expected another column to drop than the target, got {target!r}. Leave it out of the columns to drop."
        )
    if len(names) < 2:
        raise ValueError(
            f"Expected columns beside the target {target!r} in {path}, got none. "
            "Give a table with at least one more column."
        )
    labels, frame = frame[target], _without(frame.drop(columns=target), drop, str(path))
    return _table(path.stem, frame, labels, task) if like is None else _alike(path.stem, frame, labels, like)


def _table(name: str, frame: pd.DataFrame, cells: pd.Series, task: str | None = None) -> UserTable:
    task = task_of(cells) if task is None else task
    if task not in (CLASSIFICATION, REGRESSION):
        raise ValueError(f"Expected task 'classification' or 'regression', got {task!r}. Choose one.")
    labels, has_label = numbers_of(cells, name) if task == REGRESSION else labels_of(cells)
    if not has_label.any():
        raise ValueError(f"Expected at least {FEWEST_ROWS} rows with a label in {name}, got none. Name another target.")
    attributes = frame.attrs
    frame = frame[has_label].reset_index(drop=True)
    frame.attrs = attributes
    columns = usable_columns(frame)
    if columns.frame.empty and len(frame) >= FEWEST_ROWS:
        raise ValueError(
            f"Expected columns to learn from in {name}, got none: {'; '.join(columns.notes)}. "
            "Keep a column that varies."
        )
    notes = (*_unlabeled(has_label, cells), *columns.notes, *_incomplete(columns.frame))
    if task == REGRESSION:
        return _checked_numbers(name, columns.frame, labels[has_label], notes)
    return _checked(name, columns.frame, labels[has_label], notes)


def _alike(name: str, frame: pd.DataFrame, cells: pd.Series, reference: UserTable) -> UserTable:
    """The rows with the columns of ``reference``, in its order and of its types; every label must be known there."""
    absent = sorted(set(reference.features) - set(frame.columns))
    if absent:
        raise ValueError(
            f"Expected the columns of the training table in {name}, got none called {listed(absent)}. "
            "Give both tables the same columns."
        )
    real = reference.task == REGRESSION
    labels, has_label = numbers_of(cells, name) if real else labels_of(cells)
    frame, labels = frame[has_label].reset_index(drop=True), labels[has_label]
    unknown = [] if real else sorted(set(map(str, labels)) - set(map(str, reference.y)))
    if unknown:
        raise ValueError(
            f"Expected labels of the training table in {name}, got also {listed(unknown)}. "
            "Give labels that the training table has, too."
        )
    delimiter = frame.attrs.get("delimiter", ";")
    columns = {
        feature: _of_type(typed(frame[feature], delimiter), reference.x[feature].dtype)
        for feature in reference.features
    }
    notes = tuple(_unlabeled(has_label, cells))
    if real:
        return UserTable(name, pd.DataFrame(columns), labels, notes, REGRESSION)
    known = {str(label): label for label in np.unique(reference.y)}
    y = np.array([known[str(label)] for label in labels], dtype=reference.y.dtype)
    return UserTable(name, pd.DataFrame(columns), y, notes)


def _of_type(values: pd.Series, dtype: Any) -> pd.Series:
    if values.dtype == dtype:
        return values
    if dtype.kind == "O":
        return values.astype(object).map(str, na_action="ignore").astype(object)
    return pd.to_numeric(values, errors="coerce") if dtype == np.float64 else pd.to_datetime(values, errors="coerce")


def _without(frame: pd.DataFrame, drop: Sequence[str], where: str) -> pd.DataFrame:
    unknown = [name for name in drop if name not in frame.columns]
    if unknown:
        raise ValueError(
            f"Expected columns of {where} to drop, got {listed(unknown)}. Columns there: {listed(list(frame), 20)}."
        )
    return frame.drop(columns=list(drop))


def _checked_numbers(name: str, x: pd.DataFrame, y: NDArray[Any], notes: tuple[str, ...]) -> UserTable:
    if len(y) < FEWEST_ROWS:
        raise ValueError(f"Expected at least {FEWEST_ROWS} rows with a target in {name}, got {len(y)}. Give more rows.")
    if y.min() == y.max():
        raise ValueError(f"Expected a target of {name} that varies, got {y[0]:g} in every row. Name another column.")
    return UserTable(name, x, y, notes, REGRESSION)


def _checked(name: str, x: pd.DataFrame, y: NDArray[Any], notes: tuple[str, ...]) -> UserTable:
    if len(y) < FEWEST_ROWS:
        raise ValueError(f"Expected at least {FEWEST_ROWS} rows with a label in {name}, got {len(y)}. Give more rows.")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) < 2:
        raise ValueError(
            f"Expected at least two classes in the target of {name}, got one: {classes[0]}. "
            "Name another column as the target."
        )
    if 2 * len(classes) > len(y) or (len(classes) > MOST_FRACTIONS and are_numbers(classes)):
        raise ValueError(
            f"Expected a target with few classes in {name}, got {len(classes)} of them in {len(y)} rows. "
            "This is a number or an identifier: give --task regression, or name another column with --target."
        )
    rare = [str(label) for label, count in zip(classes, counts, strict=True) if count < FEWEST_OF_A_CLASS]
    if rare:
        few = f"classes with fewer than {FEWEST_OF_A_CLASS} rows, which some folds will miss: {listed(rare)}"
        notes = (*notes, few)
    return UserTable(name, x, y, notes)


def _unlabeled(has_label: NDArray[np.bool_], cells: pd.Series) -> list[str]:
    if has_label.all():
        return []
    return [f"{int((~has_label).sum())} of {len(has_label)} rows left out: no label in {cells.name}"]


def _incomplete(frame: pd.DataFrame) -> list[str]:
    missing = frame.isna()
    names = [str(name) for name, count in missing.sum().items() if count]
    count = int(missing.any(axis=1).sum())
    return [f"missing cells in {count} {'row' if count == 1 else 'rows'}, in {listed(names)}"] if names else []


def _repeated(frame: pd.DataFrame) -> list[str]:
    return sorted(set(map(str, frame.columns[frame.columns.duplicated()])))
