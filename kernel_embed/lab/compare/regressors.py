"""Regressors that predict distributions: one kernel, and those of other libraries, which :func:`_fit` lists."""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV

from ...embeddings import ConditionalEmbedding, ConditionedEmbedding, Distribution
from ...embeddings.conformal import Recalibration
from ...kernels import default_kernel
from ...learning import fit
from ...objectives import LeaveOneOutScore, Objective
from .embedding_classifiers import Array, tensor
from .reference_classifiers import catboost_frame, fit_catboost, optional
from .tasks import LEVELS, pinball


class SingleKernelRegressor(RegressorMixin, BaseEstimator):
    """The conditional embedding of a numeric target on one kernel, for features in [0, 1]; by the CRPS by default."""

    def __init__(self, objective: Objective[ConditionedEmbedding] | None = None) -> None:
        self.objective = objective

    def fit(self, X: Any, y: ArrayLike) -> SingleKernelRegressor:
        """Learn from targets with mean 0 and deviation 1."""
        x, targets = tensor(X), tensor(y)
        self.center_, self.scale_ = float(targets.mean()), float(targets.std(correction=0)) or 1.0
        standard = (targets - self.center_) / self.scale_
        self.embedding_ = ConditionalEmbedding(default_kernel(x)).double()
        objective = LeaveOneOutScore() if self.objective is None else self.objective
        self.result_ = fit(self.embedding_, objective, x, standard, progress=False)
        with torch.no_grad():
            self.conditioned_ = self.embedding_.condition(x, standard)
            left_out = self.conditioned_.leave_one_out_distribution()
        self.calibration_ = Recalibration.from_rows(left_out, standard)
        return self

    @torch.no_grad()
    def distribution(self, X: Any) -> list[Distribution]:
        """The predictive distributions of the one target, calibrated on left-out rows, in its units."""
        standard = self.conditioned_.distribution(tensor(X))
        distribution = Distribution(self.center_ + self.scale_ * standard.support, standard.F)
        return [self.calibration_.recalibrated(distribution)]

    def predict(self, X: Any) -> Array:
        """Means."""
        return self.distribution(X)[0].mean.numpy()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Intervals between quantiles; infinite with too few rows for the coverage."""
        return self.calibration_.interval(self.distribution(X)[0], coverage, guaranteed=False).numpy()


class Normal(NamedTuple):
    """A normal distribution for each row."""

    mean: Array
    scale: Array

    def quantile(self, q: Array) -> Array:
        """mean + scale · Φ⁻¹(q), ``(n, len(q))``."""
        return np.asarray(self.mean[:, None] + self.scale[:, None] * norm.ppf(q))

    def crps(self, y: Array) -> Array:
        """scale · (z(2Φ(z) − 1) + 2φ(z) − 1/√π), z = (y − mean)/scale."""
        z = (y - self.mean) / self.scale
        return np.asarray(self.scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)))


class Quantiles(NamedTuple):
    """Quantiles at :data:`LEVELS` in order, ``(n, 100)``, and means."""

    values: Array
    mean: Array

    def quantile(self, q: Array) -> Array:
        """Between the levels by interpolation, ``(n, len(q))``."""
        return np.stack([np.interp(q, LEVELS, row) for row in self.values])

    def crps(self, y: Array) -> Array:
        """2 ∫ pinball loss."""
        return np.asarray(2.0 * pinball(self.values, LEVELS, y).mean(axis=1))


class ReferenceRegressor(RegressorMixin, BaseEstimator):
    """A regressor of another library with a predictive distribution for each row, by its name in :func:`_fit`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def fit(self, X: Any, y: ArrayLike) -> ReferenceRegressor:
        """Fit the library's model."""
        self.model_ = _fit(self.name, X, np.asarray(y, dtype=np.float64))
        return self

    def distribution(self, X: Any) -> Normal | Quantiles:
        """The predictive distributions."""
        return _predict(self.name, self.model_, X)

    def predict(self, X: Any) -> Array:
        """Means, ``(n,)``."""
        return self.distribution(X).mean

    def predict_quantile(self, X: Any, q: ArrayLike) -> Array:
        """Quantiles, ``(n, len(q))``, which do not cross."""
        return self.distribution(X).quantile(np.atleast_1d(np.asarray(q, dtype=np.float64)))

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central intervals, ``(n, 2)``."""
        return self.predict_quantile(X, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])


BOOSTED_LEVELS = np.linspace(0.05, 0.95, 19)


def _fit(name: str, X: Any, y: Array) -> Any:
    """The model of a library, or several of its parts."""
    if name == "boosting":  # one model of the pinball loss for each level
        settings = {"loss": "quantile", "random_state": 0, "categorical_features": "from_dtype"}
        return [HistGradientBoostingRegressor(quantile=q, **settings).fit(X, y) for q in BOOSTED_LEVELS]
    if name == "catboost":
        return fit_catboost(X, y, "Regressor")
    x = np.asarray(X, dtype=np.float64)
    if name == "ridge":  # penalty, and one deviation for all rows, by leave-one-out errors
        model = RidgeCV(alphas=np.logspace(-3, 6, 19), store_cv_results=True).fit(x, y)
        return model, float(np.sqrt(model.cv_results_.mean(axis=0).min())) or 1e-12
    if name == "gaussian process":  # one lengthscale for each input, by evidence from two starts
        kernel = ConstantKernel() * RBF(np.full(x.shape[1], np.sqrt(x.shape[1])), (1e-2, 1e4)) + WhiteKernel(0.1)
        process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
        with warnings.catch_warnings():
            # a lengthscale at its bound belongs to an irrelevant column
            warnings.simplefilter("ignore", ConvergenceWarning)
            return process.fit(x, y)
    if name == "random forest":  # and the quantiles of the out-of-bag residuals, which are added to the mean
        forest = RandomForestRegressor(300, oob_score=True, random_state=0).fit(x, y)
        return forest, np.quantile(y - forest.oob_prediction_, LEVELS)
    if name == "quantile forest":
        make = optional("quantile_forest").RandomForestQuantileRegressor
        return make(300, min_samples_leaf=3, random_state=0).fit(x, y)
    if name == "ngboost":
        return optional("ngboost").NGBRegressor(n_estimators=500, verbose=False, random_state=0).fit(x, y)
    raise ValueError(f"There is no reference {name!r}.")


def _predict(name: str, model: Any, X: Any) -> Normal | Quantiles:
    """The distributions that a model of :func:`_fit` predicts."""
    if name == "boosting":  # sorted, interpolated between the levels, and constant beyond the outermost ones
        own = np.sort(np.stack([one.predict(X) for one in model], axis=1), axis=1)
        values = np.stack([np.interp(LEVELS, BOOSTED_LEVELS, row) for row in own])
        return Quantiles(values, values.mean(axis=1))
    if name == "catboost":  # its own mean and variance
        mean, variance = np.asarray(model.predict(catboost_frame(X))).T
        return Normal(mean, np.sqrt(variance))
    x = np.asarray(X, dtype=np.float64)
    if name == "ridge":
        return Normal(model[0].predict(x), np.full(len(x), model[1]))
    if name == "gaussian process":
        return Normal(*model.predict(x, return_std=True))
    if name == "random forest":
        mean = model[0].predict(x)
        return Quantiles(mean[:, None] + model[1], mean)
    if name == "quantile forest":  # of the training targets in the same leaves, and the forest's own mean
        values, mean = (np.asarray(model.predict(x, quantiles=q)) for q in (list(LEVELS), "mean"))
        return Quantiles(values, mean)
    parameters = model.pred_dist(x).params  # of NGBoost
    return Normal(parameters["loc"], parameters["scale"])
