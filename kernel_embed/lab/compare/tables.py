"""The user's table: a file or a data frame, its target column, and notes on dropped columns and rows.

Columns are float64 with NaN (numbers and booleans), datetime64 with NaT (dates), or object with NaN (texts, and the
column types of users, see :mod:`kernel_embed.tabular`). Those that the estimators drop as useless are dropped here too.
"""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ...tabular.encoder import TableEncoder, label_array
from .reading import INFINITE, LARGEST, SUFFIXES, Notes, frame_of, listed, read_frame, typed
from .tasks import TASKS

MOST_FRACTIONS = 20
"""A target with more different numbers, not all of them whole, is continuous."""
MOST_WHOLE = 50
"""A target with more different whole numbers is a count or a measurement, unless the task is given."""
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
    """
    frame = frame_of(X).infer_objects().reset_index(drop=True)
    try:
        labels = pd.Series(np.asarray(label_array(y)).ravel(), name="target").infer_objects()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"y is not a vector of labels but {type(y).__name__} ({error}). Give a list.") from error
    if len(labels) != len(frame):
        raise ValueError(f"X has {len(frame)} rows, but y has {len(labels)} labels. Give one label for each row.")
    return _table(name, _without(frame, drop, name), labels, like, task)


def read_user_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    drop: Sequence[str] = (),
    like: UserTable | None = None,
    task: str | None = None,
) -> UserTable:
    """Read a CSV (comma, semicolon, tab or bar between cells) or Parquet file with a header.

    The target is by default the column ``target``, else the last; ``task=None`` decides by it (:func:`task_of`).
    ``like`` is the training table if this one holds the test rows: its columns and their types are used.
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


def read_directory(
    directory: pathlib.Path, names: Sequence[str] | None, target: str | None, drop: Sequence[str], task: str | None
) -> tuple[list[UserTable], list[str]]:
    """The tables of a directory, all of one task, or those with these ``names``; and a line for each rejected one."""
    paths = {path.stem: path for path in sorted(directory.iterdir()) if path.suffix.lower() in SUFFIXES}
    names = names or list(paths)
    missing = [name for name in names if name not in paths]
    if missing or not names:
        raise FileNotFoundError(
            f"No {', '.join(missing) or 'table'} in {directory}. Tables there: {', '.join(paths) or 'none'}."
        )
    tables, rejected = [], []
    for name in names:
        try:
            tables.append(read_user_table(paths[name], target, drop, task=task))
        except (ValueError, OSError, ImportError) as error:
            rejected.append(f"{paths[name].name}: {' '.join(str(error).split())}")
    if not tables:
        raise ValueError(f"There is no table to learn from in {directory}. {' '.join(rejected)}")
    # A comparison has one task: classification if any table has classes.
    task = min(table.task for table in tables)
    others = [table.name for table in tables if table.task != task]
    rejected += [f"{name}: not a target for {task}; name it with --datasets and --task" for name in others]
    return [table for table in tables if table.task == task], rejected


def _without(frame: pd.DataFrame, drop: Sequence[str], where: str) -> pd.DataFrame:
    unknown = [name for name in drop if name not in frame.columns]
    if unknown:
        raise ValueError(f"{where} has no columns {listed(unknown)} to drop. Its columns: {listed(list(frame), 20)}.")
    return frame.drop(columns=list(drop))


def _table(name: str, frame: pd.DataFrame, cells: pd.Series, like: UserTable | None, task: str | None) -> UserTable:
    """The rows with a label, checked."""
    task = like.task if like is not None else task_of(cells) if task is None else task
    if task not in TASKS:
        raise ValueError(f"Unknown task {task!r}. Choose {' or '.join(map(repr, TASKS))}.")
    has_label = cells.notna().to_numpy()
    notes: list[str] = []
    if not has_label.all():
        notes = [f"{int((~has_label).sum())} of {len(has_label)} rows dropped: no label in {cells.name}"]
    attributes = frame.attrs
    frame, cells = frame[has_label].reset_index(drop=True), cells[has_label].infer_objects()
    frame.attrs = attributes
    labels = _targets(cells, name, TASKS[task].kind == "regression")
    if like is not None:
        return UserTable(name, _columns_like(name, frame, like), _labels_like(name, labels, like), tuple(notes), task)
    if len(labels) == 0:
        raise ValueError(f"No row of {name} has a label. Name another target.")
    x, column_notes = _usable_columns(frame)
    if x.empty and len(frame) >= FEWEST_ROWS:
        raise ValueError(f"{name} has no useful column: {'; '.join(column_notes)}. Keep a column that varies.")
    missing = x.isna()
    if names := [str(column) for column in x.columns[missing.any()]]:
        count = int(missing.any(axis=1).sum())
        column_notes.append(f"missing cells in {count} {'row' if count == 1 else 'rows'}, in {listed(names)}")
    return UserTable(name, x, labels, (*notes, *column_notes, *_check_target(name, labels, task)), task)


def _usable_columns(raw: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """``raw`` with every column typed, without those that :class:`TableEncoder` drops; and notes on the changes."""
    read_as: Notes = {}
    numbers = raw.select_dtypes(include=["number", "bool"], exclude=["timedelta"])
    # all at once: a table may have 100,000 of them
    x = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    infinite = np.abs(x) > LARGEST
    if infinite.any():
        read_as[INFINITE] = [str(name) for name in numbers.columns[infinite.any(axis=0)]]
    others = raw.columns.difference(numbers.columns, sort=False)
    texts = {name: typed(raw[name], raw.attrs.get("delimiter", ";"), read_as) for name in others}
    frame = pd.DataFrame(np.where(infinite, np.nan, x), columns=numbers.columns, index=raw.index)
    if texts:
        frame = pd.concat([frame, pd.DataFrame(texts, index=raw.index)], axis=1)[list(raw.columns)]
    reasons = TableEncoder().fit(frame).dropped_ if len(frame) and len(frame.columns) else {}
    notes = []
    for reason in dict.fromkeys(reasons.values()):
        names = [name for name in raw.columns if reasons.get(name) == reason]
        count = "a column" if len(names) == 1 else f"{len(names)} columns"
        notes.append(f"{count} dropped, {reason}: {listed(names)}")
    notes += [f"{note}: {listed(names)}" for note, names in read_as.items()]
    return frame.drop(columns=list(reasons)), notes


def task_of(cells: pd.Series) -> str:
    """Regression if every target is a number and there are many different ones; otherwise classification.

    Many means more than 20 if not all are whole numbers, more than 50 if all are, or more than half the rows.

    Example:
        >>> task_of(pd.Series(np.linspace(0, 1, 50))), task_of(pd.Series([1, 2] * 25)), task_of(pd.Series(["a", "b"]))
        ('regression', 'classification', 'classification')
    """
    if pd.api.types.is_bool_dtype(cells.dtype):
        return "classification"
    numbers = _as_floats(cells.dropna())
    if numbers.empty or not np.isfinite(numbers).all():
        return "classification"
    different, whole = numbers.nunique(), bool((numbers % 1 == 0).all())
    many = different > (MOST_WHOLE if whole else MOST_FRACTIONS)
    return "regression" if many or (different > 2 and 2 * different > len(numbers)) else "classification"


def _as_floats(cells: pd.Series) -> pd.Series:
    """The cells as numbers; NaN for what is not a number, infinite beyond the range of floats."""
    try:
        return pd.to_numeric(cells, errors="coerce").astype(np.float64)
    except OverflowError:
        return pd.to_numeric(cells.map(str), errors="coerce").astype(np.float64)


def _targets(cells: pd.Series, name: str, are_numbers: bool) -> NDArray[Any]:
    """Numbers; or labels, as whole numbers if all of them are, otherwise as text."""
    values = _as_floats(cells)
    if are_numbers:
        if (text := values.isna()).any():
            raise ValueError(
                f"The target of {name} is not a number in every row: {cells[text].iloc[0]!r}. For classes use "
                "--task classification, or task='classification'."
            )
        if np.isinf(values).any():
            raise ValueError(f"The target of {name} is infinite in some rows. Make such cells empty.")
        return np.asarray(values)
    whole = len(values) and (np.abs(values) < 2**53).all() and (values % 1 == 0).all()
    if whole and not pd.api.types.is_bool_dtype(cells.dtype):
        return np.asarray(values.astype(np.int64))
    return np.array([str(cell).strip() for cell in cells])


def _columns_like(name: str, frame: pd.DataFrame, reference: UserTable) -> pd.DataFrame:
    """The columns of ``reference``, in its order and of its types."""
    absent = sorted(set(reference.features) - set(frame.columns))
    if absent:
        raise ValueError(
            f"{name} lacks columns of the training table: {listed(absent)}. Give both tables the same columns."
        )
    columns = {name: typed(frame[name], frame.attrs.get("delimiter", ";")) for name in reference.features}
    for name, values in columns.items():
        dtype = reference.x[name].dtype
        if values.dtype != dtype and dtype.kind == "O":
            columns[name] = values.astype(object).map(str, na_action="ignore").astype(object)
        elif values.dtype != dtype:
            convert = pd.to_numeric if dtype == np.float64 else pd.to_datetime
            columns[name] = convert(values, errors="coerce")
    return pd.DataFrame(columns)


def _labels_like(name: str, labels: NDArray[Any], reference: UserTable) -> NDArray[Any]:
    """The labels in the type of those of ``reference``, which has them all."""
    if TASKS[reference.task].kind == "regression":
        return labels
    by_text = {str(label): label for label in np.unique(reference.y)}
    unknown = sorted(set(map(str, labels)) - set(by_text))
    if unknown:
        raise ValueError(
            f"{name} has labels that the training table does not have: {listed(unknown)}. Give only its labels."
        )
    return np.array([by_text[str(label)] for label in labels], dtype=reference.y.dtype)


def _check_target(name: str, y: NDArray[Any], task: str) -> list[str]:
    """Notes on the target; an error if nothing can be learned from it."""
    are_labels = TASKS[task].kind == "classification"
    if len(y) < FEWEST_ROWS:
        word = "label" if are_labels else "target"
        raise ValueError(f"{name} has {len(y)} rows with a {word}, but {FEWEST_ROWS} are needed. Give more rows.")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) == 1 and are_labels:
        raise ValueError(f"The target of {name} has only one class: {classes[0]}. Name another column as the target.")
    if len(classes) == 1:
        raise ValueError(f"The target of {name} is {y[0]:g} in every row. Name another column.")
    if not are_labels:
        return []
    are_numbers = classes.dtype.kind == "U" and _as_floats(pd.Series(classes)).notna().all()
    if 2 * len(classes) > len(y) or (len(classes) > MOST_FRACTIONS and are_numbers):
        raise ValueError(
            f"The target of {name} has {len(classes)} classes in {len(y)} rows: it is a number or an identifier. "
            "Give --task regression, or name another column with --target."
        )
    rare = [str(label) for label in classes[counts < FEWEST_OF_A_CLASS]]
    words = f"classes with fewer than {FEWEST_OF_A_CLASS} rows, which some folds will miss: {listed(rare)}"
    return [words] if rare else []
