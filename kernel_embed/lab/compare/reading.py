"""CSV (with any usual delimiter) and Parquet files as data frames, with the first guess of pandas at their types."""

from __future__ import annotations

import csv
import io
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

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
