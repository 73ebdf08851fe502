"""Preprocessing for learners that need a matrix of numbers, or numbers and categories.

Each is a scikit-learn transformer, fitted to the training rows alone, and derived from the column types of
:mod:`kernel_embed.tabular`. Missing numbers become the median, with an indicator; dates become days; a text becomes one
column for each of its most frequent values.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FunctionTransformer, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from ...tabular import ColumnEncoder, DateEncoder, NumberEncoder, column_encoders
from .columns import read_dates, series_type

MAX_CATEGORIES = 30
"""Columns made of one text column; rarer values share the last."""


def unit_range() -> ColumnTransformer:
    """Numbers in [0, 1] and one-hot categories: for kernels whose lengthscales start at 1."""
    return _all_numbers(MinMaxScaler())


def standardized() -> ColumnTransformer:
    """Numbers of mean 0 and standard deviation 1 and one-hot categories: for linear models and the SVC."""
    return _all_numbers(StandardScaler())


def ordinal() -> ColumnTransformer:
    """Numbers unchanged and categories as numbers in alphabetical order: for a forest."""
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1, dtype=np.float64
    )
    return _columns(SimpleImputer(add_indicator=True), codes)


class Categories(TransformerMixin, BaseEstimator):
    """Numbers unchanged, with missing values, and texts as pandas' categories: for boosting that takes both.

    Args:
        max_categories: of a column; rarer values count as missing.

    Example:
        >>> Categories().fit_transform(pd.DataFrame({"a": ["u", "v", None]})).a.dtype.name
        'category'
    """

    def __init__(self, max_categories: int = 250) -> None:
        self.max_categories = max_categories

    def fit(self, X: pd.DataFrame, y: object = None) -> Categories:
        """Store the types of the columns, and their categories."""
        self.types_ = {name: series_type(X[name]) for name in X.columns}
        self.categories_ = {
            name: sorted(X[name].value_counts().index[: self.max_categories], key=str)
            for name, kind in self.types_.items()
            if kind.is_category
        }
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """The same columns; an unknown category is missing."""
        return pd.DataFrame({name: self._column(X[name]) for name in X.columns}, index=X.index)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """The names of the columns, which are those of the table."""
        return self.feature_names_in_

    def _column(self, cells: pd.Series) -> pd.Series:
        if cells.name in self.categories_:
            return pd.Series(pd.Categorical(cells, self.categories_[cells.name]), index=cells.index)
        return quantities(cells.to_frame(), self.types_[cells.name])[cells.name]


def quantities(X: pd.DataFrame, kind: type[ColumnEncoder]) -> pd.DataFrame:
    """Columns of one type as floats, NaN where a cell is missing."""
    if kind is NumberEncoder:
        return X
    values = {name: kind.values(_dates(X[name]) if kind is DateEncoder else X[name].to_numpy(), name) for name in X}
    return pd.DataFrame(values, index=X.index)


def _dates(column: pd.Series) -> NDArray[Any]:
    """Dates, or their text as a file has it."""
    if column.dtype.kind != "M":
        text = column.dropna().astype(str).str.strip()
        dates = read_dates(text)
        if dates.isna().any():
            cell = text[dates.isna()].iloc[0]
            raise ValueError(f"Column {column.name!r} held dates in training, but now has {cell!r}. Give dates.")
        column = dates.reindex(column.index)
    values: NDArray[Any] = column.to_numpy()
    return values


def _all_numbers(scaler: TransformerMixin) -> ColumnTransformer:
    text = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MAX_CATEGORIES, sparse_output=False)
    return _columns(make_pipeline(SimpleImputer(strategy="median", add_indicator=True), scaler), text)


def _columns(numbers: BaseEstimator, categories: BaseEstimator) -> ColumnTransformer:
    def step(kind: type[ColumnEncoder]) -> tuple[str, BaseEstimator, functools.partial[list[str]]]:
        own = functools.partial(_of_type, kind=kind)
        if kind.is_category:
            return kind.__name__, clone(categories), own
        values = FunctionTransformer(quantities, kw_args={"kind": kind}, feature_names_out="one-to-one")
        return kind.__name__, make_pipeline(values, clone(numbers)), own

    order: list[type[ColumnEncoder]] = [
        NumberEncoder,
        *(kind for kind in column_encoders.COLUMN_TYPES if kind is not NumberEncoder),
    ]
    return ColumnTransformer([step(kind) for kind in order], verbose_feature_names_out=False, sparse_threshold=0.0)


def _of_type(X: pd.DataFrame, kind: type[ColumnEncoder]) -> list[str]:
    return [name for name in X.columns if series_type(X[name]) is kind]
