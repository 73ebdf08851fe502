"""The conditional embedding as a scikit-learn regressor that predicts distributions."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils import _safe_indexing

from ..embeddings.distribution import Distribution, check_levels
from ..runtime import cpu_by_default, progress_bar
from ..splits import RandomState, equal_rows, seed_of
from ..tabular.encoder import TableEncoder, validate_table
from ..validation import check_array, check_count, check_memory, check_share
from .conditioning import Table
from .importance import HeldOut, ImportanceMixin
from .output import NUM_STAGES, Conformal, Output, held_out_rows
from .targets import read_numbers

Array = NDArray[np.float64]


class InfluentialRow(NamedTuple):
    """A training row in one prediction: its number, its weight in the mean, and its target."""

    number: int
    weight: float
    target: float


@dataclasses.dataclass(eq=False, repr=False)
class ConditionalEmbeddingRegressor(RegressorMixin, ImportanceMixin):
    """A regressor that predicts the distribution of the target, with learned kernels and no validation set.

    Conditional embeddings of the targets, and of the residuals of a mean, are learned by
    :class:`kernel_embed.LeaveOneOutScore`, and mixed with the weights of least leave-one-out CRPS, shrunk halfway to
    equal weights. The mixture is calibrated once, by conformal recalibration on rows that were left out, and every
    prediction is derived from it: means, quantiles, intervals, probabilities and draws agree. With several outputs each
    has its own distribution, and predictions have an additional last dimension.

    Args:
        conformal: the rows that calibrate the distribution: ``"leave-one-out"`` uses every row twice, and intervals
            have about the requested coverage; ``"split"`` holds rows out, and intervals have at least that coverage
            for exchangeable rows. ``"auto"`` splits if there are more than ``max_rows`` rows.
        subset_size: with more rows, kernels are learned on a random part of this size.
        max_rows: the largest number of rows for exact embeddings; more use ``num_features`` Nyström features.
        num_features: see ``max_rows``; ``None`` uses between 500 and 2500, fewer for more rows.
        max_evaluations: a limit for the optimizer, for each kernel.
        random_state: seed of the choice of rows and of draws.
        device: where to compute; ``None`` for the CPU.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Attributes:
        outputs_: the fitted model of each output: its ``mixture`` of components with their ``weights``, and its
            ``guarantee``, what holds for its intervals and quantiles.
        encoder_: the :class:`kernel_embed.tabular.TableEncoder` of the columns.
        inverse_lengthscales_: how fast the kernels change along each column, by name, as shares that sum to 1, averaged
            over outputs. For what a column contributes to predictions see :meth:`permutation_importance`.
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

    _: dataclasses.KW_ONLY
    conformal: Conformal = "auto"
    subset_size: int = 1000
    max_rows: int = 2000
    num_features: int | None = None
    max_evaluations: int = 60
    random_state: RandomState = None
    device: str | None = None
    progress: bool | None = None

    @cpu_by_default()
    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> ConditionalEmbeddingRegressor:
        """Learn the kernels and their mixture, and condition on the data.

        Args:
            X: a matrix, or a data frame with numbers, texts, booleans, dates and missing cells.
            y: a number for each row, or several: ``(n,)`` or ``(n, outputs)``.
            sample_weight: the weight of each row. Only ratios matter; a row of weight 2 equals two rows.
            groups: a label for each row. Rows of one group, such as a patient, a batch or a day, are left out together
                by everything that validates or calibrates. By default rows that are equal are.

        Raises:
            ValueError: if a setting is out of range, or every row has weight zero.
            MemoryError: if the encoded table does not fit.
        """
        if self.conformal not in ("auto", "leave-one-out", "split"):
            raise ValueError(f"Expected conformal 'auto', 'leave-one-out' or 'split', got {self.conformal!r}.")
        for name in ("subset_size", "max_rows", "max_evaluations", *["num_features"] * (self.num_features is not None)):
            check_count(name, getattr(self, name))
        X = validate_table(self, X, reset=True)
        targets, self._is_vector = read_numbers(X, y, sample_weight, groups)
        X, targets, self._row_numbers = targets.without_zero_weights(X)
        seed = seed_of(self.random_state)
        self._seed = int(np.random.default_rng(seed).integers(2**31)) if seed is None else seed
        self._importances, n, weights = None, len(targets.Y), targets.weights
        places = self._equal_rows(X, targets.Y) if targets.groups is None else targets.groups
        # Calibration rows are used for nothing else: the encoder is fitted on the others.
        kept = held_out_rows(n, self, places)[1]
        self.encoder_ = TableEncoder().fit(
            _safe_indexing(X, kept), sample_weight=None if weights is None else weights[kept]
        )
        like = torch.empty(0, dtype=torch.float64, device=self.device or "cpu")
        check_memory(n, like, 1, "Give fewer columns or rows.", len(self.encoder_.encoded_), 5)
        table = Table.of(self.encoder_.transform(X), targets.Y, targets, self.encoder_, device=self.device)
        columns = [dataclasses.replace(table, y=column.contiguous(), places=places) for column in table.y.T]
        with progress_bar(NUM_STAGES * len(columns), "fit", self.progress) as bar:
            self.outputs_ = [Output.learned(column, self, bar) for column in columns]
        shares = torch.stack([output.relevances for output in self.outputs_]).mean(0)
        self.inverse_lengthscales_ = self.encoder_.by_column(shares.cpu().numpy())
        return self

    def _equal_rows(self, X: Any, targets: Array) -> NDArray[np.int64] | None:
        """Numbers of equal rows, which a split does not divide; ``None`` without a split, or if all differ."""
        if self.conformal == "leave-one-out" or (self.conformal == "auto" and len(targets) <= self.max_rows):
            return None
        return equal_rows(np.c_[TableEncoder().fit(X).transform(X), targets])

    def predict(self, X: ArrayLike) -> Array:
        """The means of the predictive distributions: (n,), or (n, outputs)."""
        return self._predict(X, lambda output, distribution: distribution.mean)

    def predict_quantile(self, X: ArrayLike, q: float | ArrayLike) -> Array:
        """Quantiles at the levels ``q``, each in (0, 1): (n, len(q)). They never cross.

        The quantile is the smallest y with P(Y ≤ y) ≥ q. For counts this probability is often well above q.

        Raises:
            ValueError: if a level is not between 0 and 1, both excluded.
            TypeError: if the levels are not numbers.
        """
        levels = torch.as_tensor(np.atleast_1d(check_array(q, "q")), device="cpu")
        check_levels(levels)
        return self._predict(X, lambda output, distribution: distribution.quantile(levels))

    def predict_interval(self, X: ArrayLike, coverage: float = 0.9) -> Array:
        """Intervals (n, 2) with this ``coverage``, from the quantile (1 − coverage)/2 to (1 + coverage)/2.

        Intervals of larger coverage contain those of smaller coverage, and all contain the median. Ends are infinite if
        there are too few rows for the coverage. ``outputs_[0].guarantee`` says what is guaranteed.

        Raises:
            ValueError: if ``coverage`` is not between 0 and 1, both excluded.
        """
        check_share("coverage", coverage)
        return self._predict(X, lambda output, distribution: output.interval(distribution, coverage))

    def predict_cdf(self, X: ArrayLike, t: float | ArrayLike) -> Array:
        """P(Y ≤ t) at the thresholds ``t``: (n, len(t)).

        Raises:
            ValueError: if ``t`` is neither a number nor a vector of numbers.
        """
        thresholds = np.atleast_1d(check_array(t, "t"))
        if thresholds.ndim != 1 or np.isnan(thresholds).any():
            raise ValueError(f"Expected thresholds as a number or a vector of numbers, got {t!r}.")
        return self._predict(X, lambda output, distribution: distribution.cdf(torch.tensor(thresholds, device="cpu")))

    def sample(self, X: ArrayLike, k: int = 1) -> Array:
        """k draws of the target for each row: (n, k); several outputs are drawn independently."""
        number = itertools.count()
        return self._predict(X, lambda output, distribution: distribution.sample(k, self._seed + next(number)))

    def distribution(self, X: ArrayLike) -> list[Distribution]:
        """The predictive distributions, one object for each output."""
        x = self._points(X)
        return [output.distribution(x) for output in self.outputs_]

    def influential_rows(self, X: ArrayLike, k: int = 5) -> list[list[InfluentialRow]]:
        """For each row of ``X``, the k training rows of largest weight in its predicted mean (first output).

        The mean of an embedding is a sum Σ v_j y_j over the training rows with Σ v_j = 1, some v_j negative. Equal rows
        count as one. The linear systems are solved again, which takes about as long as one step of learning.
        """
        check_count("k", k)
        x, influential = self._points(X), []
        output = self.outputs_[0]
        for row in output.row_weights(x):
            most = row.abs().topk(min(k, len(row))).indices
            targets = output.center + output.scale * output.table.y[most]
            numbers = self._row_numbers[output.numbers[most].cpu().numpy()]
            cells = zip(numbers.tolist(), row[most].tolist(), targets.tolist(), strict=True)
            influential.append([InfluentialRow(*cell) for cell in cells])
        return influential

    _loss_name = "CRPS, in standard deviations of the target"

    def _held_out(self, max_rows: int, generator: np.random.Generator) -> Iterator[HeldOut]:
        return (output.held_out(max_rows, generator) for output in self.outputs_)

    def _predict(self, X: ArrayLike, statistic: Callable[[Output, Distribution], torch.Tensor]) -> Array:
        x = self._points(X)
        values = [statistic(output, output.distribution(x)).cpu().numpy() for output in self.outputs_]
        return np.stack(values, axis=-1) if self._is_vector else values[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        return tags
