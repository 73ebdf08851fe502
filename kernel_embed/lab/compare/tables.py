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

MOST_FRACTIONS, MOST_WHOLE = 20, 50
"""A target of more different numbers is a number: of more than 20 if some are not whole, else of more than 50."""
FEWEST_ROWS, FEWEST_OF_A_CLASS = 10, 5


class UserTable(NamedTuple):
    """A table that passed all checks: features, and labels as text or whole numbers, or floats for a regression.

    ``notes`` are what a reader of the results should know; ``groups``, the number of each row's group, from 0.
    """

    name: str
    x: pd.DataFrame
    y: NDArray[Any]
    notes: tuple[str, ...] = ()
    task: str = "classification"
    groups: NDArray[np.int64] | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of ``x``."""
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

    ``like`` is the training table if this one holds the test rows: its columns and their types are used. ``groups`` are
    labels of rows or the name of their column, and must be at least as many as ``folds``.
    """
    frame = frame_of(X).infer_objects().reset_index(drop=True)
    try:
        target = getattr(y, "name", None) or "target"
        cells = pd.Series(np.asarray(label_array(y)).ravel(), name=target).infer_objects()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"y is not a vector of labels but {type(y).__name__} ({error}). Give a list.") from error
    if len(cells) != len(frame):
        raise ValueError(f"X has {len(frame)} rows, but y has {len(cells)} labels. Give one label for each row.")
    frame, of_rows = _split_groups(frame, groups, drop, name)
    if unknown := [column for column in drop if column not in frame.columns]:
        raise ValueError(f"{name} has no columns {listed(unknown)} to drop. Its columns: {listed(list(frame), 20)}.")
    frame = frame.drop(columns=list(drop))
    task = like.task if like is not None else _task_of(cells) if task is None else task
    if task not in TASKS:
        raise ValueError(f"Unknown task {task!r}. Choose {' or '.join(map(repr, TASKS))}.")
    has_label = cells.notna().to_numpy()
    notes: list[str] = []
    if not has_label.all():
        notes = [f"{int((~has_label).sum())} of {len(has_label)} rows dropped: no label in {cells.name}"]
    frame, cells = frame[has_label].reset_index(drop=True), cells[has_label].infer_objects()
    frame.attrs = getattr(X, "attrs", {})  # the delimiter of a file
    y = _targets(cells, name, TASKS[task].kind == "regression")
    if like is not None:
        return UserTable(name, _columns_like(name, frame, like), _labels_like(name, y, like), tuple(notes), task)
    if len(y) == 0:
        raise ValueError(f"No row of {name} has a label. Name another target.")
    x, column_notes = _usable_columns(frame)
    if x.empty and len(frame) >= FEWEST_ROWS:
        raise ValueError(f"{name} has no useful column: {'; '.join(column_notes)}. Keep a column that varies.")
    notes += [*column_notes, *_check_target(name, y, task)]
    if of_rows is None:
        return UserTable(name, x, y, tuple(notes), task)
    numbers, note = _group_numbers(name, of_rows[has_label], folds)
    return UserTable(name, x, y, (*notes, note), task, numbers)


def read_user_table(
    path: str | os.PathLike[str], target: str | None = None, drop: Sequence[str] = (), **options: Any
) -> UserTable:
    """Read a CSV (comma, semicolon, tab or bar between cells) or Parquet file with a header.

    The target is by default the column ``target``, else the last. ``options`` are those of :func:`table_of`.
    """
    path, groups = pathlib.Path(path), options.get("groups")
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
    return table_of(frame.drop(columns=target), frame[target], path.stem, drop, **options)


def read_directory(
    directory: pathlib.Path, names: Sequence[str] | None, target: str | None, drop: Sequence[str], **options: Any
) -> tuple[list[UserTable], list[str]]:
    """The tables of a directory, or those with these ``names``, for one task; and why others were left out."""
    paths = {path.stem: path for path in sorted(directory.iterdir()) if path.suffix.lower() in SUFFIXES}
    names = names or list(paths)
    missing = [name for name in names if name not in paths]
    if missing or not names:
        words = ", ".join(missing) or "table"
        raise FileNotFoundError(f"No {words} in {directory}. Tables there: {', '.join(paths) or 'none'}.")
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
    """The frame without the column of the groups, and the label of each row's group."""
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
        rows = f"one label for each of the {len(frame)} rows"
        raise ValueError(f"groups must be {rows}, or the name of a column, but their shape is {labels.shape}.")
    return frame, pd.Series(labels, name="groups")


def _group_numbers(name: str, labels: pd.Series, folds: int) -> tuple[NDArray[np.int64], str]:
    """The number of each row's group, and a note on the groups."""
    if missing := int(labels.isna().sum()):
        raise ValueError(f"{missing} of {len(labels)} rows of {name} have no group in {labels.name}. Give them one.")
    numbers, groups = pd.factorize(labels)
    if len(groups) < folds:
        few = f"{len(groups)} groups in {labels.name}, too few for {folds} folds"
        raise ValueError(f"{name} has {few}. Give more groups, or fewer folds.")
    note = f"{len(groups)} groups of rows by {labels.name}"
    return numbers.astype(np.int64), note + (", each kept in one fold" if folds > 1 else "")


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
    frame = frame.drop(columns=list(reasons))
    missing = frame.isna()
    if names := [str(name) for name in frame.columns[missing.any()]]:
        incomplete = int(missing.any(axis=1).sum())
        notes.append(f"missing cells in {incomplete} {'row' if incomplete == 1 else 'rows'}, in {listed(names)}")
    return frame, notes


def _columns_like(name: str, frame: pd.DataFrame, reference: UserTable) -> pd.DataFrame:
    """The columns of ``reference``, in its order and of its types."""
    if absent := sorted(set(reference.features) - set(frame.columns)):
        raise ValueError(f"{name} lacks columns of the training table: {listed(absent)}. Give both the same columns.")
    columns = {name: typed(frame[name], frame.attrs.get("delimiter", ";")) for name in reference.features}
    for name, values in columns.items():
        dtype = reference.x[name].dtype
        if values.dtype != dtype and dtype.kind == "O":
            columns[name] = values.astype(object).map(str, na_action="ignore").astype(object)
        elif values.dtype != dtype:
            convert = pd.to_numeric if dtype == np.float64 else pd.to_datetime
            columns[name] = convert(values, errors="coerce")
    return pd.DataFrame(columns)


def _task_of(cells: pd.Series) -> str:
    """Regression if all targets are numbers and many are different (or more than half); otherwise classification."""
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
            words = f"not a number in every row: {cells[text].iloc[0]!r}"
            raise ValueError(f"The target of {name} is {words}. For classes give task='classification' (--task).")
        if np.isinf(values).any():
            raise ValueError(f"The target of {name} is infinite in some rows. Make such cells empty.")
        return np.asarray(values)
    whole = len(values) and (np.abs(values) < 2**53).all() and (values % 1 == 0).all()
    if whole and not pd.api.types.is_bool_dtype(cells.dtype):
        return np.asarray(values.astype(np.int64))
    return np.array([str(cell).strip() for cell in cells])


def _labels_like(name: str, labels: NDArray[Any], table: UserTable) -> NDArray[Any]:
    """The labels in the type of those of the training ``table``, which has them all."""
    if TASKS[table.task].kind == "regression":
        return labels
    by_text = {str(label): label for label in np.unique(table.y)}
    if unknown := sorted(set(map(str, labels)) - set(by_text)):
        raise ValueError(f"{name} has labels that the training table does not have: {listed(unknown)}. Remove them.")
    return np.array([by_text[str(label)] for label in labels], dtype=table.y.dtype)


def _check_target(name: str, y: NDArray[Any], task: str) -> list[str]:
    """Notes on the target; an error if nothing can be learned from it."""
    are_labels = TASKS[task].kind == "classification"
    if len(y) < FEWEST_ROWS:
        raise ValueError(f"{name} has {len(y)} rows with a label, but {FEWEST_ROWS} are needed. Give more rows.")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) == 1:
        words = f"has only one class: {classes[0]}" if are_labels else f"is {y[0]:g} in every row"
        raise ValueError(f"The target of {name} {words}. Name another column as the target.")
    if not are_labels:
        return []
    are_numbers = classes.dtype.kind == "U" and _as_floats(pd.Series(classes)).notna().all()
    if 2 * len(classes) > len(y) or (len(classes) > MOST_FRACTIONS and are_numbers):
        words = f"{len(classes)} classes in {len(y)} rows: it is a number or an identifier"
        raise ValueError(f"The target of {name} has {words}. Give --task regression, or another --target.")
    rare = [str(label) for label in classes[counts < FEWEST_OF_A_CLASS]]
    words = f"classes with fewer than {FEWEST_OF_A_CLASS} rows, which some folds will miss: {listed(rare)}"
    return [words] if rare else []
