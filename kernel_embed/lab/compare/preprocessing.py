"""The forms in which learners take a table: all numbers, or numbers and categories, as suits each.

Each is a scikit-learn transformer, learned on the training rows alone. Missing numbers become the median, with a column
that says so; text becomes one column for each of its most frequent values; dates become days.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.pipeline import FunctionTransformer, Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from .columns import is_text, read_dates

MOST_CATEGORIES = 30
"""Columns made of one column of text; rarer values share the last."""
DAY = np.timedelta64(1, "D")


def unit_range() -> ColumnTransformer:
    """Numbers in [0, 1] and one column for each text: for kernels whose lengthscales start at 1."""
    return _all_numbers(MinMaxScaler())


def standardized() -> ColumnTransformer:
    """Numbers of mean 0 and deviation 1, and one column for each text: for linear models and the SVC."""
    return _all_numbers(StandardScaler())


def ordinal() -> ColumnTransformer:
    """Numbers as they are and text as numbers in the order of the alphabet: for a forest."""
    codes = OrdinalEncoder(
        handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1, dtype=np.float64
    )
    return _columns(SimpleImputer(add_indicator=True), codes)


class Categories(TransformerMixin, BaseEstimator):
    """Numbers as they are, with their gaps, and text as pandas' categories: for boosting that knows both.

    Args:
        max_categories: of a column; rarer values count as missing.

    Example:
        >>> Categories().fit_transform(pd.DataFrame({"a": ["u", "v", None]})).a.dtype.name
        'category'
    """

    def __init__(self, max_categories: int = 250) -> None:
        self.max_categories = max_categories

    def fit(self, X: pd.DataFrame, y: object = None) -> Categories:
        """Remember the categories of every column of text."""
        self.categories_ = {
            name: sorted(X[name].value_counts().index[: self.max_categories], key=str)
            for name in X.columns
            if is_text(X[name].dtype)
        }
        self.dates_ = [name for name in X.columns if X[name].dtype.kind == "M"]
        self.feature_names_in_ = np.asarray(X.columns, dtype=object)
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """The same columns; a category that was not seen is missing."""
        return pd.DataFrame({name: self._column(X[name]) for name in X.columns}, index=X.index)

    def get_feature_names_out(self, input_features: object = None) -> NDArray[Any]:
        """The names of the columns, which stay."""
        return self.feature_names_in_

    def _column(self, values: pd.Series) -> pd.Series:
        if values.name in self.categories_:
            return pd.Series(pd.Categorical(values, self.categories_[values.name]), index=values.index)
        return days(values.to_frame())[values.name] if values.name in self.dates_ else values


def days(X: pd.DataFrame) -> pd.DataFrame:
    """Dates, or their text as a file has it, as days since 1970; NaN where one is missing."""
    return X.apply(lambda column: (_dates(column) - pd.Timestamp(0)) / DAY).astype(np.float64)


def _dates(column: pd.Series) -> pd.Series:
    if column.dtype.kind == "M":
        return column
    known = column.dropna().astype(str).str.strip()
    dates = read_dates(known)
    if dates.isna().any():
        first = known[dates.isna()].iloc[0]
        raise ValueError(f"Expected dates in column {column.name!r}, got {first!r}. Give dates, or their text.")
    return dates.reindex(column.index)


def _all_numbers(scaler: TransformerMixin) -> ColumnTransformer:
    text = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False)
    return _columns(make_pipeline(SimpleImputer(strategy="median", add_indicator=True), scaler), text)


def _columns(numbers: BaseEstimator, text: BaseEstimator) -> ColumnTransformer:
    dates = Pipeline([("days", FunctionTransformer(days, feature_names_out="one-to-one")), ("numbers", clone(numbers))])
    return ColumnTransformer(
        [
            ("numbers", numbers, make_column_selector(dtype_include=["number", "bool"])),
            ("dates", dates, make_column_selector(dtype_include="datetime")),
            ("text", text, make_column_selector(dtype_exclude=["number", "bool", "datetime"])),
        ],
        verbose_feature_names_out=False,
        sparse_threshold=0.0,
    )
