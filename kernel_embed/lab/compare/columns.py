"""What stands in the columns of a table: numbers, dates, text, or nothing that can be learned from.

Each column ends as one of three types: float64 with NaN where a cell is missing (numbers and booleans), datetime64
with NaT (dates), object with text and NaN (categories).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .reading import listed

MOSTLY = 0.9
"""A column in which this share of the cells are numbers is one of numbers."""
FEW_VALUES = 20
"""One with no more different cells than this is one of categories, numbers or not, where some are text."""

LARGEST = 1e150
"""Numbers beyond this stand for a missing one (1.7e308 is the largest there is), or cannot be computed with."""

DATE = r"\d{4}[-/]\d{1,2}[-/]\d{1,2}([ T].*)?|\d{1,2}[./]\d{1,2}[./]\d{4}"
DECIMAL_COMMA = r"[-+]?(\d{1,3}(\.\d{3})+|\d+)(,\d+)?([eE][-+]?\d+)?"
THOUSANDS = r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?"

LEFT_OUT = {
    "missing": "every cell is missing",
    "constant": "the same value in every row",
    "identifier": "almost every row has a text of its own, an identifier or free text",
    "row number": "it counts the rows",
    "unreadable": "cells that are neither numbers, text nor dates",
}
"""Why a column is left out."""
READ_AS = {
    "infinite": "infinite cells, and numbers beyond 1e150, whose squares are infinite, taken as missing",
    "decimal comma": "decimal commas read as points",
    "thousands": "commas between thousands left out",
    "not a number": "cells that are not numbers taken as missing",
}
"""How the cells of a column were taken."""


class Columns(NamedTuple):
    """The columns to learn from, and what was done, in sentences without their full stops."""

    frame: pd.DataFrame
    notes: tuple[str, ...]


def usable_columns(raw: pd.DataFrame) -> Columns:
    """``raw`` with every column typed, without those that nothing can be learned from."""
    found: dict[str, list[str]] = {}
    delimiter = raw.attrs.get("delimiter", ";")
    numeric = _numeric_part(raw, found)
    others: dict[str, Any] = {}
    for name in raw.select_dtypes(exclude=["number", "bool"]).columns:
        values = typed(raw[name], delimiter, found)
        if name in found.get("unreadable", ()):
            continue
        if (why := useless(values)) is not None:
            found.setdefault(why, []).append(name)
        else:
            others[name] = values
    frame = pd.concat([numeric, pd.DataFrame(others, index=raw.index)], axis=1) if others else numeric
    kept = set(frame.columns)
    return Columns(frame[[name for name in raw.columns if name in kept]], tuple(_notes(found)))


def typed(cells: pd.Series, delimiter: str = ";", found: dict[str, list[str]] | None = None) -> pd.Series:
    """One column as numbers, dates or text; ``found`` collects how its cells were taken."""
    found = {} if found is None else found
    name = str(cells.name)
    if pd.api.types.is_bool_dtype(cells.dtype) or pd.api.types.is_numeric_dtype(cells.dtype):
        return _finite(pd.to_numeric(cells, errors="coerce").astype(np.float64), found)
    if pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return cells.dt.tz_localize(None) if cells.dt.tz is not None else cells
    known = cells.astype(object).dropna()
    if not known.map(lambda cell: isinstance(cell, str | bool | int | float | np.generic)).all():
        if known.map(lambda cell: hasattr(cell, "isoformat")).all():
            return pd.to_datetime(cells)
        if known.map(lambda cell: hasattr(cell, "as_tuple")).all():  # decimal.Decimal
            return _finite(pd.to_numeric(cells, errors="coerce").astype(np.float64), found)
        found.setdefault("unreadable", []).append(name)
        return pd.Series(np.nan, index=cells.index, name=cells.name)
    return _of_text(known.astype(str).str.strip(), cells.index, delimiter, found)


def is_text(dtype: Any) -> bool:
    """Whether a column of this type holds categories: neither numbers nor dates."""
    return not (pd.api.types.is_numeric_dtype(dtype) or pd.api.types.is_datetime64_any_dtype(dtype))


def useless(values: pd.Series) -> str | None:
    """Why nothing can be learned from a typed column; ``None`` where something can."""
    known = values.dropna()
    if known.empty:
        return "missing"
    different = known.nunique()
    if different == 1 and len(known) == len(values):
        return "constant"
    if is_text(values.dtype) and 2 * different > len(known) and different > FEW_VALUES:
        return "identifier"
    return None


def read_dates(text: pd.Series) -> pd.Series:
    """Dates of their text, the day first where a point follows it; NaT where there is none."""
    day_first = text.str.contains(r"^\d{1,2}\.", regex=True).any()
    return pd.to_datetime(text, errors="coerce", format="mixed", dayfirst=bool(day_first))


def _of_text(known: pd.Series, index: pd.Index, delimiter: str, found: dict[str, list[str]]) -> pd.Series:
    name = str(known.name)
    lower = known.str.lower()
    if lower.isin(["true", "false"]).all():
        return (lower == "true").astype(np.float64).reindex(index)
    if known.str.fullmatch(DATE).all():
        dates = read_dates(known)
        if dates.notna().all():
            return dates.reindex(index)
    commas = known.str.contains(",", regex=False)
    if commas.any() and delimiter == "," and known[commas].str.fullmatch(THOUSANDS).all():
        numbers, how = pd.to_numeric(known.str.replace(",", "", regex=False), errors="coerce"), "thousands"
    elif commas.any() and known.str.fullmatch(DECIMAL_COMMA).all():
        points = known.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        numbers, how = pd.to_numeric(points, errors="coerce"), "decimal comma"
    else:
        numbers, how = pd.to_numeric(known, errors="coerce"), ""
    share = numbers.notna().mean()
    if share == 1.0 or (share >= MOSTLY and known.nunique() > FEW_VALUES):
        if how:
            found.setdefault(how, []).append(name)
        if share < 1.0:
            found.setdefault("not a number", []).append(f"{name} (such as {known[numbers.isna()].iloc[0]!r})")
        return _finite(numbers.astype(np.float64).reindex(index), found)
    return known.astype(object).reindex(index)


def _finite(values: pd.Series, found: dict[str, list[str]]) -> pd.Series:
    infinite = np.abs(values.to_numpy()) > LARGEST
    if infinite.any():
        found.setdefault("infinite", []).append(str(values.name))
        return values.mask(infinite)
    return values


def _numeric_part(raw: pd.DataFrame, found: dict[str, list[str]]) -> pd.DataFrame:
    """All columns that pandas read as numbers, checked together: a table may have 100,000 of them."""
    numbers = raw.select_dtypes(include=["number", "bool"])
    x = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    names = np.asarray(numbers.columns, dtype=object)
    infinite = np.abs(x) > LARGEST
    x = np.where(infinite, np.nan, x)
    known = ~np.isnan(x)
    low, high = np.where(known, x, np.inf).min(axis=0), np.where(known, x, -np.inf).max(axis=0)
    missing = ~known.any(axis=0)
    marks = {
        "infinite": infinite.any(axis=0) & ~missing,
        "missing": missing,
        "constant": known.all(axis=0) & (low == high),
        "row number": (np.diff(x, axis=0) == 1.0).all(axis=0) & (len(x) > FEW_VALUES),
    }
    for why, which in marks.items():
        if which.any():
            found[why] = [str(name) for name in names[which]]
    gone = marks["missing"] | marks["constant"] | marks["row number"]
    return pd.DataFrame(x[:, ~gone], columns=numbers.columns[~gone], index=raw.index)


def _notes(found: dict[str, list[str]]) -> Iterator[str]:
    for why, words in LEFT_OUT.items():
        if why in found:
            one = "a column" if len(found[why]) == 1 else f"{len(found[why])} columns"
            yield f"{one} left out, {words}: {listed(found[why])}"
    for how, words in READ_AS.items():
        if how in found:
            yield f"{words}: {listed(found[how])}"
