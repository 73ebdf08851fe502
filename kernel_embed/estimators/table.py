"""Tables as people have them, as numbers: what each column is, and how it is written down for a kernel.

=============  ======================================================================================================
column         numbers
=============  ======================================================================================================
number         itself; a missing one is the median, and a second column says where it was missing
boolean        0 and 1
date           days since 1970, and the place in the year and in the week on circles
text           one-hot, each 1/√2, so that two different categories are at distance 1; rare ones share a place
=============  ======================================================================================================

Columns that say nothing are left out and named: constants, columns without a value, and texts that differ in every
row, which are names and not categories.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

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


class TableEncoder(TransformerMixin, BaseEstimator):
    """A table of numbers, texts, booleans and dates with missing cells, as a matrix of numbers.

    Takes NumPy arrays and data frames (pandas, polars, and others that have ``columns`` and ``to_numpy``).

    Args:
        max_categories: categories of a text column that have a place of their own.

    Attributes:
        feature_names_in_: names of the columns, for data frames.
        encoded_: an :class:`EncodedColumn` for each number.
        groups_: for each number the group that shares a lengthscale: a category, a number, a mark of missing cells.
        numbers_: for each number whether it is a quantity.
        dropped_: names of the columns that were left out, with the reason.

    Example:
        >>> table = np.array([["a", 1.0], ["b", None], ["a", 3.0]], dtype=object)
        >>> encoder = TableEncoder().fit(table)
        >>> list(encoder.get_feature_names_out())
        ['x0=b', 'x1', 'x1 is missing']
        >>> encoder.transform(table)
        array([[0., 1., 0.],
               [1., 2., 1.],
               [0., 3., 0.]])
    """

    def __init__(self, max_categories: int = MAX_CATEGORIES) -> None:
        self.max_categories = max_categories

    def fit(self, X: ArrayLike, y: object = None, sample_weight: Floats | None = None) -> TableEncoder:
        """Look at the columns."""
        columns, names = read_columns(X)
        if isinstance(names, list):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = len(columns)
        labels = names if isinstance(names, list) else [f"x{j}" for j in range(len(columns))]
        self.dropped_: dict[str, str] = {}
        self._codes: list[_Code] = []
        for j, column in enumerate(columns):
            code = _code(column, labels[j], j, self.max_categories, sample_weight)
            if isinstance(code, str):
                self.dropped_[labels[j]] = code
            else:
                self._codes.append(code)
        self.encoded_ = [entry for code in self._codes for entry in code.encoded()]
        if not self.encoded_:
            # A table that says nothing: one column of zeros, so that the marginal distribution is the answer.
            self.encoded_ = [EncodedColumn("nothing", 0, labels[0] if labels else "x0", "", False)]
        keys = [(entry.source, entry.part) for entry in self.encoded_]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        self.groups_ = np.array([places[key] for key in keys])
        self.numbers_ = np.array([entry.is_number for entry in self.encoded_])
        return self

    def by_column(self, values: Floats) -> dict[str, float]:
        """``values`` of the groups, added up for each column of the table that is not left out, by name."""
        total: dict[str, float] = {}
        sources = dict(zip(self.groups_.tolist(), (entry.source_name for entry in self.encoded_), strict=True))
        for group, name in sources.items():
            total[name] = total.get(name, 0.0) + float(values[group])
        return total

    def transform(self, X: ArrayLike) -> Floats:
        """The numbers, ``(n, D)``; a category not met before is like none of its column."""
        check_is_fitted(self)
        columns, names = read_columns(X)
        check_same_columns(self, columns, names)
        n = len(columns[0]) if columns else 0
        if not self._codes:
            return np.zeros((n, 1))
        return np.concatenate([code.numbers(columns[code.place]) for code in self._codes], axis=1)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Objects:
        """The names of the numbers."""
        check_is_fitted(self)
        return np.array([entry.name for entry in self.encoded_], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def validated(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """``X`` with the checks of scikit-learn: a data frame as it is, anything else as a matrix of rows and columns."""
    if hasattr(X, "columns") and not hasattr(X, "toarray"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if len(X) == 0:
            raise ValueError(f"Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is required.")
        return X
    is_object = getattr(getattr(X, "dtype", None), "kind", "") == "O"
    finite: bool | str = False if is_object else "allow-nan"
    return validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite=finite)


def plain_matrix(X: Any) -> Floats | None:
    """``X`` as a matrix of numbers, where it is one without missing cells; otherwise ``None``."""
    columns, names = read_columns(X)
    if any(column.dtype.kind not in "fiub" for column in columns):
        return None
    labels = names or [f"x{j}" for j in range(len(columns))]
    matrix = np.stack([as_floats(column, label) for column, label in zip(columns, labels, strict=True)], axis=1)
    return None if bool(np.isnan(matrix).any()) else matrix


def read_columns(X: Any) -> tuple[list[NDArray[Any]], list[str] | None]:
    """The columns of a table as arrays, and their names where it has any."""
    if hasattr(X, "toarray"):
        raise TypeError(
            "Expected a table whose cells are all there, got a sparse matrix. Sparse data is not supported: convert it "
            "with X.toarray()."
        )
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        names = [str(name) for name in X.columns]
        twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
        if twice:
            raise ValueError(f"Expected columns of different names, got {twice} more than once. Rename them.")
        strings = all(isinstance(name, str) for name in X.columns)
        return [_as_array(X[name]) for name in X.columns], names if strings else None
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(
            f"Expected a 2D array of rows and columns, got an array of {array.ndim} dimension(s). Reshape your data "
            "either using array.reshape(-1, 1) if it has one column, or array.reshape(1, -1) if it has one row."
        )
    if np.iscomplexobj(array):
        raise ValueError("Complex data not supported. Expected real numbers; give real and imaginary parts apart.")
    return list(array.T), None


def _as_array(series: Any) -> NDArray[Any]:
    """A column of a data frame; categories and missing marks become Python objects."""
    return np.asarray(series.to_numpy() if hasattr(series, "to_numpy") else series)


def check_same_columns(encoder: TableEncoder, columns: Sequence[NDArray[Any]], names: list[str] | None) -> None:
    """Raise where a table has other columns than the one the encoder was fitted to."""
    known = getattr(encoder, "feature_names_in_", None)
    if known is not None and names is not None and list(known) != names:
        missing = [name for name in known if name not in names]
        unknown = [name for name in names if name not in set(known)]
        what = "\n".join(
            [f"Feature names unseen at fit time: {unknown}"] * bool(unknown)
            + [f"Feature names seen at fit time, yet now missing: {missing}"] * bool(missing)
        )
        raise ValueError(
            "The feature names should match those that were passed during fit.\n"
            + (what or "Feature names must be in the same order as they were in fit.")
            + "\n"
        )
    if len(columns) != encoder.n_features_in_:
        raise ValueError(
            f"X has {len(columns)} features, but TableEncoder is expecting {encoder.n_features_in_} features as input."
        )


class _Code:
    """How one column is written down."""

    def __init__(self, name: str, place: int) -> None:
        self.name, self.place = name, place

    def entry(self, name: str, part: str, is_number: bool) -> EncodedColumn:
        return EncodedColumn(name, self.place, self.name, part, is_number)

    def encoded(self) -> list[EncodedColumn]:
        raise NotImplementedError  # pragma: no cover

    def numbers(self, column: NDArray[Any]) -> Floats:
        raise NotImplementedError  # pragma: no cover


class _Number(_Code):
    """A number and, where one was missing, where."""

    def __init__(self, name: str, place: int, values: Floats, weights: Floats | None) -> None:
        super().__init__(name, place)
        missing = np.isnan(values)
        known = values[~missing]
        self.median = _median(known, None if weights is None else weights[~missing])
        self.may_be_missing = bool(missing.any())
        self.varies = bool(known.min() < known.max())
        # Two values are a choice, not a quantity.
        self.is_quantity = self.varies and len(np.unique(known[:1000])) > 2

    def encoded(self) -> list[EncodedColumn]:
        own = [self.entry(self.name, "", self.is_quantity)] * self.varies
        return own + [self.entry(f"{self.name} is missing", "missing", False)] * self.may_be_missing

    def numbers(self, column: NDArray[Any]) -> Floats:
        values = as_floats(column, self.name)
        missing = np.isnan(values)
        own = [np.where(missing, self.median, values)] * self.varies
        return np.stack(own + [missing.astype(float)] * self.may_be_missing, axis=1)


class _Date(_Code):
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
        days = as_days(column.astype("datetime64[s]"))
        missing = np.isnan(days)
        days = np.where(missing, self.median, days)
        turns = [2.0 * math.pi * days / period for period in (YEAR, WEEK)]
        circles = [f(turn) / 2.0 for turn in turns for f in (np.sin, np.cos)]
        return np.stack([days, *circles] + [missing.astype(float)] * self.may_be_missing, axis=1)


class _Text(_Code):
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


def _code(column: NDArray[Any], name: str, place: int, limit: int, weights: Floats | None) -> _Code | str:
    """How to write a column down, or why it says nothing."""
    kind = kind_of(column)
    if kind == "number":
        values = as_floats(column, name)
        if np.isnan(values).all():
            return "it has no values"
        code = _Number(name, place, values, weights)
        return code if code.varies or code.may_be_missing else "it is constant"
    if kind == "date":
        dates = column.astype("datetime64[s]")
        if np.isnat(dates).all():
            return "it has no values"
        return _Date(name, place, dates) if len(np.unique(dates)) > 1 else "it is constant"
    texts = as_texts(column)
    distinct = len(set(texts))
    if distinct < 2:
        return "it is constant"
    if distinct == len(texts) >= IDENTIFIER_ROWS:
        return "its text differs in every row, as a name does"
    return _Text(name, place, texts, limit)


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
        raise ValueError(f"Expected numbers in column {name!r}, as in training, got {column.dtype}.")
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
