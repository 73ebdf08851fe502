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
from .targets import FEWEST_ROWS, check_target, labels_like, targets, task_of
from .tasks import TASKS


class UserTable(NamedTuple):
    """A table that passed all checks.

    Attributes:
        name: the stem of the file.
        x: features, each column of float64 (numbers, with NaN), datetime64 (dates) or object (text).
        y: labels as text or whole numbers; for a regression floats.
        notes: what a reader of the results should know: dropped columns and rows, classes with few rows.
        task: what is predicted.
        groups: the number of each row's group, from 0; ``None`` without groups.
    """

    name: str
    x: pd.DataFrame
    y: NDArray[Any]
    notes: tuple[str, ...] = ()
    task: str = "classification"
    groups: NDArray[np.int64] | None = None

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
        if self.groups is not None:
            digest.update(self.groups.tobytes())
        return digest.hexdigest()[:12]


def table_of(
    X: Any,
    y: ArrayLike,
    name: str = "table",
    drop: Sequence[str] = (),
    like: UserTable | None = None,
    task: str | None = None,
    groups: ArrayLike | str | None = None,
    folds: int = 1,
) -> UserTable:
    """Check a data frame (pandas, polars, or any with ``to_pandas``) or matrix with its labels.

    ``like`` is the training table if this one holds the test rows. ``groups`` are labels of rows or the name of their
    column, and must be at least as many as ``folds``.
    """
    frame = frame_of(X).infer_objects().reset_index(drop=True)
    try:
        labels = pd.Series(np.asarray(label_array(y)).ravel(), name="target").infer_objects()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"y is not a vector of labels but {type(y).__name__} ({error}). Give a list.") from error
    if len(labels) != len(frame):
        raise ValueError(f"X has {len(frame)} rows, but y has {len(labels)} labels. Give one label for each row.")
    frame, of_rows = _split_groups(frame, groups, drop, "X")
    return _table(name, _without(frame, drop, name), labels, like, task, of_rows, folds)


def read_user_table(
    path: str | os.PathLike[str],
    target: str | None = None,
    drop: Sequence[str] = (),
    like: UserTable | None = None,
    task: str | None = None,
    groups: ArrayLike | str | None = None,
    folds: int = 1,
) -> UserTable:
    """Read a CSV (comma, semicolon, tab or bar between cells) or Parquet file with a header.

    The target is by default the column ``target``, else the last; ``task=None`` decides by it (:func:`task_of`).
    ``like`` is the training table if this one holds the test rows: its columns and their types are used. ``groups``
    and ``folds`` are those of :func:`table_of`.
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
    if isinstance(groups, str) and groups == target:
        raise ValueError(f"The target {target!r} cannot be the groups as well. Name another column.")
    if len(names) < 2:
        raise ValueError(f"{path} has no column besides the target {target!r}. Give at least one feature.")
    features, of_rows = _split_groups(frame.drop(columns=target), groups, drop, str(path))
    return _table(path.stem, _without(features, drop, str(path)), frame[target], like, task, of_rows, folds)


def read_directory(
    directory: pathlib.Path, names: Sequence[str] | None, target: str | None, drop: Sequence[str], **options: Any
) -> tuple[list[UserTable], list[str]]:
    """The tables of a directory, all of one task, or those with these ``names``; and a line for each rejected one.

    ``options`` are those of :func:`read_user_table`.
    """
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
            tables.append(read_user_table(paths[name], target, drop, **options))
        except (ValueError, OSError, ImportError) as error:
            rejected.append(f"{paths[name].name}: {' '.join(str(error).split())}")
    if not tables:
        raise ValueError(f"There is no table to learn from in {directory}. {' '.join(rejected)}")
    # A comparison has one task: classification if any table has classes.
    task = min(table.task for table in tables)
    others = [table.name for table in tables if table.task != task]
    rejected += [f"{name}: not a target for {task}; name it with --datasets and --task" for name in others]
    return [table for table in tables if table.task == task], rejected


def _split_groups(
    frame: pd.DataFrame, groups: ArrayLike | str | None, drop: Sequence[str], where: str
) -> tuple[pd.DataFrame, pd.Series | None]:
    """The frame without the column of the groups, and the group of each row."""
    if isinstance(groups, str):
        if groups not in frame.columns:
            raise ValueError(f"{where} has no column {groups!r} of groups. Its columns: {listed(list(frame), 20)}.")
        if groups in drop:
            raise ValueError(f"The groups {groups!r} are among the columns to drop. Remove them from these.")
        return frame.drop(columns=groups), frame[groups]
    if groups is None:
        return frame, None
    labels = np.asarray(groups, dtype=object)  # as text, a missing label would not be missing
    if labels.shape != (len(frame),):
        raise ValueError(
            f"groups must be one label for each of the {len(frame)} rows, or the name of a column, but their shape is "
            f"{labels.shape}."
        )
    return frame, pd.Series(labels, name="groups")


def _group_numbers(name: str, labels: pd.Series, folds: int) -> tuple[NDArray[np.int64], str]:
    """The number of each row's group, and a note on the groups."""
    if (missing := int(labels.isna().sum())) > 0:
        raise ValueError(
            f"{missing} of {len(labels)} rows of {name} have no group in {labels.name}. Give every row a group."
        )
    numbers, groups = pd.factorize(labels)
    if len(groups) < folds:
        raise ValueError(
            f"{name} has {len(groups)} groups in {labels.name}, too few for {folds} folds. Give more groups, or fewer "
            "folds."
        )
    note = f"{len(groups)} groups of rows by {labels.name}"
    return numbers.astype(np.int64), note + (", each kept in one fold" if folds > 1 else "")


def _without(frame: pd.DataFrame, drop: Sequence[str], where: str) -> pd.DataFrame:
    unknown = [name for name in drop if name not in frame.columns]
    if unknown:
        raise ValueError(f"{where} has no columns {listed(unknown)} to drop. Its columns: {listed(list(frame), 20)}.")
    return frame.drop(columns=list(drop))


def _table(
    name: str,
    frame: pd.DataFrame,
    cells: pd.Series,
    like: UserTable | None,
    task: str | None,
    groups: pd.Series | None,
    folds: int,
) -> UserTable:
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
    labels = targets(cells, name, TASKS[task].kind == "regression")
    if like is not None:
        return UserTable(
            name, _columns_like(name, frame, like), labels_like(name, labels, like.y, task), tuple(notes), task
        )
    if len(labels) == 0:
        raise ValueError(f"No row of {name} has a label. Name another target.")
    x, column_notes = _usable_columns(frame)
    if x.empty and len(frame) >= FEWEST_ROWS:
        raise ValueError(f"{name} has no useful column: {'; '.join(column_notes)}. Keep a column that varies.")
    missing = x.isna()
    if names := [str(column) for column in x.columns[missing.any()]]:
        count = int(missing.any(axis=1).sum())
        column_notes.append(f"missing cells in {count} {'row' if count == 1 else 'rows'}, in {listed(names)}")
    notes += [*column_notes, *check_target(name, labels, task)]
    if groups is None:
        return UserTable(name, x, labels, tuple(notes), task)
    numbers, note = _group_numbers(name, groups[has_label], folds)
    return UserTable(name, x, labels, (*notes, note), task, numbers)


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
