"""The conditional embedding as a scikit-learn regressor that predicts distributions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..embeddings.distribution import Distribution, check_coverage, check_levels
from ..validation import check_dense
from .output import Conformal, Output, Settings
from .random_state import RandomState, seed_of

Array = NDArray[np.float64]


class ConditionalEmbeddingRegressor(RegressorMixin, BaseEstimator):
    """A regressor that predicts the distribution of the target, with learned kernels and no validation set.

    Conditional embeddings on two views of the inputs (as they are, and by ranks), with a smooth and a rough kernel, of
    the targets and of the residuals of a mean, are learned by :class:`kernel_embed.LeaveOneOutScore` and mixed with the
    weights that have the least leave-one-out CRPS, halfway to equal ones. Predictions are distributions on the range of
    the training targets; intervals are made to cover by conformal prediction.

    With several outputs each has its distribution, and answers have one more, last dimension.

    Args:
        conformal: where the scores come from that intervals are corrected by: ``"leave-one-out"`` uses every row twice
            and covers at about the rate asked for; ``"split"`` holds rows out, and covers with at least that
            probability for exchangeable rows. ``"auto"`` splits where there are more than ``max_rows`` rows.
        subset_size: with more rows, kernels are learned on a random part of this size.
        max_rows: rows up to which embeddings are exact. With more, all rows are seen through ``num_features`` features
            of Nyström's method.
        num_features: see ``max_rows``.
        max_evaluations: a limit for the optimizer, for each kernel.
        random_state: seed of the choice of rows and of draws.
        progress: show progress bars; ``None`` shows them on a terminal or in a notebook.

    Attributes:
        outputs_: for each output, what was learned: its ``mixture`` of experts with their ``weights``, and its
            ``conformal`` rule, which says which theorem holds.
        n_features_in_: number of inputs.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(80, 1))
        >>> y = np.sin(6 * X[:, 0]) + (0.05 + 0.3 * X[:, 0]) * rng.normal(size=80)
        >>> regressor = ConditionalEmbeddingRegressor(random_state=0).fit(X, y)
        >>> interval = regressor.predict_interval(np.array([[0.1], [0.9]]), coverage=0.8)
        >>> bool(np.diff(interval)[0] < np.diff(interval)[1])  # wider where the noise is larger
        True
    """

    def __init__(
        self,
        *,
        conformal: Conformal = "auto",
        subset_size: int = 1000,
        max_rows: int = 2000,
        num_features: int = 500,
        max_evaluations: int = 60,
        random_state: RandomState = None,
        progress: bool | None = None,
    ) -> None:
        self.conformal = conformal
        self.subset_size = subset_size
        self.max_rows = max_rows
        self.num_features = num_features
        self.max_evaluations = max_evaluations
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike) -> ConditionalEmbeddingRegressor:
        """Learn the kernels and their mixture, and condition on the data."""
        refuse_text(y)
        features, targets = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        if self.conformal not in ("auto", "leave-one-out", "split"):
            raise ValueError(
                f"Expected conformal 'auto', 'leave-one-out' or 'split', got {self.conformal!r}. Choose one of these."
            )
        targets = np.asarray(targets, dtype=np.float64)
        largest = float(np.abs(targets).max())
        if not largest < np.finfo(np.float64).max ** 0.5:
            raise ValueError(f"Expected targets whose squares float64 can hold, got up to {largest:.2g}. Rescale y.")
        self._is_vector = targets.ndim == 2
        x = torch.tensor(features)
        seed = seed_of(self.random_state)
        self._seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
        settings = Settings(
            self.conformal,
            self.subset_size,
            self.max_rows,
            self.num_features,
            self.max_evaluations,
            self._seed,
            self.progress,
        )
        self.outputs_ = [Output.learned(x, torch.tensor(column), settings) for column in targets.reshape(len(x), -1).T]
        return self

    def predict(self, X: ArrayLike) -> Array:
        """The means of the predictive distributions: (n,), or (n, outputs)."""
        return self._answer(X, lambda output, law: law.mean)

    def predict_quantile(self, X: ArrayLike, q: float | ArrayLike) -> Array:
        """Quantiles at the levels ``q``, each in (0, 1): (n, len(q)). They never cross."""
        levels = torch.as_tensor(np.atleast_1d(np.asarray(q, dtype=np.float64)))
        check_levels(levels)
        return self._answer(X, lambda output, law: law.quantile(levels))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9, *, plain: bool = False) -> Array:
        """Intervals (n, 2) that hold the target with probability ``coverage``; ``plain`` ones are not corrected."""
        check_coverage(coverage)

        def question(output: Output, law: Distribution) -> torch.Tensor:
            interval = law.interval(coverage)
            return interval if plain else output.corrected(interval, coverage)

        return self._answer(X, question)

    def predict_cdf(self, X: ArrayLike, t: float | ArrayLike) -> Array:
        """P(Y ≤ t) at the thresholds ``t``: (n, len(t))."""
        thresholds = np.atleast_1d(np.asarray(t, dtype=np.float64))
        if thresholds.ndim != 1 or np.isnan(thresholds).any():
            raise ValueError(f"Expected thresholds as a number or a vector of numbers, got {t!r}. Give t=0.0, say.")
        return self._answer(X, lambda output, law: law.cdf(torch.as_tensor(thresholds)))

    def sample(self, X: ArrayLike, k: int = 1) -> Array:
        """k draws of the target for each row: (n, k); with several outputs each is drawn by itself."""
        seeds = iter(range(self._seed, self._seed + len(self._outputs())))
        return self._answer(X, lambda output, law: law.sample(k, next(seeds)))

    def distribution(self, X: ArrayLike) -> list[Distribution]:
        """The predictive distributions, one object for each output."""
        return [output.distribution(self._points(X)) for output in self._outputs()]

    def _answer(self, X: ArrayLike, question: Callable[[Output, Distribution], torch.Tensor]) -> Array:
        x = self._points(X)
        answers = [question(output, output.distribution(x)).numpy() for output in self._outputs()]
        return np.stack(answers, axis=-1) if self._is_vector else answers[0]

    def _points(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        return torch.tensor(validate_data(self, X, dtype=np.float64, reset=False))

    def _outputs(self) -> list[Output]:
        check_is_fitted(self)
        return self.outputs_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def refuse_text(y: ArrayLike) -> None:
    """Raise for targets that are words, and offer the classifier."""
    if isinstance(y, torch.Tensor):
        check_dense(y, "y")
    values = np.asarray(y)
    if values.dtype.kind in "USO" and values.size and any(isinstance(value, str) for value in values.ravel()[:100]):
        raise ValueError(
            f"Expected numbers as targets, got text such as {values.ravel()[0]!r}. Use "
            "MulticlassEmbeddingClassifier for classes."
        )
