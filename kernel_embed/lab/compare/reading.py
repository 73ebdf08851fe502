"""Tables as typed columns: texts are parsed as numbers or dates where they are, and useless columns are dropped.

Each column becomes float64 with NaN (numbers and booleans), datetime64 with NaT (dates), or object with NaN (texts, and
the column types of users, see :mod:`kernel_embed.tabular`). The column types also say which columns are useless.
"""

from __future__ import annotations

import csv
import io
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...tabular import ColumnEncoder, TextEncoder, column_type
from ...tabular.column_types import CONSTANT, EMPTY

EXACT_NUMBERS: dict[str, Any] = {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
"""From pandas 3 on numbers are read to the last digit by default, and the option is deprecated."""

MISSING = ("?", "na", "Na", "none", "NONE", "nil", "-", "--", ".")
"""Marks of a missing cell, in addition to those of pandas: nothing, ``NA``, ``N/A``, ``nan``, ``null``, ``None``, …"""
DELIMITERS = ",;\t|"
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
"""Suffixes of table files in a directory."""


def read_frame(path: pathlib.Path) -> pd.DataFrame:
    """The columns of a file; their names are text and all different."""
    if not path.is_file():
        raise FileNotFoundError(f"File not found: {path}. Check the path.")
    frame = _read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _read_csv(path)
    repeated = sorted(set(frame.columns[frame.columns.duplicated()]))
    if repeated:
        raise ValueError(f"Several columns of {path} have the same name: {listed(repeated)}. Rename them.")
    return frame


def listed(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and how many more there are.

    Example:
        >>> listed(["a", "b", "c"], most=2)
        'a, b and 1 more'
    """
    shown = ", ".join(map(str, names[:most]))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _read_csv(path: pathlib.Path) -> pd.DataFrame:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error.reason}). Save the table as UTF-8.") from error
    first = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count) if first else ","
    header, lines = _checked_shape(path, text, delimiter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)  # columns of mixed cells are parsed later
        frame = pd.read_csv(
            io.StringIO(text),
            sep=delimiter,
            header=None,
            names=range(len(header)),
            skiprows=lines,
            na_values=list(MISSING),
            skipinitialspace=True,
            index_col=False,
            low_memory=False,
            **EXACT_NUMBERS,
        )
    frame.columns = pd.Index(header)
    frame.attrs["delimiter"] = delimiter
    return frame


def _checked_shape(path: pathlib.Path, text: str, delimiter: str) -> tuple[list[str], int]:
    """The header and its number of lines; every row must have as many cells."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    header: list[str] = []
    lines = rows = 0
    try:
        for row in reader:
            if not row:
                continue
            rows += 1
            if not header:
                header, lines = [cell.strip() for cell in row], reader.line_num
            elif len(row) != len(header):
                raise ValueError(
                    f"Row {rows} of {path} has {len(row)} cells, but the header has {len(header)}. "
                    "Correct that row, or quote cells that contain the separator."
                )
    except csv.Error as error:
        raise ValueError(
            f"A cell in row {rows + 1} of {path} is too long: {error}. Shorten it, or remove its column from the file."
        ) from error
    if rows < 2:
        raise ValueError(
            f"{path} has {rows} lines, but a table needs a header and rows. Its first line must name the columns."
        )
    return header, lines


def _read_parquet(path: pathlib.Path) -> pd.DataFrame:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(f"Parquet files need pyarrow: pip install 'kernel-embed[parquet]' ({path}).") from error
    try:
        frame = parquet.read_table(path).to_pandas()
    except (ArrowException, OSError) as error:
        raise ValueError(
            f"{path} is not a Parquet file ({error}). Write it with DataFrame.to_parquet, or give a CSV file."
        ) from error
    return frame.rename(columns=str)


MOSTLY = 0.9
"""Share of numbers among the cells of a text column from which it is a column of numbers."""
FEW_VALUES = 20
"""A text column with at most this many different cells, not all of them numbers, holds categories."""

LARGEST = 1e150
"""Larger numbers count as missing: they mark a missing cell (1.7e308), or their squares overflow."""

DATE = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}"
DECIMAL_COMMA = r"[-+]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?([eE][-+]?\d+)?"
THOUSANDS = r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?"

ROW_NUMBER = "row numbers"
UNREADABLE = "cells that are neither numbers, texts nor dates"

INFINITE = "infinite cells, and numbers beyond 1e150, treated as missing"
WITH_COMMA = "decimal commas read as points"
WITH_THOUSANDS = "commas between thousands removed"
NOT_NUMBERS = "cells that are not numbers treated as missing"

Notes = dict[str, list[str]]
"""Names of columns by what was done with them."""


def usable_columns(raw: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """``raw`` with every column typed, without useless ones; and notes on what was done."""
    read_as: Notes = {}
    dropped: Notes = {}
    delimiter = raw.attrs.get("delimiter", ";")
    numbers = _numeric_part(raw, read_as, dropped)
    others: dict[str, pd.Series] = {}
    for name in raw.select_dtypes(exclude=["number", "bool"]).columns:
        values = typed(raw[name], delimiter, read_as)
        reason = UNREADABLE if values is None else series_type(values)(name, 0).fit(values.to_numpy())
        if reason is None and values is not None:
            others[name] = values
        else:
            dropped.setdefault(str(reason), []).append(name)
    frame = pd.concat([numbers, pd.DataFrame(others, index=raw.index)], axis=1) if others else numbers
    names = set(frame.columns)
    return frame[[name for name in raw.columns if name in names]], tuple(_notes(read_as, dropped))


def series_type(cells: pd.Series) -> type[ColumnEncoder]:
    """The type of a column; one of objects without a value holds texts, as it does in other rows."""
    is_object = not (pd.api.types.is_numeric_dtype(cells.dtype) or pd.api.types.is_datetime64_any_dtype(cells.dtype))
    values = cells.dropna().to_numpy() if is_object else cells.to_numpy()
    return TextEncoder if is_object and len(values) == 0 else column_type(values)


def typed(cells: pd.Series, delimiter: str = ";", notes: Notes | None = None) -> pd.Series | None:
    """One column as numbers, dates or text; ``None`` if it is none of these. ``notes`` collects how it was read."""
    notes = {} if notes is None else notes
    if pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_numeric_dtype(cells.dtype):
        return _finite(pd.to_numeric(cells, errors="coerce").astype(np.float64), notes)
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return cells.dt.tz_localize(None) if cells.dt.tz is not None else cells
    values = cells.astype(object).dropna()
    if values.map(lambda cell: isinstance(cell, str | bool | int | float | np.generic)).all():
        return _parse(values.astype(str).str.strip(), cells.index, delimiter, notes)
    if values.map(lambda cell: hasattr(cell, "isoformat")).all():
        return pd.to_datetime(cells)
    if values.map(lambda cell: hasattr(cell, "as_tuple")).all():  # decimal.Decimal
        return _finite(pd.to_numeric(cells, errors="coerce").astype(np.float64), notes)
    return None


def read_dates(text: pd.Series) -> pd.Series:
    """Dates from text, with the day first if a point follows it; NaT where there is none."""
    day_first = text.str.contains(r"^\d{1,2}\.", regex=True).any()
    return pd.to_datetime(text, errors="coerce", format="mixed", dayfirst=bool(day_first))


def _parse(text: pd.Series, index: pd.Index, delimiter: str, notes: Notes) -> pd.Series:
    name, lower = str(text.name), text.str.lower()
    if lower.isin(["true", "false"]).all():
        return (lower == "true").astype(np.float64).reindex(index)
    if text.str.fullmatch(DATE).all():
        dates = read_dates(text)
        if dates.notna().all():
            return dates.reindex(index)
    commas = text.str.contains(",", regex=False)
    if commas.any() and delimiter == "," and text[commas].str.fullmatch(THOUSANDS).all():
        digits, note = text.str.replace(",", "", regex=False), WITH_THOUSANDS
    elif commas.any() and text.str.fullmatch(DECIMAL_COMMA).all():
        digits, note = text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False), WITH_COMMA
    else:
        digits, note = text, ""
    numbers = pd.to_numeric(digits, errors="coerce")
    share = numbers.notna().mean()
    if share < 1.0 and (share < MOSTLY or text.nunique() <= FEW_VALUES):
        return text.astype(object).reindex(index)
    if note:
        notes.setdefault(note, []).append(name)
    if share < 1.0:
        notes.setdefault(NOT_NUMBERS, []).append(f"{name} (such as {text[numbers.isna()].iloc[0]!r})")
    return _finite(numbers.astype(np.float64).reindex(index), notes)


def _finite(values: pd.Series, notes: Notes) -> pd.Series:
    infinite = np.abs(values.to_numpy()) > LARGEST
    if infinite.any():
        notes.setdefault(INFINITE, []).append(str(values.name))
        return values.mask(infinite)
    return values


def _numeric_part(raw: pd.DataFrame, read_as: Notes, dropped: Notes) -> pd.DataFrame:
    """The columns that pandas read as numbers, checked together: a table may have 100,000 of them."""
    numbers = raw.select_dtypes(include=["number", "bool"])
    x = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    names = np.asarray(numbers.columns, dtype=object)
    infinite = np.abs(x) > LARGEST
    x = np.where(infinite, np.nan, x)
    known = ~np.isnan(x)
    low, high = np.where(known, x, np.inf).min(axis=0), np.where(known, x, -np.inf).max(axis=0)
    empty = ~known.any(axis=0)
    reasons = {
        EMPTY: empty,
        CONSTANT: known.all(axis=0) & (low == high),
        ROW_NUMBER: (np.diff(x, axis=0) == 1.0).all(axis=0) & (len(x) > FEW_VALUES),
    }
    for notes, marks in ((read_as, {INFINITE: infinite.any(axis=0) & ~empty}), (dropped, reasons)):
        notes.update({note: [str(name) for name in names[mark]] for note, mark in marks.items() if mark.any()})
    useful = ~np.logical_or.reduce(list(reasons.values()))
    return pd.DataFrame(x[:, useful], columns=numbers.columns[useful], index=raw.index)


def _notes(read_as: Notes, dropped: Notes) -> Iterator[str]:
    for reason, names in dropped.items():
        count = "a column" if len(names) == 1 else f"{len(names)} columns"
        yield f"{count} dropped, {reason}: {listed(names)}"
    for note, names in read_as.items():
        yield f"{note}: {listed(names)}"
