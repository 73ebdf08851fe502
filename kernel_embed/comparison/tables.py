"""The user's own table: a CSV or Parquet file, its target column, and what had to be left out of it."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .data import Table

MISSING = frozenset({"", "?", "na", "n/a", "nan", "null", "none"})
"""What stands for a missing cell, in lower case."""
Cell = str | int | float | bool | None
"""What a file may hold; ``None`` where nothing stands."""
DELIMITERS = ",;\t|"
FEWEST_ROWS = 10


class UserTable(NamedTuple):
    """A table that was read and found fit for classification.

    Attributes:
        name: the stem of the file.
        x: features (n, d).
        y: labels as text or whole numbers.
        features: the names of the feature columns.
        notes: what a reader of the results should know: rows left out, classes with few rows.
    """

    name: str
    x: NDArray[np.float64]
    y: NDArray[Any]
    features: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Twelve letters that change with any cell, so that no result is taken for that of other data."""
        digest = hashlib.sha256(np.ascontiguousarray(self.x).tobytes())
        digest.update("\n".join(str(label) for label in self.y).encode())
        return digest.hexdigest()[:12]


def named_table(name: str, table: Table, features: Sequence[str]) -> UserTable:
    """A table that is in memory already, checked like one that was read."""
    return _checked(name, table.x, table.y, tuple(features), ())


def read_user_table(path: str | os.PathLike[str], target: str | None = None) -> UserTable:
    """Read a CSV (comma, semicolon, tab or bar between cells) or Parquet file with a header.

    Args:
        path: the file.
        target: the column to predict; by default one called ``target``, else the last.

    Rows with a missing cell are left out, and ``notes`` says how many. Text in a feature column is refused, because
    there is no one way to make numbers of it.
    """
    path = pathlib.Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a table in {path}, which is not a file.")
    columns = _read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _read_csv(path)
    names = list(columns)
    if target is None:
        target = "target" if "target" in names else names[-1]
    if target not in columns:
        raise ValueError(f"Expected a column {target!r} in {path}, got {', '.join(names)}. Name one with --target.")
    features = tuple(name for name in names if name != target)
    if not features:
        raise ValueError(f"Expected columns beside the target {target!r} in {path}, got none.")
    x = np.column_stack([_numbers(name, columns[name], path) for name in features])
    labels, has_label = _labels(columns[target])
    complete = np.isfinite(x).all(axis=1)
    notes = []
    if not complete.all():
        incomplete = [name for j, name in enumerate(features) if not np.isfinite(x[:, j]).all()]
        notes.append(f"{int((~complete).sum())} of {len(x)} rows left out: no finite number in {_listed(incomplete)}")
    if not has_label.all():
        notes.append(f"{int((~has_label).sum())} of {len(x)} rows left out: no label in {target}")
    kept = complete & has_label
    return _checked(path.stem, x[kept], labels[kept], features, tuple(notes))


def like(table: UserTable, reference: UserTable) -> UserTable:
    """``table`` with its columns in the order of ``reference``; every label must be known there."""
    if set(table.features) != set(reference.features):
        difference = sorted(set(table.features) ^ set(reference.features))
        raise ValueError(f"Expected the same columns in both tables, got a difference in {_listed(difference)}.")
    unknown = sorted(set(map(str, table.y)) - set(map(str, reference.y)))
    if unknown:
        raise ValueError(f"Expected labels of the training table in the test table, got also {_listed(unknown)}.")
    order = [table.features.index(name) for name in reference.features]
    return table._replace(x=table.x[:, order], y=table.y.astype(reference.y.dtype), features=reference.features)


def _checked(
    name: str, x: NDArray[np.float64], y: NDArray[Any], features: tuple[str, ...], notes: tuple[str, ...]
) -> UserTable:
    classes, counts = np.unique(y, return_counts=True)
    if len(y) < FEWEST_ROWS:
        raise ValueError(f"Expected at least {FEWEST_ROWS} complete rows in {name}, got {len(y)}.")
    if len(classes) < 2:
        raise ValueError(f"Expected at least two classes in the target of {name}, got one: {classes[0]}.")
    if 2 * len(classes) > len(y):
        raise ValueError(
            f"Expected a target with few classes in {name}, got {len(classes)} of them in {len(y)} rows. "
            "This is a continuous target or an identifier: name another column with --target."
        )
    rare = [str(label) for label, count in zip(classes, counts, strict=True) if count < 5]
    if rare:
        notes = (*notes, f"classes with fewer than 5 rows, which some folds will miss: {_listed(rare)}")
    return UserTable(name, np.asarray(x, dtype=np.float64), y, features, notes)


def _read_csv(path: pathlib.Path) -> dict[str, list[Cell]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected text in {path}, got bytes that are not UTF-8 ({error.reason}).") from error
    first = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count) if first else ","
    rows = [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter) if row]
    if len(rows) < 2:
        raise ValueError(f"Expected a header and rows in {path}, got {len(rows)} lines.")
    header = [cell.strip() for cell in rows[0]]
    if len(set(header)) < len(header):
        raise ValueError(f"Expected different column names in {path}, got {_listed(_repeated(header))} more than once.")
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != len(header):
            raise ValueError(f"Expected {len(header)} cells in every row of {path}, got {len(row)} in row {number}.")
    cells = list(zip(*rows[1:], strict=True))
    return {
        name: [None if c.strip().lower() in MISSING else c.strip() for c in cells[j]] for j, name in enumerate(header)
    }


def _read_parquet(path: pathlib.Path) -> dict[str, list[Cell]]:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(f"Parquet files need pyarrow: pip install 'kernel-embed[parquet]' ({path}).") from error
    try:
        content = parquet.read_table(path)
    except (ArrowException, OSError) as error:
        raise ValueError(f"Expected a Parquet file in {path}, got something else ({error}).") from error
    return {name: content.column(name).to_pylist() for name in content.column_names}


def _numbers(name: str, cells: Sequence[Cell], path: pathlib.Path) -> NDArray[np.float64]:
    try:
        return np.array([np.nan if cell is None else float(cell) for cell in cells])
    except (ValueError, TypeError):
        text = next(cell for cell in cells if cell is not None and not _is_number(cell))
        raise ValueError(
            f"Expected numbers in the column {name!r} of {path}, got {text!r}. Encode text as numbers (one column per "
            "category), or leave the column out."
        ) from None


def _labels(cells: Sequence[Cell]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels as whole numbers where all of them are, as text otherwise; and which rows have one."""
    known = np.array([cell is not None and cell == cell for cell in cells])
    texts = [str(cell) if k else "" for cell, k in zip(cells, known, strict=True)]
    whole = all(_is_number(t) and float(t).is_integer() for t, k in zip(texts, known, strict=True) if k)
    if whole:
        return np.array([int(float(t)) if k else 0 for t, k in zip(texts, known, strict=True)]), known
    return np.array(texts), known


def _is_number(cell: Cell) -> bool:
    try:
        return cell is not None and bool(np.isfinite(float(cell)))
    except (ValueError, TypeError):
        return False


def _repeated(names: Sequence[str]) -> list[str]:
    return sorted({name for name in names if names.count(name) > 1})


def _listed(names: Sequence[str], most: int = 5) -> str:
    shown = ", ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
