"""Files as tables: CSV and Parquet, texts parsed as numbers or dates, and tables as boosting takes them."""

from __future__ import annotations

import csv
import io
import pathlib
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin

from ...tabular import ColumnEncoder, DateEncoder, NumberEncoder, TextEncoder, column_encoders, column_type
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
    return _with_names(frame, map(str, frame.columns), str(path))


def frame_of(X: Any) -> pd.DataFrame:
    """``X`` as a data frame with at least one column and different names; the columns of a matrix are x0, x1, …"""
    try:
        frame = X.to_pandas() if hasattr(X, "to_pandas") else pd.DataFrame(X)
    except (ValueError, TypeError, RuntimeError) as error:
        words = f"neither a data frame nor a matrix but {type(X).__name__}"
        raise ValueError(f"X is {words} ({error}). Give it two dimensions.") from error
    if frame.shape[1] == 0:
        raise ValueError(f"X has no columns (shape {frame.shape}). Give at least one feature.")
    is_named = hasattr(X, "to_pandas") or isinstance(X, pd.DataFrame | dict)
    names = map(str, frame.columns) if is_named else (f"x{j}" for j in range(frame.shape[1]))
    return _with_names(frame, names, "X")


def _with_names(frame: pd.DataFrame, names: Iterable[str], where: str) -> pd.DataFrame:
    frame = frame.set_axis(list(names), axis=1)
    if not frame.columns.is_unique:
        repeated = listed(sorted(set(frame.columns[frame.columns.duplicated()])))
        raise ValueError(f"Several columns of {where} have the same name: {repeated}. Rename them.")
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
            io.StringIO(text), sep=delimiter, header=None, names=range(len(header)), skiprows=lines,
            na_values=list(MISSING), skipinitialspace=True, index_col=False, low_memory=False, **EXACT_NUMBERS,
        )  # fmt: skip
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
                words = f"has {len(row)} cells, but the header has {len(header)}"
                raise ValueError(f"Row {rows} of {path} {words}. Quote cells that contain the separator.")
    except csv.Error as error:
        words = f"A cell in row {rows + 1} of {path} is too long: {error}"
        raise ValueError(f"{words}. Shorten it, or remove its column from the file.") from error
    if rows < 2:
        raise ValueError(f"{path} has {rows} lines, but a table needs a header and rows. Give it both.")
    return header, lines


def _read_parquet(path: pathlib.Path) -> pd.DataFrame:
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(f"Parquet files need pyarrow: pip install 'kernel-embed[parquet]' ({path}).") from error
    try:
        return parquet.read_table(path).to_pandas()
    except (ArrowException, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file ({error}). Write it by DataFrame.to_parquet.") from error


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


def _parse(text: pd.Series, index: pd.Index, delimiter: str, notes: Notes) -> pd.Series:
    name, lower = str(text.name), text.str.lower()
    if lower.isin(["true", "false"]).all():
        return (lower == "true").astype(np.float64).reindex(index)
    if text.str.fullmatch(DATE).all():
        day_first = bool(text.str.contains(r"^\d{1,2}\.", regex=True).any())
        dates = pd.to_datetime(text, errors="coerce", format="mixed", dayfirst=day_first)
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


class Categories(TransformerMixin, BaseEstimator):
    """Numbers unchanged, with missing values, and texts as pandas' categories: for boosting that takes both.

    A column has at most 250 categories; rarer ones count as missing.
    """

    def fit(self, X: pd.DataFrame, y: object = None) -> Categories:
        """Store the types of the columns, and their categories."""
        types = {name: series_type(X[name]) for name in X.columns}
        self.types_ = {name: kind.__name__ for name, kind in types.items()}
        texts = [name for name, kind in types.items() if kind.is_category]
        self.categories_ = {name: sorted(X[name].value_counts().index[:250], key=str) for name in texts}
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """The same columns; an unknown category is missing."""
        columns: dict[Any, Any] = {}
        for name in X.columns:
            if name in self.categories_:
                columns[name] = pd.Categorical(X[name], self.categories_[name])
            else:
                encoder = next(one for one in column_encoders.COLUMN_TYPES if one.__name__ == self.types_[name])
                columns[name] = encoder.values(X[name].to_numpy(), name)
        return pd.DataFrame(columns, index=X.index)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """The names of the columns, which are those of the table."""
        return self.feature_names_in_
