"""Forests and boosted trees of several libraries, and tables as they take them: numbers and categories."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor, RandomForestRegressor

from ...tabular import column_encoders
from .classifiers import MostProbable
from .reading import series_type
from .regressors import Array, GaussianRegressor, QuantileRegressor, floats
from .tasks import LEVELS


class Categories(TransformerMixin, BaseEstimator):
    """Numbers unchanged, with missing values, and texts as pandas' categories: for boosting that takes both.

    A column has at most 250 categories; rarer ones count as missing.
    """

    def fit(self, X: pd.DataFrame, y: object = None) -> Categories:
        """Store the types of the columns, and their categories."""
        types = {name: series_type(X[name]) for name in X.columns}
        self.types_ = {name: kind.__name__ for name, kind in types.items()}
        self.categories_ = {
            name: sorted(X[name].value_counts().index[:250], key=str)
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
        encoder = next(one for one in column_encoders.COLUMN_TYPES if one.__name__ == self.types_[cells.name])
        return pd.Series(encoder.values(cells.to_numpy(), cells.name), index=cells.index)


def optional(package: str) -> Any:
    """A package of the extra ``bench``."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install 'kernel-embed[bench]'.") from error


class Boosting(HistGradientBoostingClassifier):
    """scikit-learn's histogram gradient boosting with its defaults, categories by their type."""

    def __init__(self) -> None:
        super().__init__(categorical_features="from_dtype", random_state=0)

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Boosting:
        """Fit; a class of a single row cannot be on both sides of its split for early stopping."""
        self.early_stopping = "auto" if np.unique(np.asarray(y), return_counts=True)[1].min() > 1 else False
        super().fit(X, y, sample_weight)
        return self


def fit_catboost(name: str, X: Any, y: NDArray[Any], loss: str) -> Any:
    """Fit a CatBoost class on one thread with its defaults, and name its text columns."""
    catboost, frame = optional("catboost"), catboost_frame(X)
    text = [column for column in frame.columns if series_type(frame[column]).is_category]
    settings = {"random_seed": 0, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = getattr(catboost, name)(loss_function=loss, cat_features=text, **settings)
    try:
        return model.fit(frame, y)
    except catboost.CatBoostError as error:
        raise ValueError(f"CatBoost rejects this table ({error}). Leave CatBoost out.") from error


def catboost_frame(X: Any) -> pd.DataFrame:
    """Categories as text, with the word ``missing`` where one is missing, as CatBoost requires."""
    frame = pd.DataFrame(X).copy()
    for name in frame.columns:
        if series_type(frame[name]).is_category:
            frame[name] = frame[name].astype(object).where(frame[name].notna(), "missing").astype(str)
    return frame


class CatBoost(MostProbable):
    """CatBoost with its defaults, on one thread (extra ``bench``)."""

    def fit(self, X: Any, y: ArrayLike) -> CatBoost:
        """Fit with 1000 trees, CatBoost's own default."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        loss = "MultiClass" if len(self.classes_) > 2 else "Logloss"
        self.model_ = fit_catboost("CatBoostClassifier", X, numbers, loss)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of ``classes_``."""
        return np.asarray(self.model_.predict_proba(catboost_frame(X)))


class LightGBM(MostProbable):
    """LightGBM with its defaults, on one thread, categories by their type (extra ``bench``)."""

    def fit(self, X: Any, y: ArrayLike) -> LightGBM:
        """Fit with 100 trees, LightGBM's own default."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        self.model_ = optional("lightgbm").LGBMClassifier(random_state=0, n_jobs=1, verbosity=-1)
        self.model_.fit(self._frame(X), numbers)
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities of ``classes_``."""
        return np.asarray(self.model_.predict_proba(self._frame(X)))

    @staticmethod
    def _frame(X: Any) -> pd.DataFrame:
        """Columns by number: LightGBM rejects names with markup."""
        frame = pd.DataFrame(X)
        return frame.set_axis([f"x{j}" for j in range(frame.shape[1])], axis=1)


class QuantileForest(QuantileRegressor):
    """scikit-learn's random forest of 300 trees, with the distribution of its out-of-bag residuals around the mean."""

    def fit(self, X: Any, y: ArrayLike) -> QuantileForest:
        """Fit the forest and keep its residuals."""
        self.model_ = RandomForestRegressor(300, oob_score=True, random_state=0).fit(X, floats(y))
        self.residuals_ = np.quantile(floats(y) - self.model_.oob_prediction_, LEVELS)
        return self

    def predict(self, X: Any) -> Array:
        """The forest's own mean."""
        return np.asarray(self.model_.predict(X))

    def quantiles(self, X: Any) -> Array:
        """The mean plus quantiles of the residuals."""
        return np.asarray(self.predict(X)[:, None] + self.residuals_)


class BoostedQuantiles(QuantileRegressor):
    """Histogram boosting with the pinball loss, at 19 levels and between them by interpolation."""

    own_levels = np.linspace(0.05, 0.95, 19)

    def fit(self, X: Any, y: ArrayLike) -> BoostedQuantiles:
        """One model for each level."""
        settings = {"loss": "quantile", "random_state": 0, "categorical_features": "from_dtype"}
        self.models_ = [HistGradientBoostingRegressor(quantile=q, **settings).fit(X, y) for q in self.own_levels]
        return self

    def quantiles(self, X: Any) -> Array:
        """Sorted, and constant beyond the outermost levels."""
        own = np.sort(np.stack([model.predict(X) for model in self.models_], axis=1), axis=1)
        return np.stack([np.interp(LEVELS, self.own_levels, row) for row in own])


class QuantileForestPackage(QuantileRegressor):
    """A quantile regression forest of 300 trees (package quantile-forest, extra ``bench``)."""

    def fit(self, X: Any, y: ArrayLike) -> QuantileForestPackage:
        """Fit, with at least three rows in a leaf."""
        make = optional("quantile_forest").RandomForestQuantileRegressor
        self.model_ = make(300, min_samples_leaf=3, random_state=0).fit(floats(X), floats(y))
        return self

    def predict(self, X: Any) -> Array:
        """The forest's own mean."""
        return np.asarray(self.model_.predict(floats(X), quantiles="mean"))

    def quantiles(self, X: Any) -> Array:
        """Quantiles of the training targets in the same leaves."""
        return np.asarray(self.model_.predict(floats(X), quantiles=list(LEVELS)))


class NGBoost(GaussianRegressor):
    """NGBoost with a normal distribution and 500 trees (extra ``bench``)."""

    def fit(self, X: Any, y: ArrayLike) -> NGBoost:
        """Fit with seed 0."""
        model = optional("ngboost").NGBRegressor(n_estimators=500, verbose=False, random_state=0)
        self.model_ = model.fit(floats(X), floats(y))
        return self

    def mean_and_scale(self, X: Any) -> tuple[Array, Array]:
        """Its parameters."""
        parameters = self.model_.pred_dist(floats(X)).params
        return parameters["loc"], parameters["scale"]


class CatBoostGaussian(GaussianRegressor):
    """CatBoost with its own uncertainty: mean and variance, on one thread (extra ``bench``)."""

    def fit(self, X: Any, y: ArrayLike) -> CatBoostGaussian:
        """Fit with 1000 trees, CatBoost's own default."""
        self.model_ = fit_catboost("CatBoostRegressor", X, floats(y), "RMSEWithUncertainty")
        return self

    def mean_and_scale(self, X: Any) -> tuple[Array, Array]:
        """Mean, and the root of the variance."""
        mean, variance = np.asarray(self.model_.predict(catboost_frame(X))).T
        return mean, np.sqrt(variance)
