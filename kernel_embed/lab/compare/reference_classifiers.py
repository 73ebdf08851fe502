"""Classifiers of other libraries in :data:`CLASSIFIERS`; packages of the extra ``bench`` are imported when used."""

from __future__ import annotations

import contextlib
import importlib
import os
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import pandas as pd
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import DirichletClassificationLikelihood
from numpy.typing import ArrayLike, NDArray
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
from .embedding_classifiers import Array, MostProbable
from .reading import series_type
from .tasks import log_losses


class ReferenceClassifier(MostProbable):
    """A classifier of :data:`CLASSIFIERS` by name; ``smoothness`` is that of a Matérn kernel, if it has one."""

    def __init__(self, name: str, smoothness: float | None = None) -> None:
        self.name, self.smoothness = name, smoothness

    def fit(self, X: Any, y: ArrayLike) -> ReferenceClassifier:
        """Fit the library's model to the numbers of the classes."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        options = () if self.smoothness is None else (self.smoothness,)
        self.model_ = CLASSIFIERS[self.name](X, numbers, *options)
        self.num_evaluations_ = getattr(self.model_, "num_evaluations", None)
        return self

    def predict_proba(self, X: Any) -> Array:
        """Probabilities of ``classes_``."""
        if self.name == "dirichlet":
            return _predict_dirichlet(self.model_, X)
        model = self.model_[1] if self.name.startswith("svc") else self.model_
        prepare: dict[str, Any] = {"logistic": np.asarray, "catboost": catboost_frame, "lightgbm": _numbered}
        return np.asarray(model.predict_proba(prepare[self.name](X) if self.name in prepare else X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable labels; those of the SVC itself, which may be others."""
        return self.classes_[self.model_[0].predict(X)] if self.name.startswith("svc") else super().predict(X)


GRID = {"C": [0.1, 1.0, 10.0, 100.0, 1000.0], "gamma": [0.01, 0.1, 1.0, 10.0]}
"""The grid of the support vector classifier, for features in [0, 1]."""


def _fit_svc(
    X: ArrayLike, y: NDArray[Any], *, pairwise: bool = False, num_folds: int = 3, search_rows: int | None = 2000
) -> tuple[SVC, Any]:
    """C and γ by grid search over folds of at most ``search_rows`` rows, probabilities by Platt scaling on all rows.

    ``pairwise`` scales each pair of classes and couples them, as libsvm does inside ``SVC(probability=True)``;
    otherwise each class is scaled against the rest. Returns the classifier, which predicts labels, and the model.
    """
    x, rows = np.asarray(X), proportional_sample(y, search_rows or len(y))
    # stratified folds need as many rows of every class as there are folds
    k = 5 if len(y) <= 5000 else 3
    stratified = np.unique(y, return_counts=True)[1].min() >= k
    folds = k if stratified else list(KFold(k, shuffle=True, random_state=0).split(y))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The `probability` parameter", category=FutureWarning)
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        search = GridSearchCV(SVC(cache_size=500), GRID, cv=num_folds, refit=False)
        best = search.fit(x[rows], y[rows]).best_params_
        if pairwise:
            svc = SVC(**best, probability=True, random_state=0).fit(x, y)
            return svc, svc
        model = CalibratedClassifierCV(SVC(**best, cache_size=500), ensemble=False, cv=folds).fit(x, y)
    return model.calibrated_classifiers_[0].estimator, model  # the one that saw all rows


PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
"""C of the logistic regression, the inverse of its penalty; the one with the least NLL on three folds is used."""


def _fit_logistic(X: ArrayLike, y: NDArray[Any]) -> LogisticRegression:
    """C is chosen on at most 5,000 rows."""
    x, rows = np.asarray(X), proportional_sample(y, 5000)

    def risk(c: float) -> float:
        losses, (x_part, y_part) = [], (x[rows], y[rows])
        for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(x_part, y_part):
            if len(np.unique(y_part[train])) > 1:
                model = LogisticRegression(C=c, max_iter=300).fit(x_part[train], y_part[train])
                test = test[np.isin(y_part[test], model.classes_)]  # a class of one row is in one part only
                truth = np.searchsorted(model.classes_, y_part[test])
                losses.append(log_losses(model.predict_proba(x_part[test]), truth).mean())
        return float(np.mean(losses)) if losses else c

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return LogisticRegression(C=min(PENALTIES, key=risk), max_iter=1000).fit(x, y)


def _fit_laplace(X: ArrayLike, y: NDArray[Any], smoothness: float | None = None) -> GaussianProcessClassifier:
    """One class against the rest, each with a scaled ARD kernel by the Laplace evidence."""
    n, d = np.shape(X)
    # The derivative of an ARD kernel is an (n, n, d) array there; without memory for it the process is killed.
    if "SC_PHYS_PAGES" in getattr(os, "sysconf_names", {}):
        available = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 3
        if 2 * 8 * n * n * (d + 1) > available:
            raise MemoryError(f"{n} rows need more than {available / 2**30:.0f} GiB. Give it fewer rows.")
    base = RBF(np.ones(d)) if smoothness is None else Matern(np.ones(d), nu=smoothness)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianProcessClassifier(ConstantKernel() * base, random_state=0).fit(X, y)


@contextlib.contextmanager
def _exact() -> Iterator[None]:
    """Draws with seed 0, without changing the global generator, and Cholesky factors at every size."""
    settings = gpytorch.settings
    with torch.random.fork_rng(devices=[]), settings.max_cholesky_size(10**9):
        torch.manual_seed(0)
        with settings.fast_computations(False, False, False):
            yield


class DirichletModel(gpytorch.models.ExactGP):
    """Gaussian processes on transformed labels, as in GPyTorch's example, with an ARD kernel for each class."""

    num_evaluations = 100

    def __init__(self, x: Tensor, likelihood: DirichletClassificationLikelihood, smoothness: float | None) -> None:
        super().__init__(x, likelihood.transformed_targets, likelihood)
        shape = torch.Size([likelihood.num_classes])
        make = RBFKernel if smoothness is None else partial(MaternKernel, smoothness)
        base = make(batch_shape=shape, ard_num_dims=x.shape[-1])
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=shape)
        self.covar_module = ScaleKernel(base, batch_shape=shape)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at ``x``, as GPyTorch evaluates it."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def _fit_dirichlet(X: ArrayLike, y: NDArray[Any], smoothness: float | None = None) -> DirichletModel:
    """Maximize the marginal likelihood of all classes together by 100 steps of Adam, with Cholesky factors."""
    x = torch.tensor(np.asarray(X), dtype=torch.float64)
    likelihood = DirichletClassificationLikelihood(torch.as_tensor(y), learn_additional_noise=True, dtype=x.dtype)
    model: DirichletModel = DirichletModel(x, likelihood, smoothness).to(x)
    model.train()
    adam = torch.optim.Adam(model.parameters(), lr=0.1)
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    with _exact():
        for _ in range(model.num_evaluations):
            adam.zero_grad()
            torch.autograd.backward(-loss(model(x), likelihood.transformed_targets).sum())
            adam.step()
    return model


def _predict_dirichlet(model: DirichletModel, X: ArrayLike) -> Array:
    """The mean over 256 draws of the softmax of the latent functions."""
    model.eval()
    # without debugging: predicting its own rows would warn
    with torch.no_grad(), gpytorch.settings.debug(False), _exact():
        latent = model(torch.tensor(np.asarray(X), dtype=torch.float64))
        mean, deviation = latent.mean, latent.variance.clamp_min(0.0).sqrt()
        draws = mean + deviation * torch.randn(256, *mean.shape, dtype=mean.dtype)
        return np.asarray(draws.softmax(dim=1).mean(dim=0).mT.numpy())


def optional(package: str) -> Any:
    """A package of the extra ``bench``."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{package} is not installed: pip install 'kernel-embed[bench]'.") from error


def _fit_boosting(X: Any, y: NDArray[Any]) -> HistGradientBoostingClassifier:
    # A class of a single row cannot be on both sides of the split for early stopping.
    stopping = "auto" if np.unique(y, return_counts=True)[1].min() > 1 else False
    settings = {"categorical_features": "from_dtype", "random_state": 0, "early_stopping": stopping}
    return HistGradientBoostingClassifier(**settings).fit(X, y)


def fit_catboost(X: Any, y: NDArray[Any], kind: str = "Classifier") -> Any:
    """CatBoost on one thread with its defaults, 1000 trees; it is told which columns are text."""
    catboost, frame = optional("catboost"), catboost_frame(X)
    text = [column for column in frame.columns if series_type(frame[column]).is_category]
    loss = "RMSEWithUncertainty"
    if kind == "Classifier":
        loss = "MultiClass" if len(np.unique(y)) > 2 else "Logloss"
    settings = {"random_seed": 0, "thread_count": 1, "verbose": False, "allow_writing_files": False}
    model = getattr(catboost, f"CatBoost{kind}")(loss_function=loss, cat_features=text, **settings)
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


def _fit_lightgbm(X: Any, y: NDArray[Any]) -> Any:
    """LightGBM on one thread with its defaults, 100 trees, categories by their type."""
    return optional("lightgbm").LGBMClassifier(random_state=0, n_jobs=1, verbosity=-1).fit(_numbered(X), y)


def _numbered(X: Any) -> pd.DataFrame:
    """Columns by number: LightGBM rejects names with markup."""
    frame = pd.DataFrame(X)
    return frame.set_axis([f"x{j}" for j in range(frame.shape[1])], axis=1)


CLASSIFIERS: dict[str, Callable[..., Any]] = {
    "svc": _fit_svc,
    "svc, pairwise": partial(_fit_svc, pairwise=True),
    "svc, whole search": partial(_fit_svc, num_folds=5, search_rows=None),
    "logistic": _fit_logistic,
    "gpc": _fit_laplace,
    "dirichlet": _fit_dirichlet,
    "boosting": _fit_boosting,
    "catboost": fit_catboost,
    "lightgbm": _fit_lightgbm,
}
"""By name, the function that fits a model to features and the numbers of the classes."""
