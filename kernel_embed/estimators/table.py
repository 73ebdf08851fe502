"""Tables as people have them, as numbers: what each column is, and how it is written down for a kernel.

=============  ======================================================================================================
column         numbers
=============  ======================================================================================================
number         itself, two values as 0 and 1; a missing one is the median, and a second column says where it was missing
boolean        0 and 1
date           days since 1970, and the place in the year and in the week on circles
text           one-hot, each 1/√2, so that two different categories are at distance 1; rare ones share a place
=============  ======================================================================================================

Columns that say nothing are left out and named: constants, columns without a value, and texts that differ in every
row, which are names and not categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..validation import check_count
from .column_encoders import (
    MAX_CATEGORIES,
    ColumnEncoder,
    EncodedColumn,
    Floats,
    Objects,
    as_floats,
    encoder_of,
    numbers_at_once,
)


class TableEncoder(TransformerMixin, BaseEstimator):
    """A table of numbers, texts, booleans and dates with missing cells, as a matrix of numbers.

    Takes NumPy arrays and data frames (pandas, polars, and others that have ``columns`` and ``to_numpy``).

    Args:
        max_categories: categories of a text column that have a place of their own.

    Attributes:
        feature_names_in_: names of the columns, for data frames.
        encoded_: for each number its name, the column it comes from, and whether it is a quantity.
        groups_: for each number the group that shares a lengthscale: a category, a number, a mark of missing cells.
        numbers_: for each number whether it is a quantity.
        dropped_: names of the columns that were left out, with the reason.

    Example:
        >>> table = np.array([["a", 1.0], ["b", None], ["a", 3.0]], dtype=object)
        >>> encoder = TableEncoder().fit(table)
        >>> list(encoder.get_feature_names_out())
        ['x0=b', 'x1', 'x1 is missing']
        >>> encoder.transform(table)
        array([[0. , 0. , 0. ],
               [1. , 0.5, 1. ],
               [0. , 1. , 0. ]])
    """

    def __init__(self, max_categories: int = MAX_CATEGORIES) -> None:
        self.max_categories = max_categories

    def fit(self, X: ArrayLike, y: object = None, sample_weight: Floats | None = None) -> TableEncoder:
        """Look at the columns.

        Raises:
            TypeError: if ``max_categories`` is not a whole number.
            ValueError: if it is below 1.
        """
        check_count("max_categories", self.max_categories)
        columns, names = read_columns(X)
        if isinstance(names, list):
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = len(columns)
        labels = names if isinstance(names, list) else [f"x{j}" for j in range(len(columns))]
        self.dropped_: dict[str, str] = {}
        self._codes: list[ColumnEncoder] = []
        for j, column in enumerate(columns):
            code = encoder_of(column, labels[j], j, self.max_categories, sample_weight)
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
        """The numbers, ``(n, D)``; a category not met before is like none of its column.

        Raises:
            sklearn.exceptions.NotFittedError: if ``fit`` was not called.
            ValueError: if the columns are not those of ``fit``.
        """
        check_is_fitted(self)
        columns, names = read_columns(X)
        check_same_columns(self, columns, names)
        n = len(columns[0]) if columns else 0
        if not self._codes:
            return np.zeros((n, 1))
        at_once = numbers_at_once(self._codes, columns)
        if at_once is not None:
            return at_once
        return np.concatenate([code.numbers(columns[code.place]) for code in self._codes], axis=1)

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Objects:
        """The names of the numbers.

        Raises:
            sklearn.exceptions.NotFittedError: if ``fit`` was not called.
        """
        check_is_fitted(self)
        return np.array([entry.name for entry in self.encoded_], dtype=object)

    def __sklearn_tags__(self) -> Any:
        return takes_tables(super().__sklearn_tags__())


def takes_tables(tags: Any) -> Any:
    """scikit-learn's ``tags`` of what takes texts, categories and missing cells."""
    tags.input_tags.allow_nan = True
    tags.input_tags.categorical = True
    tags.input_tags.string = True
    return tags


def validated(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """``X`` with the checks of scikit-learn: a data frame as it is, anything else as a matrix of rows and columns."""
    if hasattr(X, "columns") and not hasattr(X, "toarray"):
        check_names(X)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if len(X) == 0:
            raise ValueError(
                f"Expected rows, got none. Found array with 0 sample(s) (shape={X.shape}) while a minimum of 1 is "
                "required."
            )
        if X.shape[1] == 0:
            raise ValueError(
                f"Expected columns, got none. Found array with 0 feature(s) (shape={X.shape}) while a minimum of 1 is "
                "required."
            )
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
        names = check_names(X)
        strings = all(isinstance(name, str) for name in X.columns)
        return [_as_array(X[name]) for name in X.columns], names if strings else None
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(
            f"Expected a 2D array of rows and columns, got an array of {array.ndim} dimension(s). Reshape your data "
            "either using array.reshape(-1, 1) if it has one column, or array.reshape(1, -1) if it has one row."
        )
    if np.iscomplexobj(array):
        raise ValueError(
            "Expected real numbers, got complex ones: Complex data not supported. Give real and imaginary parts apart."
        )
    return list(array.T), None


def check_names(X: Any) -> list[str]:
    """The names of the columns, which must differ."""
    names = [str(name) for name in X.columns]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ValueError(f"Expected columns of different names, got {twice} more than once. Rename them.")
    return names


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
            "Expected the columns of fit, got others. "
            "The feature names should match those that were passed during fit.\n"
            + (what or "Feature names must be in the same order as they were in fit.")
            + "\n"
        )
    if len(columns) != encoder.n_features_in_:
        raise ValueError(
            f"X has {len(columns)} features, but TableEncoder is expecting {encoder.n_features_in_} features as input."
        )
