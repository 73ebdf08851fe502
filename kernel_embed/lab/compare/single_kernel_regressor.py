"""A conditional embedding of a numeric target as a regressor: one learned kernel, with conformal intervals."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike

from ...embeddings import ConditionalEmbedding, ConditionedEmbedding, Distribution, conformal_quantile, interval_scores
from ...kernels import default_kernel
from ...learning import fit
from ...objectives import LeaveOneOutScore, Objective
from .predictive import Array, PredictiveRegressor


class SingleKernelRegressor(PredictiveRegressor):
    """The conditional embedding of a numeric target on one kernel, for features in [0, 1].

    Args:
        objective: what learns the kernel and λ; ``None`` for :class:`kernel_embed.LeaveOneOutScore`, the CRPS.
        target_kernel: l, for objectives that need one; of targets with mean 0 and deviation 1.

    Example:
        >>> x = np.linspace(0, 1, 30)[:, None]
        >>> model = SingleKernelRegressor().fit(x, np.sin(6 * x[:, 0]))
        >>> model.predict_quantile(x[:2], [0.1, 0.9]).shape
        (2, 2)
    """

    def __init__(
        self, objective: Objective[ConditionedEmbedding] | None = None, target_kernel: Kernel | None = None
    ) -> None:
        self.objective = objective
        self.target_kernel = target_kernel

    def fit(self, X: Any, y: ArrayLike) -> SingleKernelRegressor:
        """Learn from targets with mean 0 and deviation 1."""
        x, targets = torch.tensor(np.asarray(X, dtype=np.float64)), torch.tensor(np.asarray(y, dtype=np.float64))
        self.center_, self.scale_ = float(targets.mean()), float(targets.std(correction=0)) or 1.0
        standard = (targets - self.center_) / self.scale_
        self.embedding_ = ConditionalEmbedding(default_kernel(x), target_kernel=self.target_kernel).double()
        objective = LeaveOneOutScore() if self.objective is None else self.objective
        self.result_ = fit(self.embedding_, objective, x, standard, progress=False)
        with torch.no_grad():
            self.conditioned_ = self.embedding_.condition(x, standard)
            self._left_out, self._standard = self.conditioned_.leave_one_out_distribution(), standard
        return self

    @torch.no_grad()
    def distribution(self, X: Any) -> Distribution:
        """The predictive distributions, in the units of the target."""
        standard = self.conditioned_.distribution(torch.tensor(np.asarray(X, dtype=np.float64)))
        return Distribution(self.center_ + self.scale_ * standard.support, standard.F)

    def predict(self, X: Any) -> Array:
        """Means."""
        return self.distribution(X).mean.numpy()

    def predict_quantile(self, X: Any, q: ArrayLike) -> Array:
        """Quantiles."""
        return self.distribution(X).quantile(torch.as_tensor(np.atleast_1d(np.asarray(q, dtype=np.float64)))).numpy()

    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Intervals adjusted by the conformal quantile of left-out rows."""
        interval = self.distribution(X).interval(coverage)
        scores = interval_scores(self._left_out.interval(coverage), self._standard)
        Q = self.scale_ * conformal_quantile(scores, coverage)
        ends = torch.stack([interval[..., 0] - Q, interval[..., 1] + Q], dim=-1)
        return ends.sort(dim=-1).values.numpy()

    def crps(self, X: Any, y: Array) -> Array:
        """Exactly, for a step function."""
        return self.distribution(X).crps(torch.tensor(y)).numpy()
