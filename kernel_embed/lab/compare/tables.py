"""The user's table: a file or a data frame, its target column, and notes on what was dropped."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from .data import Table
from .reading import listed, read_frame, typed, usable_columns

MOST_FRACTIONS = 20
"""A target with more different numbers, not all of them whole, is continuous."""
MOST_WHOLE = 50
"""A target with more different whole numbers is a count or a measurement, unless the task is given."""


def task_of(cells: pd.Series) -> str:
    """Regression if every target is a number and there are many different ones; otherwise classification.

    Many means more than 20 if not all are whole numbers, more than 50 if all are, or more than half the rows.

    Example:
        >>> task_of(pd.Series(np.linspace(0, 1, 50))), task_of(pd.Series([1, 2] * 25)), task_of(pd.Series(["a", "b"]))
        ('regression', 'classification', 'classification')
    """
    if pd.api.types.is_bool_dtype(cells.dtype):
        return "classification"
    numbers = pd.to_numeric(cells.dropna(), errors="coerce").astype(np.float64)
    if numbers.empty or not np.isfinite(numbers).all():
        return "classification"
    different, whole = numbers.nunique(), bool((numbers % 1 == 0).all())
    many = different > (MOST_WHOLE if whole else MOST_FRACTIONS)
    return "regression" if many or (different > 2 and 2 * different > len(numbers)) else "classification"


def numbers_of(cells: pd.Series, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Targets as floats, and which rows have one."""
    has_label = cells.notna().to_numpy()
    values = pd.to_numeric(cells.where(has_label), errors="coerce").astype(np.float64).to_numpy()
    text = has_label & np.isnan(values)
    if text.any():
        raise ValueError(
            f"The target of {name} is not a number in every row: {cells[text].iloc[0]!r}. For classes use "
            "--task classification, or task='classification'."
        )
    if np.isinf(values[has_label]).any():
        raise ValueError(f"The target of {name} is infinite in some rows. Make such cells empty.")
    return values, has_label


def labels_of(cells: pd.Series) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels as whole numbers if all of them are, otherwise as text; and which rows have one."""
    has_label = cells.notna().to_numpy()
    numbers = pd.to_numeric(cells.where(has_label), errors="coerce").astype(np.float64)
    values = numbers[has_label]
    whole = len(values) and (np.abs(values) < 2**53).all() and (values % 1 == 0).all()
    if whole and not pd.api.types.is_bool_dtype(cells.dtype):
        return numbers.where(has_label, 0.0).astype(np.int64).to_numpy(), has_label
    return np.array(["" if pd.isna(cell) else str(cell).strip() for cell in cells]), has_label


FEWEST_ROWS = 10
FEWEST_OF_A_CLASS = 5


class UserTable(NamedTuple):
    """A table that passed all checks.

    Attributes:
        name: the stem of the file.
        x: features, each column of float64 (numbers, with NaN), datetime64 (dates) or object (text).
        y: labels as text or whole numbers; for a regression floats.
        notes: what a reader of the results should know: dropped columns and rows, classes with few rows.
        task: what is predicted.
    """

    name: str
    x: pd.DataFrame
    y: NDArray[Any]
    notes: tuple[str, ...] = ()
    task: str = "classification"

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the feature columns."""
        return tuple(map(str, self.x.columns))

    @property
    def fingerprint(self) -> str:
        """A checksum of all cells, so that results of other data are never reused."""
        digest = hashlib.sha256("\n".join(self.features).encode())
        for name in self.x.columns:
            column = self.x[name]
            if column.dtype.kind in "fM":
                digest.update(np.ascontiguousarray(column.to_numpy()).tobytes())
            else:
                digest.update("\n".join(column.fillna("").astype(str)).encode())
        digest.update("\n".join(str(label) for label in self.y).encode())
        return digest.hexdigest()[:12]


def named_table(name: str, table: Table, features: Sequence[str]) -> UserTable:
    """A matrix in memory, checked like a table from a file."""
    return table_of(pd.DataFrame(table.x, columns=list(features)), table.y, name)


def table_of(
    X: Any,
    y: ArrayLike,
    name: str = "table",
    drop: Sequence[str] = (),
    like: UserTable | None = None,
    task: str | None = None,
) -> UserTable:
    """Check a data frame (pandas, polars, or any with ``to_pandas``) or matrix with its labels.

    ``like`` is the training table if this one holds the test rows.

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
        repeated = sorted(set(map(str, frame.columns[frame.columns.duplicated()])))
        raise ValueError(f"Several columns have the same name: {listed(repeated)}. Rename them.")
    try:
        labels = pd.Series(np.asarray(y).ravel(), name="target").infer_objects()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"y is not a vector of labels but {type(y).__name__} ({error}). Give a list.") from error
    if len(labels) != len(frame):
        raise ValueError(f"X has {len(frame)} rows, but y has {len(labels)} labels. Give one label for each row.")
    return _table(name, _without(frame, drop, name), labels, like, task)


def frame_of(X: Any) -> pd.DataFrame:
    """Whatever pandas can convert to a frame, with at least one column."""
    try:
        frame = pd.DataFrame(X)
    except (ValueError, TypeError, RuntimeError) as error:
        raise ValueError(
            f"X is neither a data frame nor a matrix but {type(X).__name__} ({error}). Give it two dimensions."
        ) from error
    if frame.shape[1] == 0:
        raise ValueError(f"X has no columns (shape {frame.shape}). Give at least one feature.")
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
        like: the training table if this one holds the test rows: its columns and their types are used.
        task: ``"classification"`` or ``"regression"``; ``None`` decides by the target (:func:`task_of`).

    Texts, dates, booleans and missing cells are kept. Rows without a label and useless columns are dropped; ``notes``
    lists them.
    """
    path = pathlib.Path(path)
    frame = read_frame(path)
    names = list(frame.columns)
    if target is None:
        target = "target" if "target" in names else names[-1]
    if target not in names:
        raise ValueError(f"{path} has no column {target!r}. Choose one of {listed(names, 20)} with --target.")
    if target in drop:
        raise ValueError(f"The target {target!r} is among the columns to drop. Remove it from them.")
    if len(names) < 2:
        raise ValueError(f"{path} has no column besides the target {target!r}. Give at least one feature.")
    return _table(path.stem, _without(frame.drop(columns=target), drop, str(path)), frame[target], like, task)


def _table(
    name: str, frame: pd.DataFrame, cells: pd.Series, like: UserTable | None = None, task: str | None = None
) -> UserTable:
    """The rows with a label, checked; ``like`` is the training table of test rows."""
    if like is not None:
        task = like.task
    task = task_of(cells) if task is None else task
    if task not in ("classification", "regression"):
        raise ValueError(f"Unknown task {task!r}. Choose 'classification' or 'regression'.")
    labels, has_label = numbers_of(cells, name) if task == "regression" else labels_of(cells)
    notes = []
    if not has_label.all():
        notes = [f"{int((~has_label).sum())} of {len(has_label)} rows dropped: no label in {cells.name}"]
    attributes, labels = frame.attrs, labels[has_label]
    frame = frame[has_label].reset_index(drop=True)
    frame.attrs = attributes
    if like is not None:
        return UserTable(name, _columns_like(name, frame, like), _labels_like(name, labels, like), tuple(notes), task)
    if len(labels) == 0:
        raise ValueError(f"No row of {name} has a label. Name another target.")
    x, column_notes = usable_columns(frame)
    if x.empty and len(frame) >= FEWEST_ROWS:
        raise ValueError(f"{name} has no useful column: {'; '.join(column_notes)}. Keep a column that varies.")
    notes = [*notes, *column_notes, *_missing(x), *_check_target(name, labels, task)]
    return UserTable(name, x, labels, tuple(notes), task)


def _columns_like(name: str, frame: pd.DataFrame, reference: UserTable) -> pd.DataFrame:
    """The columns of ``reference``, in its order and of its types."""
    absent = sorted(set(reference.features) - set(frame.columns))
    if absent:
        raise ValueError(
            f"{name} lacks columns of the training table: {listed(absent)}. Give both tables the same columns."
        )
    delimiter = frame.attrs.get("delimiter", ";")
    return pd.DataFrame(
        {
            feature: _of_type(typed(frame[feature], delimiter), reference.x[feature].dtype, frame.index)
            for feature in reference.features
        }
    )


def _of_type(values: pd.Series | None, dtype: Any, index: pd.Index) -> pd.Series:
    values = pd.Series(np.nan, index=index) if values is None else values
    if values.dtype == dtype:
        return values
    if dtype.kind == "O":
        return values.astype(object).map(str, na_action="ignore").astype(object)
    return pd.to_numeric(values, errors="coerce") if dtype == np.float64 else pd.to_datetime(values, errors="coerce")


def _labels_like(name: str, labels: NDArray[Any], reference: UserTable) -> NDArray[Any]:
    """The labels in the type of those of ``reference``, which has them all."""
    if reference.task == "regression":
        return labels
    by_text = {str(label): label for label in np.unique(reference.y)}
    unknown = sorted(set(map(str, labels)) - set(by_text))
    if unknown:
        raise ValueError(
            f"{name} has labels that the training table does not have: {listed(unknown)}. Give only its labels."
        )
    return np.array([by_text[str(label)] for label in labels], dtype=reference.y.dtype)


def _without(frame: pd.DataFrame, drop: Sequence[str], where: str) -> pd.DataFrame:
    unknown = [name for name in drop if name not in frame.columns]
    if unknown:
        raise ValueError(f"{where} has no columns {listed(unknown)} to drop. Its columns: {listed(list(frame), 20)}.")
    return frame.drop(columns=list(drop))


def _check_target(name: str, y: NDArray[Any], task: str) -> list[str]:
    """Notes on the target; an error if nothing can be learned from it."""
    if len(y) < FEWEST_ROWS:
        word = "target" if task == "regression" else "label"
        raise ValueError(f"{name} has {len(y)} rows with a {word}, but {FEWEST_ROWS} are needed. Give more rows.")
    classes, counts = np.unique(y, return_counts=True)
    if task == "regression":
        if len(classes) == 1:
            raise ValueError(f"The target of {name} is {y[0]:g} in every row. Name another column.")
        return []
    if len(classes) == 1:
        raise ValueError(f"The target of {name} has only one class: {classes[0]}. Name another column as the target.")
    are_numbers = classes.dtype.kind == "U" and pd.to_numeric(pd.Series(classes), errors="coerce").notna().all()
    if 2 * len(classes) > len(y) or (len(classes) > MOST_FRACTIONS and are_numbers):
        raise ValueError(
            f"The target of {name} has {len(classes)} classes in {len(y)} rows: it is a number or an identifier. "
            "Give --task regression, or name another column with --target."
        )
    rare = [str(label) for label, count in zip(classes, counts, strict=True) if count < FEWEST_OF_A_CLASS]
    note = f"classes with fewer than {FEWEST_OF_A_CLASS} rows, which some folds will miss: {listed(rare)}"
    return [note] if rare else []


def _missing(frame: pd.DataFrame) -> list[str]:
    missing = frame.isna()
    names = [str(name) for name, count in missing.sum().items() if count]
    count = int(missing.any(axis=1).sum())
    return [f"missing cells in {count} {'row' if count == 1 else 'rows'}, in {listed(names)}"] if names else []
