"""Preprocessing for learners that need a matrix of numbers, or numbers and categories.

Each is a scikit-learn transformer, fitted to the training rows alone, and derived from the column types of
:mod:`kernel_embed.tabular`. Missing numbers become the median, with an indicator; dates become days; a text becomes one
column for each of its most frequent values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from ...tabular import ColumnEncoder, DateEncoder, NumberEncoder, column_encoders
from .reading import read_dates, series_type

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
        types = {name: series_type(X[name]) for name in X.columns}
        self.types_ = {name: kind.__name__ for name, kind in types.items()}
        self.categories_ = {
            name: sorted(X[name].value_counts().index[: self.max_categories], key=str)
            for name, kind in types.items()
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


class ColumnSelector:
    """The names of the columns of one type, as scikit-learn's ``ColumnTransformer`` takes them.

    Args:
        kind: the name of the class that encodes the columns.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __call__(self, X: pd.DataFrame) -> list[str]:
        return [name for name in X.columns if series_type(X[name]).__name__ == self.kind]


class Quantities(TransformerMixin, BaseEstimator):
    """Columns of one type as floats, NaN where a cell is missing.

    Args:
        kind: the name of the class that encodes the columns.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def fit(self, X: pd.DataFrame, y: object = None) -> Quantities:
        """Nothing to fit."""
        self.fitted_ = True
        return self

    def transform(self, X: pd.DataFrame) -> pd.DataFrame:
        """The same columns."""
        return quantities(X, self.kind)

    def get_feature_names_out(self, input_features: Any = None) -> Any:
        """The names of the columns."""
        return input_features


def quantities(X: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Columns of the type with this name as floats."""
    if kind == NumberEncoder.__name__:
        return X
    encoder = next(one for one in column_encoders.COLUMN_TYPES if one.__name__ == kind)
    cells = {name: _dates(X[name]) if encoder is DateEncoder else X[name].to_numpy() for name in X.columns}
    return pd.DataFrame({name: encoder.values(cells[name], name) for name in cells}, index=X.index)


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
    order: list[type[ColumnEncoder]] = [NumberEncoder, *column_encoders.COLUMN_TYPES]
    steps = []
    for kind in dict.fromkeys(order):
        name = kind.__name__
        values = clone(categories) if kind.is_category else make_pipeline(Quantities(name), clone(numbers))
        steps.append((name, values, ColumnSelector(name)))
    return ColumnTransformer(steps, verbose_feature_names_out=False, sparse_threshold=0.0)
