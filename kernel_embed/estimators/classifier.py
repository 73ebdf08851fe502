"""The multiclass embedding as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from ..embeddings import ConditionedMulticlass
from ..linalg import Units
from ..objectives import Objective, default_objective
from ..progress import progress_bar
from ..resources import few_threads
from ..splits import RandomState, group_numbers, seed_of
from ..tabular.encoder import TableEncoder, plain_matrix, validate_table
from ..validation import check_memory
from .conditioning import Table
from .default import EXACT, NUM_STAGES, learn_default
from .distinct import distinct_rows
from .distributed import fit_on_ranks, updated
from .pooled import PooledPredictor
from .prediction import ClassifierPredictions, Floats, Labels, read_labels
from .single_kernel import KernelChoice, SingleKernel, check_settings

TALL_COPIES, WIDE_COPIES = 8, 15
"""Measured peak memory of a fit in copies of the encoded table, for 10⁶ × 20 and 150 × 20,000."""

WIDE = "Give fewer columns or rows; with partial_fit, or torchrun and distributed=True, rows can come in parts."


class MulticlassEmbeddingClassifier(ClassifierPredictions):
    """A multiclass classifier that learns its kernels, without a validation set, from a table of any kind.

    By default it learns several kernels, on the columns and on their ranks. It validates each on rows that were not
    used for its hyperparameters, and combines them by one convex problem (see the page on the default classifier). With
    ``kernel``, ``objective`` or ``batch_size`` it learns a single kernel instead.

    Args:
        kernel: any GPyTorch kernel, which is copied and never changed; or a function that builds one for the training
            inputs.
        objective: what learning minimizes; ``None`` for :func:`kernel_embed.default_objective`.
        class_weight: a dict with a factor of the ``sample_weight`` of each label; ``"balanced"`` gives all labels the
            same total weight.
        regularization: the starting value of λ, for one kernel.
        calibrated: predict probabilities calibrated on leave-one-out values
            (:func:`kernel_embed.objectives.calibrate`); otherwise the clip-normalized ones of eq. (6). For one kernel.
        confidence: 1 − β of the bound that is reported.
        max_evaluations: a limit for the optimizer, for one kernel.
        tolerance: see :func:`kernel_embed.fit`, for one kernel.
        num_restarts: further starts of the optimizer, for one kernel.
        subset_size: if there are at least twice as many rows, one kernel is first learned on a random subset of this
            size, and then on all rows; ``None`` starts with all rows.
        batch_size: learn one kernel with mini-batches of this size (Algorithm 1).
        num_epochs: epochs, with mini-batches.
        learning_rate: of Adam, with mini-batches.
        random_state: seed of every random choice.
        device: where to compute; ``None`` for the CPU.
        distributed: each of several ranks started by ``torchrun`` passes its own rows to :meth:`fit`, and all get the
            same classifier. For one kernel use :class:`kernel_embed.scale.ShardedEmbedding` instead.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Attributes:
        classes_: the labels.
        encoder_: the :class:`kernel_embed.tabular.TableEncoder` of the columns; ``None`` if one kernel is learned on an
            unscaled matrix of numbers.
        conditioned_: the fitted predictor: :class:`kernel_embed.estimators.PooledPredictor`, or the one embedding
            with its data.
        embedding_: the learned embedding; of a pool the one with the largest weight, on transformed rows.
        inverse_lengthscales_: how fast the kernels change along each column, by name, as shares that sum to 1. A share
            is large for a column that the kernels tell rows apart by, useful or not; for what a column contributes to
            predictions see :meth:`permutation_importance`. Not for one kernel.
        calibration_: the :class:`kernel_embed.objectives.SoftmaxCalibration` of one kernel, or ``None``.
        result_: the :class:`kernel_embed.learning.FitResult` of one kernel, or ``None``.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> classifier = MulticlassEmbeddingClassifier().fit(x[::2], y[::2])
        >>> classifier.score(x[1::2], y[1::2]) > 0.9
        True
    """

    def __init__(
        self,
        kernel: KernelChoice = None,
        objective: Objective[ConditionedMulticlass] | None = None,
        *,
        class_weight: dict[Any, float] | str | None = None,
        regularization: float = 0.01,
        calibrated: bool = True,
        confidence: float = 0.95,
        max_evaluations: int = 200,
        tolerance: float = 1e-5,
        num_restarts: int = 0,
        subset_size: int | None = 1000,
        batch_size: int | None = None,
        num_epochs: int = 200,
        learning_rate: float = 0.1,
        random_state: RandomState = None,
        device: str | None = None,
        distributed: bool = False,
        progress: bool | None = None,
    ) -> None:
        self.kernel = kernel
        self.objective = objective
        self.class_weight = class_weight
        self.regularization = regularization
        self.calibrated = calibrated
        self.confidence = confidence
        self.max_evaluations = max_evaluations
        self.tolerance = tolerance
        self.num_restarts = num_restarts
        self.subset_size = subset_size
        self.batch_size = batch_size
        self.num_epochs = num_epochs
        self.learning_rate = learning_rate
        self.random_state = random_state
        self.device = device
        self.distributed = distributed
        self.progress = progress

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> MulticlassEmbeddingClassifier:
        """Learn from a table.

        n, in the ridge nλ, in penalties and in bounds, is the number of distinct rows; of rows with the same inputs and
        different labels, all are counted.

        Args:
            X: a matrix, or a data frame with numbers, texts, booleans, dates and missing cells.
            y: labels of any kind; or soft labels, one row of probabilities each. Rows without a label (NaN or None) are
                used only to scale the columns.
            sample_weight: the weight of each row. Only ratios matter; a row of weight 2 equals two rows.
            groups: a label for each row. Rows of one group, such as a patient, a batch or a day, are left out together
                by everything that validates, calibrates or combines. By default rows that are equal are.

        Raises:
            ValueError: if labels or groups are not one for each row, or ``groups`` are given with ``distributed=True``.
        """
        if self.distributed:
            if groups is not None:
                raise ValueError("groups are not available with distributed=True. Learn in one process.")
            fit_on_ranks(self, X, y, sample_weight)
            return self
        return self._fit(X, y, sample_weight, groups=groups)

    def partial_fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> MulticlassEmbeddingClassifier:
        """Add rows without starting over; the first call is :meth:`fit`.

        Kernels, calibration and pool weights stay as learned from the first rows; the coefficients are updated to all
        rows. Beyond 5,000 rows, old rows are not read again: only sums over rows are updated.

        Args:
            X: rows like those of the first call.
            y: labels among ``classes_``.
            classes: all labels, if the first rows do not contain every one of them.
            sample_weight: the weight of each row, on the scale of the first call.
        """
        if not hasattr(self, "conditioned_"):
            return self._fit(X, y, sample_weight, classes)
        X = validate_table(self, X, reset=False)
        X, labels, _ = _weighted(X, read_labels(X, y, sample_weight, self.classes_))
        new, self._importances = self._distinct(self._matrix(X), labels), None
        if isinstance(self.conditioned_, PooledPredictor):
            with few_threads(len(self._table.x)):
                self.conditioned_, self._table = updated(self.conditioned_, self._table, new)
        else:
            self.conditioned_ = self.conditioned_.updated(new.x, new.y, new.weights)
            self._table = self._table.joined(new)
        return self

    def _fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None,
        classes: ArrayLike | None = None,
        num_rows: int | None = None,
        groups: ArrayLike | None = None,
    ) -> MulticlassEmbeddingClassifier:
        check_settings(self.kernel, self.regularization, self.confidence)
        X = validate_table(self, X, reset=True)
        X, labels, places = _weighted(
            X, read_labels(X, y, sample_weight, classes), group_numbers(groups, _num_samples(X))
        )
        self.classes_, self._importances = labels.classes, None
        self._class_factors, self._weight_scale = labels.class_factors(self.class_weight), None
        labels = labels.times(self._class_factors)
        learns_pool = self.kernel is None and self.objective is None and self.batch_size is None
        self.encoder_ = None
        if learns_pool or plain_matrix(X) is None:
            self._check_room(len(labels.numbers), self.n_features_in_)
            self.encoder_ = TableEncoder().fit(X, sample_weight=labels.weights_or_none)
            self._check_room(len(labels.numbers), len(self.encoder_.encoded_))
        self._table = self._distinct(self._matrix(X), labels, places)
        if learns_pool and len(self.classes_) > 1:
            self._learn_pool(num_rows)
        else:
            self._learn_single()
        return self

    def _check_room(self, n: int, num_columns: int) -> None:
        """Reject data that would not fit in memory: copies of the table, and matrices of exact embeddings."""
        like = torch.empty(0, dtype=torch.float64, device=self.device or "cpu")
        check_memory(n, like, 1, WIDE, num_columns, TALL_COPIES if n > num_columns else WIDE_COPIES)
        if n <= EXACT:
            check_memory(n, like, 1, WIDE)

    def _distinct(self, x: Floats, labels: Labels, places: NDArray[np.int64] | None = None) -> Table:
        """The labeled rows without duplicates, with the groups of the encoded columns.

        The first call normalizes the weights; later ones use the same scale.
        """
        if self._weight_scale is not None:
            labels = labels.times(self._class_factors)
        labeled = np.flatnonzero(labels.labeled)
        of_rows = None if places is None else places[labeled]
        kept = distinct_rows(x[labeled], labels.Y[labeled], labels.weights[labeled], of_rows, self._weight_scale)
        if self._weight_scale is None:
            self._weight_scale = kept.scale
        rows = labeled[kept.rows]
        numbers_of = None if kept.places is None or places is None else self._tensor(kept.places)
        shares = None if kept.shares is None else self._tensor(kept.shares)
        y = labels.Y[rows] if labels.soft else labels.numbers[rows]
        d = x.shape[1]
        groups = np.arange(d) if self.encoder_ is None else self.encoder_.groups_
        numbers = np.ones(d, dtype=bool) if self.encoder_ is None else self.encoder_.numbers_
        return Table(
            x=self._tensor(x[rows]),
            y=self._tensor(y),
            weights=None if kept.weights is None else self._tensor(kept.weights),
            groups=self._tensor(groups),
            numbers=self._tensor(numbers),
            num_classes=len(self.classes_),
            units=Units(numbers_of, shares),
            places=kept.places,
        )

    def _learn_pool(self, num_rows: int | None) -> None:
        seed = seed_of(self.random_state) or 0
        with progress_bar(NUM_STAGES, "fit", self.progress) as bar:
            self._take(learn_default(self._table, default_objective(), seed, bar, num_rows))

    def _take(self, pooled: PooledPredictor) -> None:
        assert self.encoder_ is not None
        self.conditioned_ = pooled
        self.embedding_ = pooled.members[int(pooled.pool.weights.argmax())].embeddings[0]
        self.inverse_lengthscales_ = self.encoder_.by_column(pooled.relevances.cpu().numpy())
        self.calibration_ = None
        self.result_ = None

    def _learn_single(self) -> None:
        table = self._table
        learner = SingleKernel.of(self, len(self.classes_))
        self.embedding_, result = learner.learn(table)
        self.result_, self.terms_ = result, result.terms
        with torch.no_grad():
            conditioned = self.embedding_.condition(*table.data, **table.options)
            self.calibration_ = conditioned.calibrated().calibration if self.calibrated else None
        self.conditioned_ = conditioned


def _weighted(
    X: ArrayLike, labels: Labels, places: NDArray[np.int64] | None = None
) -> tuple[ArrayLike, Labels, NDArray[np.int64] | None]:
    """The rows with a positive weight."""
    if not bool((labels.weights == 0).any()):
        return X, labels, places
    rows = np.flatnonzero(labels.weights > 0)
    return _safe_indexing(X, rows), labels.subset(rows), None if places is None else places[rows]
