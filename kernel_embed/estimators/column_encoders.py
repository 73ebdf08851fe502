"""Single columns of a table as numbers: what a column is, and how it is written down."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["number", "date", "text"]
Floats = NDArray[np.float64]
Objects = NDArray[np.object_]

MAX_CATEGORIES = 40
"""Categories of one column that have a place of their own; the others share one."""

IDENTIFIER_ROWS = 20
"""From so many rows on a text that differs in every row is taken for a name."""

DAY = np.timedelta64(1, "D")
YEAR, WEEK = 365.2425, 7.0


@dataclasses.dataclass(frozen=True)
class EncodedColumn:
    """One number of the encoded table: the ``source`` column it says something about, by place and name."""

    name: str
    source: int
    source_name: str
    part: str
    """What of that column it says; numbers that say one thing together, as those of a category do, share it."""
    is_number: bool
    """Whether it is a quantity, which a warping may bend, and not one of a few values."""


class ColumnEncoder(abc.ABC):
    """How one column is written down."""

    def __init__(self, name: str, place: int) -> None:
        self.name, self.place = name, place

    def entry(self, name: str, part: str, is_number: bool) -> EncodedColumn:
        return EncodedColumn(name, self.place, self.name, part, is_number)

    @abc.abstractmethod
    def encoded(self) -> list[EncodedColumn]:
        """Its numbers, by name."""

    @abc.abstractmethod
    def numbers(self, column: NDArray[Any]) -> Floats:
        """Its numbers, ``(n, D)``."""


class NumberEncoder(ColumnEncoder):
    """A number and, where one was missing, where."""

    def __init__(self, name: str, place: int, values: Floats, weights: Floats | None) -> None:
        super().__init__(name, place)
        missing = np.isnan(values)
        known = values[~missing]
        self.median = _median(known, None if weights is None else weights[~missing])
        self.may_be_missing = bool(missing.any())
        self.varies = bool(known.min() < known.max())
        # Two values are a choice, not a quantity, and at distance 1 like two categories, whatever they are called.
        self.is_quantity = self.varies and len(np.unique(known[:1000])) > 2
        self.low, self.range = (0.0, 1.0) if self.is_quantity else (float(known.min()), float(np.ptp(known)) or 1.0)

    def encoded(self) -> list[EncodedColumn]:
        own = [self.entry(self.name, "", self.is_quantity)] * self.varies
        return own + [self.entry(f"{self.name} is missing", "missing", False)] * self.may_be_missing

    def numbers(self, column: NDArray[Any]) -> Floats:
        values = as_floats(column, self.name)
        missing = np.isnan(values)
        own = [(np.where(missing, self.median, values) - self.low) / self.range] * self.varies
        return np.stack(own + [missing.astype(float)] * self.may_be_missing, axis=1)


def numbers_at_once(codes: Sequence[ColumnEncoder], columns: Sequence[NDArray[Any]]) -> Floats | None:
    """What the codes give one by one, where all are of numbers that were never missing; otherwise ``None``.

    One by one 100,000 columns take seconds.
    """
    plain = [code for code in codes if isinstance(code, NumberEncoder) and code.varies and not code.may_be_missing]
    if len(plain) < len(codes) or any(columns[code.place].dtype.kind not in "fiub" for code in plain):
        return None
    values = np.stack([columns[code.place] for code in plain], axis=1, dtype=np.float64, casting="unsafe")
    if bool(np.isinf(values).any()):
        return None  # one by one, they say which
    median, low, size = np.array([(code.median, code.low, code.range) for code in plain]).T
    encoded: Floats = (np.where(np.isnan(values), median, values) - low) / size
    return encoded


class DateEncoder(ColumnEncoder):
    """Days since 1970, and the place in year and week on circles."""

    def __init__(self, name: str, place: int, values: NDArray[np.datetime64]) -> None:
        super().__init__(name, place)
        days = as_days(values)
        self.may_be_missing = bool(np.isnan(days).any())
        self.median = float(np.nanmedian(days))

    def encoded(self) -> list[EncodedColumn]:
        parts = ["", " in year, sine", " in year, cosine", " in week, sine", " in week, cosine"]
        own = [self.entry(self.name + part, part, not part) for part in parts]
        return own + [self.entry(f"{self.name} is missing", "missing", False)] * self.may_be_missing

    def numbers(self, column: NDArray[Any]) -> Floats:
        try:
            days = as_days(column.astype("datetime64[s]"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"Expected dates in column {self.name!r}, got others ({error}). Give dates.") from error
        missing = np.isnan(days)
        days = np.where(missing, self.median, days)
        turns = [2.0 * math.pi * days / period for period in (YEAR, WEEK)]
        circles = [f(turn) / 2.0 for turn in turns for f in (np.sin, np.cos)]
        return np.stack([days, *circles] + [missing.astype(float)] * self.may_be_missing, axis=1)


class TextEncoder(ColumnEncoder):
    """One-hot; the last place is for rare and unknown categories, a missing cell is a category."""

    def __init__(self, name: str, place: int, values: Objects, limit: int) -> None:
        super().__init__(name, place)
        found, counts = np.unique(values.astype(str), return_counts=True)
        order = np.argsort(-counts, kind="stable")
        self.categories = sorted(found[order[:limit]].tolist())
        self.has_rest = len(found) > limit
        self.size = 1.0 if self.is_choice else math.sqrt(0.5)

    @property
    def is_choice(self) -> bool:
        """Two categories need one number."""
        return len(self.categories) == 2 and not self.has_rest

    def encoded(self) -> list[EncodedColumn]:
        if self.is_choice:
            return [self.entry(f"{self.name}={self.categories[1]}", "", False)]
        names = [*self.categories, *["(other)"] * self.has_rest]
        return [self.entry(f"{self.name}={category}", "", False) for category in names]

    def numbers(self, column: NDArray[Any]) -> Floats:
        texts = as_texts(column).astype(str)
        places = np.searchsorted(self.categories, texts).clip(max=len(self.categories) - 1)
        known = np.asarray(self.categories)[places] == texts
        answer = np.zeros((len(texts), len(self.categories) + self.has_rest))
        answer[np.flatnonzero(known), places[known]] = self.size
        if self.has_rest:
            answer[~known, -1] = self.size
        if self.is_choice:
            # an unknown category is half-way between the two
            return np.where(known, answer[:, 1], 0.5)[:, None]
        return answer


MISSING_TEXT = "(missing)"


def encoder_of(column: NDArray[Any], name: str, place: int, limit: int, weights: Floats | None) -> ColumnEncoder | str:
    """How to write a column down, or why it says nothing."""
    kind = kind_of(column)
    if kind == "number":
        values = as_floats(column, name)
        if np.isnan(values).all():
            return "it has no values"
        code = NumberEncoder(name, place, values, weights)
        return code if code.varies or code.may_be_missing else "it is constant"
    if kind == "date":
        dates = column.astype("datetime64[s]")
        if np.isnat(dates).all():
            return "it has no values"
        return DateEncoder(name, place, dates) if len(np.unique(dates)) > 1 else "it is constant"
    texts = as_texts(column)
    distinct = len(set(texts))
    if distinct < 2:
        return "it is constant"
    if distinct == len(texts) >= IDENTIFIER_ROWS:
        return "its text differs in every row, as a name does"
    return TextEncoder(name, place, texts, limit)


def kind_of(column: NDArray[Any]) -> Kind:
    """What a column holds; objects that are all numbers, booleans or missing are numbers.

    Example:
        >>> kind_of(np.array([1, None, True], dtype=object)), kind_of(np.array(["a", None], dtype=object))
        ('number', 'text')
    """
    if column.dtype.kind in "fiub":
        return "number"
    if column.dtype.kind == "M":
        return "date"
    if column.dtype.kind == "m":
        return "number"
    known = [cell for cell in column if not is_missing(cell)]
    if known and all(isinstance(cell, np.datetime64) or hasattr(cell, "isoformat") for cell in known):
        return "date"
    return "number" if all(isinstance(cell, bool | int | float | np.number | np.bool_) for cell in known) else "text"


def is_missing(cell: object) -> bool:
    """None, NaN, NaT, and the mark of pandas."""
    if cell is None or type(cell).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(cell, float | np.floating) and bool(np.isnan(cell))


def as_floats(column: NDArray[Any], name: str) -> Floats:
    """A column of numbers, NaN where one is missing; infinite ones are refused."""
    if column.dtype.kind == "m":
        values = np.where(np.isnat(column), np.nan, column / DAY).astype(float)
    elif column.dtype.kind == "O":
        try:
            values = np.array([np.nan if is_missing(cell) else float(cell) for cell in column])
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"Expected numbers in column {name!r}, as in training, got {error}. Make the cell empty or a number."
            ) from None
    elif column.dtype.kind in "fiub":
        values = column.astype(np.float64)
    else:
        raise ValueError(
            f"Expected numbers in column {name!r}, as in training, got {column.dtype}. Encode it as in training."
        )
    if bool(np.isinf(values).any()):
        raise ValueError(
            f"Expected finite numbers in column {name!r}, got infinity in row {int(np.isinf(values).argmax())}. "
            "Input contains infinity: make such cells empty, and they count as missing."
        )
    return values


def as_days(dates: NDArray[Any]) -> Floats:
    """Days since 1970, NaN where the date is missing."""
    seconds = dates.astype("datetime64[s]")
    return np.where(np.isnat(seconds), np.nan, seconds.astype(np.int64) / 86400.0)


def as_texts(column: NDArray[Any]) -> Objects:
    """A column of texts; missing cells are a category of their own."""
    return np.array([MISSING_TEXT if is_missing(cell) else str(cell) for cell in column], dtype=object)


def _median(values: Floats, weights: Floats | None) -> float:
    if weights is None:
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    low = np.searchsorted(total, 0.5 * total[-1] * (1 - 1e-12))
    high = np.searchsorted(total, 0.5 * total[-1] * (1 + 1e-12))
    return float(0.5 * (values[order[low]] + values[order[min(high, len(order) - 1)]]))
