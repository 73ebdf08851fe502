"""Files as people have them: CSV with any usual delimiter, or Parquet, read into a data frame of raw columns."""

from __future__ import annotations

import csv
import io
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd

EXACT_NUMBERS: dict[str, Any] = {} if int(pd.__version__.split(".")[0]) >= 3 else {"float_precision": "round_trip"}
"""From pandas 3 on numbers are read to the last digit without being asked for, and asking is deprecated."""

MISSING = ("?", "na", "Na", "none", "NONE", "nil", "-", "--", ".")
"""What stands for a missing cell beside what pandas knows: nothing, ``NA``, ``N/A``, ``nan``, ``null``, ``None``, …"""
DELIMITERS = ",;\t|"
SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
"""Endings of the files that are looked for in a directory."""


def read_frame(path: pathlib.Path) -> pd.DataFrame:
    """The columns of a file, with pandas' first guess at their types; names are text and all different."""
    if not path.is_file():
        raise FileNotFoundError(f"Expected a table in {path}, got no such file. Look at the path.")
    frame = _read_parquet(path) if path.suffix.lower() in (".parquet", ".pq") else _read_csv(path)
    repeated = sorted(set(frame.columns[frame.columns.duplicated()]))
    if repeated:
        raise ValueError(
            f"Expected different column names in {path}, got {listed(repeated)} more than once. Rename them."
        )
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
        raise ValueError(
            f"Expected text in {path}, got bytes that are not UTF-8 ({error.reason}). Save the table as UTF-8."
        ) from error
    first = text.split("\n", 1)[0]
    delimiter = max(DELIMITERS, key=first.count) if first else ","
    header, lines = _checked_shape(path, text, delimiter)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pd.errors.DtypeWarning)  # columns of mixed cells are looked at later
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
    """The header, and how many lines it takes; every row must have as many cells."""
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
                    f"Expected {len(header)} cells in every row of {path}, got {len(row)} in row {rows}. "
                    "Mend that row, or quote cells that hold the separator."
                )
    except csv.Error as error:
        raise ValueError(
            f"Expected cells of a usual length in {path}, got {error} in row {rows + 1}. "
            "Shorten that cell, or leave its column out of the file."
        ) from error
    if rows < 2:
        raise ValueError(
            f"Expected a header and rows in {path}, got {rows} lines. Give a file whose first line names the columns."
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
            f"Expected a Parquet file in {path}, got something else ({error}). "
            "Write it with DataFrame.to_parquet, or give a CSV file."
        ) from error
    return frame.rename(columns=str)
