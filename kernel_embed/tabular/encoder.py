"""Tables as matrices of numbers: each column is encoded by its type (:mod:`kernel_embed.tabular.column_types`)."""

from __future__ import annotations

import collections
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ..validation import check_count
from .column_encoders import MAX_CATEGORIES, ColumnEncoder, EncodedColumn, Floats, Objects, column_type, is_missing
from .column_types import NumberEncoder, encode_numbers


class TakesTables(BaseEstimator):
    """Base of estimators that take texts, categories and missing cells."""

    encoder_: TableEncoder | None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.categorical = tags.input_tags.string = True
        return tags

    def _points(self, X: ArrayLike) -> Tensor:
        """New rows, encoded: a copy, because the caller may change the array later, and it may be read-only."""
        check_is_fitted(self)
        x = encode_table(self.encoder_, validate_table(self, X, reset=False))
        return torch.tensor(x, device=getattr(self, "device", None) or "cpu")


class TableEncoder(TransformerMixin, TakesTables):
    """Encodes a table of numbers, texts, booleans and dates with missing cells as a matrix of numbers.

    Takes NumPy arrays and data frames (pandas, polars, pyarrow, and others that have ``columns`` and ``to_numpy``). It
    drops columns without information: empty or constant ones, texts that differ in every row, and, if there are other
    columns, row counters, from which a model would learn the order of the file.

    Args:
        max_categories: the largest number of categories of a text column that are encoded separately.

    Attributes:
        feature_names_in_: names of the columns, for data frames.
        encoded_: for each encoded column its ``name``, ``source_name`` and whether it ``is_number``, a quantity.
        groups_: for each encoded column the group that shares a lengthscale: a category, a number, an indicator.
        numbers_: for each encoded column whether it is a quantity.
        dropped_: names of the dropped columns, with the reason.

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
        """Fit an encoder to each column.

        Raises:
            TypeError: if ``max_categories`` is not a whole number.
            ValueError: if it is below 1.
        """
        check_count("max_categories", self.max_categories)
        columns, names = read_columns(X)
        if names is not None:
            self.feature_names_in_ = np.array(names, dtype=object)
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.n_features_in_ = len(columns)
        labels = names if names is not None else [f"x{j}" for j in range(len(columns))]
        self.dropped_: dict[str, str] = {}
        self._encoders: list[ColumnEncoder] = []
        for j, column in enumerate(columns):
            encoder = column_type(column)(labels[j], j, self.max_categories)
            reason = encoder.fit(column, sample_weight)
            if reason is None:
                self._encoders.append(encoder)
            else:
                self.dropped_[labels[j]] = reason
        counters = [encoder for encoder in self._encoders if getattr(encoder, "is_row_number", False)]
        if len(counters) < len(self._encoders):  # alone, a counter may be time
            self._encoders = [encoder for encoder in self._encoders if encoder not in counters]
            self.dropped_ |= {encoder.name: "row numbers" for encoder in counters}
        self.encoded_ = [output for encoder in self._encoders for output in encoder.outputs()]
        if not self.encoded_:
            # Without information: one column of zeros, so that the marginal distribution is predicted.
            self.encoded_ = [EncodedColumn("nothing", 0, labels[0] if labels else "x0", "", False)]
        keys = [(output.source, output.part) for output in self.encoded_]
        places = {key: place for place, key in enumerate(dict.fromkeys(keys))}
        self.groups_ = np.array([places[key] for key in keys])
        self.numbers_ = np.array([output.is_number for output in self.encoded_])
        return self

    def by_column(self, values: Floats) -> dict[str, float]:
        """``values`` of the groups, summed for each table column that is not dropped, by name."""
        total: dict[str, float] = {}
        sources = dict(zip(self.groups_.tolist(), (output.source_name for output in self.encoded_), strict=True))
        for group, name in sources.items():
            total[name] = total.get(name, 0.0) + float(values[group])
        return total

    def transform(self, X: ArrayLike) -> Floats:
        """The encoded table, ``(n, D)``.

        Raises:
            sklearn.exceptions.NotFittedError: if ``fit`` was not called.
            ValueError: if the columns are not those of ``fit``.
        """
        check_is_fitted(self)
        columns, names = read_columns(X)
        self._check_columns(len(columns), names)
        if not self._encoders:
            return np.zeros((len(columns[0]) if columns else 0, 1))
        numbers = encode_numbers(self._encoders, columns)
        if numbers is None:
            numbers = np.concatenate([one.transform(columns[one.index]) for one in self._encoders], axis=1)
        return numbers

    def get_feature_names_out(self, input_features: ArrayLike | None = None) -> Objects:
        """The names of the encoded columns.

        Raises:
            sklearn.exceptions.NotFittedError: if ``fit`` was not called.
        """
        check_is_fitted(self)
        return np.array([output.name for output in self.encoded_], dtype=object)

    def _check_columns(self, num_columns: int, names: list[str] | None) -> None:
        fitted: list[str] | None = list(self.feature_names_in_) if hasattr(self, "feature_names_in_") else None
        if fitted is not None and names is not None and fitted != names:
            # In scikit-learn's words, which its estimator checks look for.
            missing, unknown = sorted(set(fitted) - set(names)), sorted(set(names) - set(fitted))
            details = [f"Feature names unseen at fit time: {unknown}"] * bool(unknown)
            details += [f"Feature names seen at fit time, yet now missing: {missing}"] * bool(missing)
            details = details or ["Feature names must be in the same order as they were in fit."]
            lines = ["The feature names should match those that were passed during fit.", *details, ""]
            raise ValueError("\n".join(lines))
        if num_columns != self.n_features_in_:
            raise ValueError(
                f"X has {num_columns} features, but TableEncoder is expecting {self.n_features_in_} features as input."
            )


def validate_table(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """``X`` with scikit-learn's checks: a data frame unchanged, anything else as a matrix."""
    X = _frame(X)
    if hasattr(X, "columns") and not hasattr(X, "toarray"):
        _names(X)
        validate_data(estimator, X, reset=reset, skip_check_array=True)
        if 0 in (len(X), X.shape[1]):
            what = "sample(s)" if len(X) == 0 else "feature(s)"
            raise ValueError(f"Found array with 0 {what} (shape={X.shape}) while a minimum of 1 is required.")
        return X
    is_object = getattr(getattr(X, "dtype", None), "kind", "") == "O"
    finite: bool | str = False if is_object else "allow-nan"
    return validate_data(estimator, X, reset=reset, dtype=None, ensure_all_finite=finite)


def on_host(values: Any) -> Any:
    """A tensor on the CPU, where NumPy and scikit-learn can read it; anything else unchanged."""
    return values.cpu() if isinstance(values, Tensor) and values.device.type not in ("cpu", "meta") else values


def plain_matrix(X: Any) -> Floats | None:
    """``X`` as a matrix of numbers if it is one without missing cells, otherwise ``None``."""
    columns, names = read_columns(X)
    if any(column.dtype.kind not in "fiub" for column in columns):
        return None
    labels = names or [f"x{j}" for j in range(len(columns))]
    values = [NumberEncoder.values(column, label) for column, label in zip(columns, labels, strict=True)]
    matrix = np.stack(values, axis=1)
    return None if bool(np.isnan(matrix).any()) else matrix


def encode_table(encoder: TableEncoder | None, X: Any) -> Floats:
    """``X`` encoded by ``encoder``; without one, its numbers unchanged."""
    matrix = plain_matrix(X) if encoder is None else encoder.transform(X)
    if matrix is None:
        raise ValueError("X must be a matrix of numbers without missing values, as in training. Impute them first.")
    return matrix


def read_columns(X: Any) -> tuple[list[NDArray[Any]], list[str] | None]:
    """The columns of a table as arrays, and their names if all are strings."""
    X = _frame(X)
    if hasattr(X, "toarray"):
        raise TypeError("Sparse data is not supported. Convert it with X.toarray().")
    if hasattr(X, "columns") and hasattr(X, "__getitem__"):
        names = _names(X)
        has_names = all(isinstance(name, str) for name in X.columns)
        columns = []
        for name in X.columns:
            series = X[name]
            column = np.asarray(series.to_numpy() if hasattr(series, "to_numpy") else series)
            if column.ndim != 1:
                raise ValueError(f"Column {name!r} has several values in a cell (an array). Split or drop the column.")
            columns.append(column)
        return columns, names if has_names else None
    array = np.asarray(X)
    if array.ndim != 2:
        raise ValueError(f"Expected 2D array, got {array.ndim}D array instead. Reshape your data to rows and columns.")
    if np.iscomplexobj(array):
        raise ValueError("Complex data not supported. Give real and imaginary parts as separate columns.")
    return list(array.T), None


def _names(X: Any) -> list[str]:
    """The names of the columns, which must differ."""
    names = [str(name) for name in X.columns]
    if repeated := sorted(name for name, count in collections.Counter(names).items() if count > 1):
        raise ValueError(f"Several columns have the same name: {repeated}. Rename them.")
    return names


def _frame(X: Any) -> Any:
    """A table of pyarrow as one of pandas, and a tensor on the CPU; anything else unchanged."""
    X = on_host(X)
    return X.to_pandas() if hasattr(X, "column_names") and hasattr(X, "to_pandas") else X


def label_array(y: Any, required: bool = False) -> Any:
    """``y`` as an array that keeps the kind of its labels: nullable booleans and integers would become floats.

    With ``required``, a row without a label is an error.
    """
    y = on_host(y)
    if hasattr(y, "to_pylist"):  # of pyarrow
        y = np.array(y.to_pylist(), dtype=object)
    elif hasattr(y, "to_numpy") and not isinstance(getattr(y, "dtype", np.dtype(object)), np.dtype):
        y = np.asarray(y, dtype=object)
    elif isinstance(y, list | tuple) and None in y:
        y = np.array(y, dtype=object)
    if getattr(getattr(y, "dtype", None), "kind", "") not in ("f", "O") or y.ndim != 1:
        return y
    missing = np.array([is_missing(cell) for cell in y], dtype=bool)
    if required and bool(missing.any()):
        first = int(missing.argmax())
        raise ValueError(
            f"{int(missing.sum())} of {len(y)} rows have no label, the first is row {first}: Input y contains NaN. "
            "Leave those rows out."
        )
    cells = np.asarray(y)
    is_one_type = cells.dtype.kind == "O" and not missing.any() and len(set(map(type, cells))) == 1
    return np.array(cells.tolist()) if is_one_type else cells
