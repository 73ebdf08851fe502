"""Reference classifiers: boosted trees of three libraries, logistic regression, SVC, and two Gaussian processes."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold
from sklearn.svm import SVC
from torch import Tensor

from ...splits import proportional_sample
from .reading import series_type

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


GRID = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0], "gamma": [0.01, 0.1, 1.0, 10.0]}
"""Of the support vector classifier, for features in [0, 1]."""


class GridSearchedSVC(ClassifierMixin, BaseEstimator):
    """scikit-learn's SVC, C and γ by grid search over folds, with probabilities by Platt scaling on further folds.

    Args:
        pairwise: scale each pair of classes and couple them, as libsvm does inside ``SVC(probability=True)``; otherwise
            scale each class against the rest (``CalibratedClassifierCV``), as scikit-learn recommends.
        num_folds: of the search.
        search_rows: rows on which C and γ are chosen, at most; the model is fitted and calibrated on all rows.
    """

    def __init__(self, pairwise: bool = False, num_folds: int = 5, search_rows: int | None = None) -> None:
        self.pairwise, self.num_folds, self.search_rows = pairwise, num_folds, search_rows

    def fit(self, X: ArrayLike, y: ArrayLike) -> GridSearchedSVC:
        """Search, then fit the best setting with probabilities."""
        x, labels = np.asarray(X), np.asarray(y)
        _, counts = np.unique(labels, return_counts=True)
        rows = proportional_sample(labels, self.search_rows or len(labels))
        # stratified folds need as many rows of every class as there are folds
        k = 5 if len(labels) <= 5000 else 3
        folds = k if counts.min() >= k else list(KFold(k, shuffle=True, random_state=0).split(labels))
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="The `probability` parameter", category=FutureWarning)
            warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
            search = GridSearchCV(SVC(cache_size=500), GRID, cv=self.num_folds, refit=False)
            best = search.fit(x[rows], labels[rows]).best_params_
            if self.pairwise:
                self.model_ = self.svc_ = SVC(**best, probability=True, random_state=0).fit(x, labels)
            else:
                calibrated = CalibratedClassifierCV(SVC(**best, cache_size=500), ensemble=False, cv=folds)
                self.model_ = calibrated.fit(x, labels)
                self.svc_ = self.model_.calibrated_classifiers_[0].estimator  # the one that saw all rows
        self.classes_ = self.model_.classes_
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Platt-scaled probabilities."""
        return np.asarray(self.model_.predict_proba(X))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The labels that the SVC itself votes for."""
        return np.asarray(self.svc_.predict(X))


class LaplaceGPC(GaussianProcessClassifier):
    """scikit-learn's GPC, one class against the rest, with a scaled ARD kernel.

    Args:
        smoothness: of a Matérn kernel; ``None`` for the squared exponential.
    """

    def __init__(self, smoothness: float | None = None) -> None:
        super().__init__(random_state=0)
        self.smoothness = smoothness

    def fit(self, X: ArrayLike, y: ArrayLike) -> LaplaceGPC:
        """Learn one kernel for each class by the Laplace evidence."""
        n, d = np.shape(X)
        _check_memory(2 * 8 * n * n * (d + 1), n)
        base = RBF(np.ones(d)) if self.smoothness is None else Matern(np.ones(d), nu=self.smoothness)
        self.kernel = ConstantKernel() * base
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            super().fit(X, y)
        return self


def _check_memory(needed: int, n: int) -> None:
    """The derivative of an ARD kernel is an (n, n, d) array there; without memory for it the process is killed."""
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3
        if needed > available:
            raise MemoryError(f"{n} rows need more than {available / 2**30:.0f} GiB. Give it fewer rows.")


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """Draws with seed 0, without changing the global generator, and Cholesky factors at every size."""
    settings = gpytorch.settings
    with torch.random.fork_rng(devices=[]), settings.max_cholesky_size(10**9):
        torch.manual_seed(0)
        with settings.fast_computations(False, False, False):
            yield


class _DirichletModel(gpytorch.models.ExactGP):
    def __init__(self, x: Tensor, likelihood: DirichletClassificationLikelihood, smoothness: float | None) -> None:
        super().__init__(x, likelihood.transformed_targets, likelihood)
        shape = torch.Size([likelihood.num_classes])
        make = RBFKernel if smoothness is None else partial(MaternKernel, smoothness)
        base = make(batch_shape=shape, ard_num_dims=x.shape[-1])
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
        self.covar_module = ScaleKernel(base, batch_shape=shape)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class DirichletClassifier(MostProbable):
    """Gaussian process regression on transformed labels, as in GPyTorch's example, with an ARD kernel for each class.

    100 steps of Adam; Cholesky factors at every size, where GPyTorch would turn to conjugate gradients above n = 800.

    Args:
        smoothness: of a Matérn kernel; ``None`` for the squared exponential.
    """

    def __init__(self, smoothness: float | None = None) -> None:
        self.smoothness = smoothness

    def fit(self, X: ArrayLike, y: ArrayLike) -> DirichletClassifier:
        """Maximize the marginal likelihood of all classes together by Adam."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        x, labels = torch.tensor(np.asarray(X), dtype=torch.float64), torch.as_tensor(numbers)
        likelihood = DirichletClassificationLikelihood(labels, learn_additional_noise=True, dtype=x.dtype)
        self.model_ = _DirichletModel(x, likelihood, self.smoothness).to(x)
        self.model_.train()
        likelihood.train()
        adam = torch.optim.Adam(self.model_.parameters(), lr=0.1)
        loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, self.model_)
        with _exact():
            for _ in range(100):
                adam.zero_grad()
                value = -loss(self.model_(x), likelihood.transformed_targets).sum()
                value.backward()
                adam.step()
        self.num_evaluations_ = 100
        return self

    def predict_proba(self, X: ArrayLike, num_draws: int = 256) -> NDArray[np.float64]:
        """The mean over draws of the softmax of the latent functions."""
        self.model_.eval()
        # without debugging: predicting its own rows would warn
        with torch.no_grad(), gpytorch.settings.debug(False), _exact():
            latent = self.model_(torch.tensor(np.asarray(X), dtype=torch.float64))
            mean, deviation = latent.mean, latent.variance.clamp_min(0.0).sqrt()
            draws = mean + deviation * torch.randn(num_draws, *mean.shape, dtype=mean.dtype)
            return np.asarray(draws.softmax(dim=1).mean(dim=0).mT.numpy())
