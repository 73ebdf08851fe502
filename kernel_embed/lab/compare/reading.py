"""Files as tables: CSV and Parquet, the papers' data sets, and texts parsed as numbers or dates."""

from __future__ import annotations

import csv
import io
import os
import pathlib
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import KFold

from ...tabular import ColumnEncoder, DateEncoder, NumberEncoder, TextEncoder, column_type
from ...tabular.column_types import number

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
    """The first few names, and how many more there are."""
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

INFINITE = "infinite cells, and numbers beyond 1e150, treated as missing"
WITH_COMMA = "decimal commas read as points"
WITH_THOUSANDS = "commas between thousands removed"
NOT_NUMBERS = "cells that are not numbers treated as missing"

Notes = dict[str, list[str]]
"""Names of columns by how they were read."""


def series_type(cells: pd.Series) -> type[ColumnEncoder]:
    """The type of a column; one of objects without a value holds texts, as it does in other rows."""
    is_object = not (pd.api.types.is_numeric_dtype(cells.dtype) or pd.api.types.is_datetime64_any_dtype(cells.dtype))
    values = cells.dropna().to_numpy() if is_object else cells.to_numpy()
    return TextEncoder if is_object and len(values) == 0 else column_type(values)


def typed(cells: pd.Series, delimiter: str = ";", notes: Notes | None = None) -> pd.Series:
    """One column as numbers, dates, text or objects of a user's type. ``notes`` collects how it was read."""
    notes = {} if notes is None else notes
    if pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_numeric_dtype(cells.dtype):
        return _finite(pd.to_numeric(cells, errors="coerce").astype(np.float64), notes)
    if cells.dtype.kind == "M" and isinstance(cells.dtype, np.dtype | pd.DatetimeTZDtype):
        return cells.dt.tz_convert(None) if cells.dt.tz is not None else cells
    values = cells.astype(object).dropna()
    kind = series_type(values)
    if kind is DateEncoder:
        return pd.to_datetime(values.astype(str), format="ISO8601", utc=True).dt.tz_localize(None).reindex(cells.index)
    if kind is NumberEncoder:
        return _finite(values.map(number).astype(np.float64).reindex(cells.index), notes)
    if kind is TextEncoder or values.map(lambda cell: isinstance(cell, str)).all():
        texts = pd.Series(TextEncoder.values(values.to_numpy(), str(cells.name)), values.index, name=cells.name)
        return _parse(texts.astype(str).str.strip(), cells.index, delimiter, notes)
    return values.reindex(cells.index)


def read_dates(text: pd.Series) -> pd.Series:
    """Dates from text, with the day first if a point follows it; NaT for cells without a date."""
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


def data_directory(directory: str | os.PathLike[str] | None = None) -> pathlib.Path | None:
    """The directory of data sets: the one given, else the environment variable, else ``None``."""
    place = directory if directory is not None else os.environ.get(ENVIRONMENT_VARIABLE)
    return pathlib.Path(place) if place else None


def load_table(name: str, directory: str | os.PathLike[str] | None = None) -> tuple[NDArray[Any], NDArray[Any]]:
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

    if name not in OPENML:
        raise ValueError(
            f"Data set {name!r} has no known name on OpenML. Give the directory that holds {name}.csv with --data or "
            f"in {ENVIRONMENT_VARIABLE}."
        )
    title, version = OPENML[name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it tries again
            bunch = fetch_openml(title, version=version, as_frame=False, n_retries=1)
    except OSError as error:
        raise OSError(
            f"The data set {name!r} could not be fetched from OpenML ({error}). Without a network, give the directory "
            f"that holds {name}.csv with --data or in {ENVIRONMENT_VARIABLE}; kernel-embed reproduce --list names all "
            "files of an experiment."
        ) from error
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
