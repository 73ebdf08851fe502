"""The built-in column types: dates, numbers and texts, tried in this order."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .column_encoders import ColumnEncoder, EncodedColumn, Floats, Objects, is_missing, register_column_type

IDENTIFIER_ROWS = 20
"""Rows from which a text column with a different text in every row, or a row counter, counts as an identifier."""
DAY = np.timedelta64(1, "D")
YEAR, WEEK = 365.2425, 7.0
SPANS = (datetime.timedelta, datetime.time, np.timedelta64)  # durations, and times of the day since midnight
NUMBERS = (bool, int, float, np.number, np.bool_, Decimal, Fraction)
EMPTY, CONSTANT, IDENTIFIER = "no values", "constant", "an identifier (a different text in every row)"


@register_column_type
class TextEncoder(ColumnEncoder):
    """Texts and anything else: one-hot categories, each 1/√2, so that two different ones are at distance 1.

    A missing cell is a category. Rare categories share the last number; two categories need one number, which is
    halfway between them for an unknown category.
    """

    is_category = True
    MISSING = "(missing)"

    @classmethod
    def accepts(cls, column: NDArray[Any]) -> bool:
        """True: every column can be read as texts."""
        return True

    @classmethod
    def values(cls, column: NDArray[Any], name: str) -> Objects:
        """The cells as texts, with ``MISSING`` where a cell is missing."""
        for cell in column if column.dtype.kind == "O" else ():
            if hasattr(cell, "__len__") and not isinstance(cell, str | bytes):
                kind = type(cell).__name__
                raise ValueError(f"Column {name!r} has several values in a cell ({kind}). Split or drop the column.")
        return np.array([cls.MISSING if is_missing(cell) else str(cell) for cell in column], dtype=object)

    def fit(self, column: NDArray[Any], weights: Floats | None = None) -> str | None:
        """Choose the most frequent categories; one category, or in a long column as many as rows, is useless."""
        categories, counts = np.unique(self.values(column, self.name).astype(str), return_counts=True)
        if len(categories) < 2:
            return CONSTANT
        if len(categories) == len(column) >= IDENTIFIER_ROWS:
            return IDENTIFIER
        order = np.argsort(-counts, kind="stable")
        self.categories = sorted(categories[order[: self.max_categories]].tolist())
        self.has_rest = len(categories) > self.max_categories
        self.is_binary = len(categories) == 2 and not self.has_rest
        return None

    def outputs(self) -> list[EncodedColumn]:
        """An indicator of each category and one of the rest, or of the second of two categories."""
        names = self.categories[1:] if self.is_binary else [*self.categories, *["(other)"] * self.has_rest]
        return [self.output(f"{self.name}={category}", "", False) for category in names]

    def transform(self, column: NDArray[Any]) -> Floats:
        """1/√2 in the column of the category; for two categories 0, 1, or ½ if it is unknown."""
        texts = self.values(column, self.name).astype(str)
        places = np.searchsorted(self.categories, texts).clip(max=len(self.categories) - 1)
        is_known = np.asarray(self.categories)[places] == texts
        if self.is_binary:
            return np.where(is_known, places == 1, 0.5)[:, None]
        encoded = np.zeros((len(texts), len(self.categories) + self.has_rest))
        encoded[np.flatnonzero(is_known), places[is_known]] = math.sqrt(0.5)
        if self.has_rest:
            encoded[~is_known, -1] = math.sqrt(0.5)
        return encoded


@register_column_type
class NumberEncoder(ColumnEncoder):
    """Numbers, booleans, durations, times of the day: the value, and an indicator of missing cells if there were any.

    A missing value becomes the median. A column with two values is scaled to 0 and 1, so that they are at distance 1
    like two categories.
    """

    @classmethod
    def accepts(cls, column: NDArray[Any]) -> bool:
        """Whether the cells that are not missing are all numbers, or all durations or times of the day."""
        if column.dtype.kind != "O":
            return column.dtype.kind in "fiubm"
        kind = SPANS if isinstance(_first(column), SPANS) else NUMBERS
        return all(isinstance(cell, kind) or is_missing(cell) for cell in column)

    @classmethod
    def values(cls, column: NDArray[Any], name: str) -> Floats:
        """The numbers, or durations in days, with NaN where a cell is missing."""
        try:
            if column.dtype.kind == "m":
                values = np.where(np.isnat(column), np.nan, column / DAY).astype(float)
            elif column.dtype.kind == "O":
                values = np.array([np.nan if is_missing(cell) else number(cell) for cell in column])
            elif column.dtype.kind in "fiub":
                values = column.astype(np.float64)
            else:
                raise TypeError(f"The type of the column is {column.dtype}.")
        except (TypeError, ValueError) as error:
            raise ValueError(f"Column {name!r} held numbers in training, but now has other cells: {error}") from None
        if bool(np.isinf(values).any()):
            row = int(np.isinf(values).argmax())
            raise ValueError(f"Input contains infinity, in row {row} of column {name!r}. Leave such cells empty.")
        return values

    def fit(self, column: NDArray[Any], weights: Floats | None = None) -> str | None:
        """Store the median and the range; an empty column is useless, and a constant one without missing cells."""
        values = self.values(column, self.name)
        missing = np.isnan(values)
        if missing.all():
            return EMPTY
        values = values[~missing]
        low, high = float(values.min()), float(values.max())
        self.median = _median(values, None if weights is None else weights[~missing])
        self.may_be_missing, self.varies = bool(missing.any()), low < high
        self.is_quantity = self.varies and len(np.unique(values[:1000])) > 2
        self.low, self.range = (0.0, 1.0) if self.is_quantity else (low, (high - low) or 1.0)
        self.is_row_number = len(column) == len(values) > IDENTIFIER_ROWS and bool((np.diff(values) == 1.0).all())
        return None if self.varies or self.may_be_missing else CONSTANT

    def outputs(self) -> list[EncodedColumn]:
        """The value if it varies, and an indicator of missing cells if there were any."""
        value = [self.output(self.name, "", self.is_quantity)] * self.varies
        return value + [self.output(f"{self.name} is missing", "missing", False)] * self.may_be_missing

    def transform(self, column: NDArray[Any]) -> Floats:
        """The value, with two values scaled to 0 and 1, and 1 in a second column where it is missing."""
        values = self.values(column, self.name)
        missing = np.isnan(values)
        value = [(np.where(missing, self.median, values) - self.low) / self.range] * self.varies
        return np.stack(value + [missing.astype(float)] * self.may_be_missing, axis=1)


@register_column_type
class DateEncoder(ColumnEncoder):
    """Dates: days since 1970, of times with a zone in UTC, and the positions in the year and in the week on circles."""

    PARTS = ("", " in year, sine", " in year, cosine", " in week, sine", " in week, cosine")

    @classmethod
    def accepts(cls, column: NDArray[Any]) -> bool:
        """Whether the cells that are not missing are all dates."""
        if column.dtype.kind != "O":
            return column.dtype.kind == "M"
        return _is_date(_first(column)) and all(is_missing(cell) or _is_date(cell) for cell in column)

    @classmethod
    def values(cls, column: NDArray[Any], name: str) -> Floats:
        """Days since 1970, with NaN where a cell is missing."""
        if column.dtype.kind == "O":
            column = np.array([_in_utc(cell) for cell in column], dtype=object)
        try:
            seconds = column.astype("datetime64[s]")
        except (TypeError, ValueError) as error:
            raise ValueError(f"Column {name!r} held dates in training, but now has other cells ({error}).") from error
        return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86400.0)

    def fit(self, column: NDArray[Any], weights: Floats | None = None) -> str | None:
        """Store the median; an empty column is useless, and a constant one without missing cells."""
        days = self.values(column, self.name)
        if np.isnan(days).all():
            return EMPTY
        self.may_be_missing, self.median = bool(np.isnan(days).any()), float(np.nanmedian(days))
        return None if self.may_be_missing or np.ptp(days) > 0 else CONSTANT

    def outputs(self) -> list[EncodedColumn]:
        """The days, sine and cosine of year and week, and an indicator of missing cells if there were any."""
        value = [self.output(self.name + part, part, not part) for part in self.PARTS]
        return value + [self.output(f"{self.name} is missing", "missing", False)] * self.may_be_missing

    def transform(self, column: NDArray[Any]) -> Floats:
        """Days, and half the sine and cosine of the positions in the year and the week."""
        days = self.values(column, self.name)
        missing = np.isnan(days)
        days = np.where(missing, self.median, days)
        angles = [2.0 * math.pi * days / period for period in (YEAR, WEEK)]
        circles = [f(angle) / 2.0 for angle in angles for f in (np.sin, np.cos)]
        return np.stack([days, *circles] + [missing.astype(float)] * self.may_be_missing, axis=1)


def encode_numbers(encoders: Sequence[ColumnEncoder], columns: Sequence[NDArray[Any]]) -> Floats | None:
    """All columns in one step if they are numbers that were never missing, otherwise ``None``.

    One by one, 100,000 columns take seconds.
    """
    plain = [e for e in encoders if type(e) is NumberEncoder and e.varies and not e.may_be_missing]
    if len(plain) < len(encoders) or any(columns[e.index].dtype.kind not in "fiub" for e in plain):
        return None
    values = np.stack([columns[e.index] for e in plain], axis=1, dtype=np.float64, casting="unsafe")
    if bool(np.isinf(values).any()):
        return None  # encoded one by one, the error names the column
    median, low, size = np.array([(e.median, e.low, e.range) for e in plain]).T
    return np.asarray((np.where(np.isnan(values), median, values) - low) / size)


def number(cell: Any) -> float:
    """A cell as a number, times in days; a whole number beyond the range of floats is infinite."""
    if isinstance(cell, datetime.time):
        cell = datetime.timedelta(0, cell.hour * 3600 + cell.minute * 60 + cell.second, cell.microsecond)
    if isinstance(cell, SPANS):
        return float(np.timedelta64(cell) / DAY)
    try:
        return float(cell)
    except OverflowError:
        return math.inf if cell > 0 else -math.inf


def _is_date(cell: object) -> bool:
    return isinstance(cell, np.datetime64) or (hasattr(cell, "isoformat") and not isinstance(cell, SPANS))


def _in_utc(cell: Any) -> Any:
    if getattr(cell, "tzinfo", None) is None:
        return cell
    return cell.astimezone(datetime.timezone.utc).replace(tzinfo=None)


def _first(column: NDArray[Any]) -> object:
    return next((cell for cell in column if not is_missing(cell)), None)


def _median(values: Floats, weights: Floats | None) -> float:
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    low = np.searchsorted(total, 0.5 * total[-1] * (1 - 1e-12))
    high = np.searchsorted(total, 0.5 * total[-1] * (1 + 1e-12))
    return float(0.5 * (values[order[low]] + values[order[min(high, len(order) - 1)]]))
