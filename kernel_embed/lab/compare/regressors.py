"""Regressors that predict distributions, behind one interface.

Each has ``fit``, ``predict``, ``predict_quantile(X, q)``, ``predict_interval(X, coverage)`` and ``crps(X, y)``.
"""

from __future__ import annotations

import abc
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.linear_model import RidgeCV

from ...embeddings import ConditionalEmbedding, ConditionedEmbedding, Distribution
from ...embeddings.recalibration import Recalibration
from ...kernels import default_kernel
from ...learning import fit
from ...objectives import LeaveOneOutScore, Objective
from .tasks import LEVELS, pinball

Array = NDArray[np.float64]


class PredictiveRegressor(RegressorMixin, BaseEstimator, abc.ABC):
    """A regressor with a predictive distribution for each row."""

    @abc.abstractmethod
    def predict(self, X: Any) -> Array:
        """Means, ``(n,)``."""

    @abc.abstractmethod
    def predict_quantile(self, X: Any, q: ArrayLike) -> Array:
        """Quantiles, ``(n, len(q))``, which do not cross."""

    @abc.abstractmethod
    def crps(self, X: Any, y: Array) -> Array:
        """The CRPS of each row, ``(n,)``."""

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Central intervals, ``(n, 2)``."""
        return self.predict_quantile(X, [0.5 - 0.5 * coverage, 0.5 + 0.5 * coverage])


class GaussianRegressor(PredictiveRegressor):
    """A normal distribution for each row, from the means and standard deviations of a subclass."""

    @abc.abstractmethod
    def mean_and_scale(self, X: Any) -> tuple[Array, Array]:
        """Means and standard deviations, ``(n,)`` each."""

    def predict(self, X: Any) -> Array:
        """The means."""
        return self.mean_and_scale(X)[0]

    def predict_quantile(self, X: Any, q: ArrayLike) -> Array:
        """mean + scale · Φ⁻¹(q)."""
        mean, scale = self.mean_and_scale(X)
        return np.asarray(mean[:, None] + scale[:, None] * norm.ppf(np.atleast_1d(q)))

    def crps(self, X: Any, y: Array) -> Array:
        """scale · (z(2Φ(z) − 1) + 2φ(z) − 1/√π), z = (y − mean)/scale."""
        mean, scale = self.mean_and_scale(X)
        z = (y - mean) / scale
        return np.asarray(scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi)))


class QuantileRegressor(PredictiveRegressor):
    """Quantiles for each row, from those of a subclass at :data:`LEVELS`."""

    @abc.abstractmethod
    def quantiles(self, X: Any) -> Array:
        """At :data:`LEVELS`, ``(n, 100)``, in order."""

    def predict(self, X: Any) -> Array:
        """The mean over the levels."""
        return np.asarray(self.quantiles(X).mean(axis=1))

    def predict_quantile(self, X: Any, q: ArrayLike) -> Array:
        """Between the levels by interpolation."""
        return np.stack([np.interp(np.atleast_1d(q), LEVELS, row) for row in self.quantiles(X)])

    def crps(self, X: Any, y: Array) -> Array:
        """2 ∫ pinball loss."""
        return np.asarray(2.0 * pinball(self.quantiles(X), LEVELS, y).mean(axis=1))


def floats(x: ArrayLike) -> Array:
    """``x`` as float64."""
    return np.asarray(x, dtype=np.float64)


class ProbabilisticRidge(GaussianRegressor):
    """Ridge regression; its penalty, and one deviation for all rows, by leave-one-out errors."""

    def fit(self, X: Any, y: ArrayLike) -> ProbabilisticRidge:
        """Choose among nineteen penalties."""
        self.unit_ = float(floats(y).std()) or 1.0
        ridge = RidgeCV(alphas=np.logspace(-3, 6, 19), store_cv_results=True)
        self.model_ = ridge.fit(floats(X), floats(y) / self.unit_)
        least = self.model_.cv_results_.mean(axis=0).min()
        self.scale_ = self.unit_ * float(np.sqrt(least)) or 1e-12
        return self

    def mean_and_scale(self, X: Any) -> tuple[Array, Array]:
        """The line, and the deviation."""
        mean = self.unit_ * np.asarray(self.model_.predict(floats(X)))
        return mean, np.full(len(mean), self.scale_)


class GaussianProcess(GaussianRegressor):
    """scikit-learn's Gaussian process with one lengthscale for each input, by evidence from two starts."""

    def fit(self, X: Any, y: ArrayLike) -> GaussianProcess:
        """Maximize the evidence."""
        x = floats(X)
        kernel = ConstantKernel() * RBF(np.full(x.shape[1], np.sqrt(x.shape[1])), (1e-2, 1e4)) + WhiteKernel(0.1)
        process = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=1, random_state=0)
        with warnings.catch_warnings():
            # a lengthscale at its bound belongs to an irrelevant column
            warnings.simplefilter("ignore", ConvergenceWarning)
            self.model_ = process.fit(x, floats(y))
        return self

    def mean_and_scale(self, X: Any) -> tuple[Array, Array]:
        """The posterior, noise included."""
        mean, scale = self.model_.predict(floats(X), return_std=True)
        return mean, scale


class SingleKernelRegressor(PredictiveRegressor):
    """The conditional embedding of a numeric target on one kernel, for features in [0, 1].

    Args:
        objective: what learns the kernel and λ; ``None`` for :class:`kernel_embed.LeaveOneOutScore`, the CRPS.
    """

    def __init__(self, objective: Objective[ConditionedEmbedding] | None = None) -> None:
        self.objective = objective

    def fit(self, X: Any, y: ArrayLike) -> SingleKernelRegressor:
        """Learn from targets with mean 0 and deviation 1."""
        x, targets = torch.tensor(np.asarray(X, dtype=np.float64)), torch.tensor(np.asarray(y, dtype=np.float64))
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
    def distribution(self, X: Any) -> Distribution:
        """The predictive distributions, calibrated on left-out rows, in the units of the target."""
        standard = self.conditioned_.distribution(torch.tensor(np.asarray(X, dtype=np.float64)))
        distribution = Distribution(self.center_ + self.scale_ * standard.support, standard.F)
        return self.calibration_.recalibrated(distribution)

    def predict(self, X: Any) -> Array:
        """Means."""
        return self.distribution(X).mean.numpy()

    def predict_quantile(self, X: Any, q: ArrayLike) -> Array:
        """Quantiles."""
        return self.distribution(X).quantile(torch.as_tensor(np.atleast_1d(np.asarray(q, dtype=np.float64)))).numpy()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Intervals between quantiles; infinite with too few rows for the coverage."""
        return self.calibration_.interval(self.distribution(X), coverage, guaranteed=False).numpy()

    def crps(self, X: Any, y: Array) -> Array:
        """Exactly, for a step function."""
        return self.distribution(X).crps(torch.tensor(y)).numpy()
