"""The conditional embedding as a scikit-learn regressor that predicts distributions."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _check_y, check_consistent_length, check_is_fitted

from ..embeddings.distribution import Distribution, check_levels
from ..progress import progress_bar
from ..splits import RandomState, seed_of
from ..tabular.encoder import TableEncoder, table_tags, validate_table
from ..validation import check_array, check_count, check_dense, check_memory, check_share
from .conditioning import Table
from .output import NUM_STAGES, Conformal, Output, Settings, held_out_rows
from .prediction import read_weights

Array = NDArray[np.float64]

WIDE = "Give fewer columns or rows."


class InfluentialRow(NamedTuple):
    """A training row in one prediction: its number, its weight in the mean, and its target."""

    number: int
    weight: float
    target: float


class ConditionalEmbeddingRegressor(RegressorMixin, BaseEstimator):
    """A regressor that predicts the distribution of the target, with learned kernels and no validation set.

    Conditional embeddings on two views of the columns (as they are, and by ranks), with a smooth and a rough kernel, of
    the targets and of the residuals of a mean, are learned by :class:`kernel_embed.LeaveOneOutScore` and mixed with the
    weights that have the least leave-one-out CRPS, halfway to equal ones. Predictions are distributions on the range of
    the training targets; intervals are made to cover by conformal prediction. Tables may hold numbers, texts, booleans,
    dates and missing cells, as for :class:`kernel_embed.MulticlassEmbeddingClassifier`.

    With several outputs each has its distribution, and answers have one more, last dimension.

    Args:
        conformal: where the scores come from that intervals are corrected by: ``"leave-one-out"`` uses every row twice
            and covers at about the rate asked for; ``"split"`` holds rows out, and covers with at least that
            probability for exchangeable rows. ``"auto"`` splits where there are more than ``max_rows`` rows.
        subset_size: with more rows, kernels are learned on a random part of this size.
        max_rows: rows up to which embeddings are exact. With more, all rows are seen through ``num_features`` features
            of Nyström's method.
        num_features: see ``max_rows``; ``None`` takes between 500 and 2500, fewer the more rows there are.
        max_evaluations: a limit for the optimizer, for each kernel.
        random_state: seed of the choice of rows and of draws.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Attributes:
        outputs_: for each output, what was learned: its ``mixture`` of experts with their ``weights``, and its
            ``guarantee``, which says which theorem holds for its intervals.
        encoder_: the :class:`kernel_embed.tabular.TableEncoder` of the columns.
        feature_relevances_: what each column counts, by name; they add up to 1. The mean over outputs.
        n_features_in_: number of columns.
        feature_names_in_: their names, for data frames.

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
        num_features: int | None = None,
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

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> ConditionalEmbeddingRegressor:
        """Learn the kernels and their mixture, and condition on the data.

        Args:
            X: a matrix, or a data frame with numbers, texts, booleans, dates and missing cells.
            y: a number for each row, or several: ``(n,)`` or ``(n, outputs)``.
            sample_weight: how many rows each row stands for.

        Raises:
            ValueError: if a setting is out of range, or every row has weight zero.
            MemoryError: if the encoded table does not fit.
        """
        self._check_settings()
        X = validate_table(self, X, reset=True)
        targets = read_targets(X, y)
        weights = None if sample_weight is None else read_weights(sample_weight, len(targets))
        self._kept = np.arange(len(targets))
        if weights is not None and not bool((weights > 0).all()):
            # A row of weight 0 is not there.
            self._kept = np.flatnonzero(weights > 0)
            if len(self._kept) == 0:
                raise ValueError("Expected positive weights, got zero weight for every row. Leave sample_weight out.")
            X, targets, weights = _safe_indexing(X, self._kept), targets[self._kept], weights[self._kept]
        self._is_vector = targets.ndim == 2
        seed = seed_of(self.random_state)
        self._seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
        settings = Settings(
            self.conformal, self.subset_size, self.max_rows, self.num_features, self.max_evaluations, self._seed
        )
        # Rows that calibrate are used for nothing else: columns are read from the others.
        kept = held_out_rows(len(targets), settings)[1].numpy()
        self.encoder_ = TableEncoder().fit(
            _safe_indexing(X, kept), sample_weight=None if weights is None else weights[kept]
        )
        check_memory(len(targets), torch.empty(0, dtype=torch.float64), 1, WIDE, len(self.encoder_.encoded_), 5)
        table = Table(
            x=torch.tensor(self.encoder_.transform(X)),
            y=torch.tensor(targets.reshape(len(targets), -1)),
            weights=None if weights is None else torch.tensor(weights),
            groups=torch.tensor(self.encoder_.groups_),
            numbers=torch.tensor(self.encoder_.numbers_),
        )
        columns = [dataclasses.replace(table, y=column.contiguous()) for column in table.y.T]
        with progress_bar(NUM_STAGES * len(columns), "fit", self.progress) as bar:
            self.outputs_ = [Output.learned(column, settings, bar) for column in columns]
        shares = torch.stack([output.relevances for output in self.outputs_]).mean(0)
        self.feature_relevances_ = self.encoder_.by_column(shares.numpy())
        return self

    def _check_settings(self) -> None:
        if self.conformal not in ("auto", "leave-one-out", "split"):
            raise ValueError(
                f"Expected conformal 'auto', 'leave-one-out' or 'split', got {self.conformal!r}. Choose one of these."
            )
        for name in ("subset_size", "max_rows", "num_features", "max_evaluations"):
            value = getattr(self, name)
            if not (name == "num_features" and value is None):
                check_count(name, value)

    def predict(self, X: ArrayLike) -> Array:
        """The means of the predictive distributions: (n,), or (n, outputs)."""
        return self._answer(X, lambda output, law: law.mean)

    def predict_quantile(self, X: ArrayLike, q: float | ArrayLike) -> Array:
        """Quantiles at the levels ``q``, each in (0, 1): (n, len(q)). They never cross.

        Raises:
            ValueError: if a level is not between 0 and 1, both excluded.
            TypeError: if the levels are no numbers.
        """
        levels = torch.as_tensor(np.atleast_1d(check_array(q, "q")))
        check_levels(levels)
        return self._answer(X, lambda output, law: law.quantile(levels))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9, *, plain: bool = False) -> Array:
        """Intervals (n, 2) that hold the target at the rate ``coverage``; ``plain`` ones are not corrected.

        ``outputs_[0].guarantee`` names the theorem that holds for the rate, or says that there is none.

        Raises:
            ValueError: if ``coverage`` is not between 0 and 1, both excluded.
        """
        check_share("coverage", coverage)

        def question(output: Output, law: Distribution) -> torch.Tensor:
            interval = law.interval(coverage)
            return interval if plain else output.corrected(interval, coverage)

        return self._answer(X, question)

    def predict_cdf(self, X: ArrayLike, t: float | ArrayLike) -> Array:
        """P(Y ≤ t) at the thresholds ``t``: (n, len(t)).

        Raises:
            ValueError: if ``t`` is neither a number nor a vector of numbers.
        """
        thresholds = np.atleast_1d(check_array(t, "t"))
        if thresholds.ndim != 1 or np.isnan(thresholds).any():
            raise ValueError(f"Expected thresholds as a number or a vector of numbers, got {t!r}. Give t=0.0, say.")
        return self._answer(X, lambda output, law: law.cdf(torch.as_tensor(thresholds)))

    def sample(self, X: ArrayLike, k: int = 1) -> Array:
        """k draws of the target for each row: (n, k); with several outputs each is drawn by itself."""
        seeds = iter(range(self._seed, self._seed + len(self._outputs())))
        return self._answer(X, lambda output, law: law.sample(k, next(seeds)))

    def distribution(self, X: ArrayLike) -> list[Distribution]:
        """The predictive distributions, one object for each output."""
        x = self._points(X)
        return [output.distribution(x) for output in self._outputs()]

    def influential_rows(self, X: ArrayLike, k: int = 5) -> list[list[InfluentialRow]]:
        """For each row of ``X``, the k training targets that count most in its mean; of the first output.

        The mean of an embedding is a sum Σ v_j y_j over the training rows with Σ v_j = 1, some v_j negative. Rows that
        are equal count as one. The systems are solved anew, which takes about as long as one step of learning.
        """
        check_count("k", k)
        output, x = self._outputs()[0], self._points(X)
        weights = output.row_weights(x)
        found = []
        for row in weights:
            most = row.abs().topk(min(k, len(row))).indices
            targets = output.center + output.scale * output.table.y[most]
            numbers = self._kept[output.numbers[most].numpy()]
            cells = zip(numbers.tolist(), row[most].tolist(), targets.tolist(), strict=True)
            found.append([InfluentialRow(*cell) for cell in cells])
        return found

    def _answer(self, X: ArrayLike, question: Callable[[Output, Distribution], torch.Tensor]) -> Array:
        x = self._points(X)
        answers = [question(output, output.distribution(x)).numpy() for output in self._outputs()]
        return np.stack(answers, axis=-1) if self._is_vector else answers[0]

    def _points(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        return torch.tensor(self.encoder_.transform(validate_table(self, X, reset=False)))

    def _outputs(self) -> list[Output]:
        check_is_fitted(self)
        return self.outputs_

    def __sklearn_tags__(self) -> Any:
        tags = table_tags(super().__sklearn_tags__())
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags


def read_targets(X: Any, y: ArrayLike | None) -> Array:
    """The targets of the rows of ``X`` as numbers, ``(n,)`` or ``(n, outputs)``; a clear error where they are none."""
    if y is None:
        raise ValueError(
            "Expected numbers y, got None. This ConditionalEmbeddingRegressor estimator requires y to be passed, but "
            "the target y is None."
        )
    refuse_what_is_no_number(y)
    targets = np.asarray(_check_y(y, multi_output=True, y_numeric=True), dtype=np.float64)
    check_consistent_length(X, targets)
    if targets.size == 0:
        raise ValueError(f"Expected at least one number in each target, got y of shape {targets.shape}. Give some.")
    if np.isnan(targets).any():
        missing = int(np.isnan(targets).sum())
        raise ValueError(f"Expected a number as target of each row, got {missing} missing. Leave those rows out.")
    largest = float(np.abs(targets).max())
    if not largest < np.finfo(np.float64).max ** 0.5:
        raise ValueError(f"Expected targets whose squares float64 can hold, got up to {largest:.2g}. Rescale y.")
    return targets


def refuse_what_is_no_number(y: ArrayLike) -> None:
    """Raise for words, with the classifier as an offer, for dates, sparse and complex ones, and for gaps."""
    if isinstance(y, torch.Tensor):
        check_dense(y, "y")
    if issparse(y):
        raise TypeError("Expected y as an array of numbers, got a sparse matrix. Give y.toarray().ravel().")
    values = np.asarray(y)
    if values.dtype.kind in "mM":
        raise ValueError(
            f"Expected numbers as targets, got {values.dtype}. Choose a unit: days since the first, for example, are "
            "(y - y.min()) / np.timedelta64(1, 'D')."
        )
    if values.dtype.kind in "USO" and values.size and any(isinstance(value, str) for value in values.ravel()[:100]):
        first = next(str(value) for value in values.ravel() if isinstance(value, str))
        advice = "Give y.astype(float)" if _is_number(first) else "Use MulticlassEmbeddingClassifier for classes"
        raise ValueError(f"Expected numbers as targets, got text such as {first!r}. {advice}.")
    if values.dtype.kind == "c":
        raise ValueError(f"Expected real targets, got {values.dtype}: Complex data not supported. Give y.real, say.")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        # In scikit-learn's own words too, which its checks look for.
        gaps = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        kind = "NaN" if np.isnan(values).any() else "infinity or a value too large for dtype('float64')"
        raise ValueError(
            f"Expected a finite number in each target, got {len(gaps)} rows without one, the first at index {gaps[0]}: "
            f"Input y contains {kind}. Leave those rows out."
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False
