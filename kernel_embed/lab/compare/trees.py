"""Reference classifiers beside kernels: boosted trees of three libraries, and tuned logistic regression."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold

from ...splits import proportional_sample
from .columns import series_type

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""C of the logistic regression, the inverse of its penalty."""
SEARCH_ROWS = 5000
"""Rows on which C is chosen, at most."""


def optional(package: str) -> Any:
    """A package of the extra ``bench``."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install 'kernel-embed[bench]'.") from error


class MostProbable(ClassifierMixin, BaseEstimator):
    """A classifier whose ``predict`` follows from ``classes_`` and ``predict_proba``."""

    classes_: NDArray[Any]

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable labels."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


class TunedLogistic(LogisticRegression):
    """scikit-learn's logistic regression, its C by the NLL of three folds on at most 5,000 rows.

    Example:
        >>> x = np.linspace(-1, 1, 60)[:, None]
        >>> TunedLogistic().fit(x, x[:, 0] > 0).predict([[0.5]])
        array([ True])
    """

    def __init__(self) -> None:
        super().__init__(max_iter=1000)

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> TunedLogistic:
        """Choose C, then fit on all rows."""
        x, labels = np.asarray(X), np.asarray(y)
        rows = proportional_sample(labels, SEARCH_ROWS)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            self.C = min(PENALTIES, key=lambda c: self._risk(c, x[rows], labels[rows]))
            super().fit(x, labels, sample_weight)
        return self

    def _risk(self, c: float, x: NDArray[Any], y: NDArray[Any]) -> float:
        losses = []
        for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(x, y):
            if len(np.unique(y[train])) < 2:
                continue
            model = LogisticRegression(C=c, max_iter=300).fit(x[train], y[train])
            seen = np.isin(y[test], model.classes_)  # a class of one row is in one part only
            p = model.predict_proba(x[test][seen])
            truth = np.searchsorted(model.classes_, y[test][seen])
            losses.append(-np.log(np.clip(p[np.arange(len(p)), truth], 1e-15, 1.0)).mean())
        return float(np.mean(losses)) if losses else c


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
