"""The multiclass embedding as a scikit-learn classifier."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from torch import Tensor

from ..bounds import Bound
from ..embeddings import ConditionedMulticlass, clip_normalize, prediction_sets
from ..learning import FitResult
from ..objectives import Objective, SoftmaxCalibration
from ..objectives.bounds import generalization_bound
from ..runtime import cpu_by_default, few_threads, progress_bar
from ..splits import Floats, RandomState, seed_of
from ..tabular.encoder import TableEncoder, encode_table, plain_matrix, validate_table
from .conditioning import Table
from .default import NUM_STAGES, check_room, learn_default
from .distributed import fit_on_ranks
from .importance import HeldOut, ImportanceMixin, classifier_held_out
from .pooled import PooledPredictor
from .single_kernel import learn_single
from .targets import KernelChoice, Targets, check_settings, read_labels


@dataclasses.dataclass(eq=False, repr=False)
class MulticlassEmbeddingClassifier(ClassifierMixin, ImportanceMixin):
    """A multiclass classifier that learns its kernels, without a validation set, from a table of any kind.

    By default it learns several kernels, on the columns and on their ranks. It validates each on rows that were not
    used for its hyperparameters, and combines them by one convex problem (see the page on the default classifier). With
    ``kernel``, ``objective`` or ``batch_size`` it learns a single kernel instead.

    Args:
        kernel: any GPyTorch kernel, which is copied; or a function that builds one for the training inputs.
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
        distributed: each rank started by ``torchrun`` passes its own rows to :meth:`fit`, and all get the same
            classifier. For one kernel use :class:`kernel_embed.scale.ShardedEmbedding` instead.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Attributes:
        classes_: the labels.
        encoder_: the :class:`kernel_embed.tabular.TableEncoder`; ``None`` for one kernel on a matrix of numbers.
        conditioned_: the pool, with its ``members`` and their weights; or the one embedding with its data.
        embedding_: the learned embedding; of a pool the one with the largest weight, on transformed rows.
        inverse_lengthscales_: how fast the kernels of a pool change along each column, by name, as shares that sum to
            1. For what a column contributes to predictions see :meth:`permutation_importance`.
        calibration_: the :class:`kernel_embed.objectives.SoftmaxCalibration` of one kernel, or ``None``.
        result_: the :class:`kernel_embed.learning.FitResult` of one kernel, or ``None``.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> x, y = load_iris(return_X_y=True)
        >>> classifier = MulticlassEmbeddingClassifier().fit(x[::2], y[::2])
        >>> classifier.score(x[1::2], y[1::2]) > 0.9
        True
    """

    kernel: KernelChoice = None
    objective: Objective[ConditionedMulticlass] | None = None
    _: dataclasses.KW_ONLY
    class_weight: dict[Any, float] | str | None = None
    regularization: float = 0.01
    calibrated: bool = True
    confidence: float = 0.95
    max_evaluations: int = 200
    tolerance: float = 1e-5
    num_restarts: int = 0
    subset_size: int | None = 1000
    batch_size: int | None = None
    num_epochs: int = 200
    learning_rate: float = 0.1
    random_state: RandomState = None
    device: str | None = None
    distributed: bool = False
    progress: bool | None = None

    def fit(
        self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None, groups: ArrayLike | None = None
    ) -> MulticlassEmbeddingClassifier:
        """Learn from a table; n, in ridge, penalties and bounds, is the number of distinct rows.

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
        if not self.distributed:
            return self._fit(X, y, sample_weight, groups=groups)
        if groups is not None:
            raise ValueError("groups are not available with distributed=True. Learn in one process.")
        fit_on_ranks(self, X, y, sample_weight)
        return self

    def _take(self, pooled: PooledPredictor) -> None:
        assert self.encoder_ is not None
        self.conditioned_: PooledPredictor | ConditionedMulticlass = pooled
        self.embedding_ = pooled.members[int(pooled.pool.weights.argmax())].embeddings[0]
        self.inverse_lengthscales_ = self.encoder_.by_column(pooled.relevances.cpu().numpy())
        self.calibration_: SoftmaxCalibration | None = None
        self.result_: FitResult | None = None

    @cpu_by_default()
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
        X, targets, _ = read_labels(X, y, sample_weight, classes, groups).without_zero_weights(X)
        assert targets.classes is not None
        self.classes_, self._importances = targets.classes, None
        self._class_factors = targets.class_factors(self.class_weight)
        targets = targets.times(self._class_factors)
        learns_pool = self.kernel is None and self.objective is None and self.batch_size is None
        self.encoder_ = None
        if learns_pool or plain_matrix(X) is None:
            check_room(len(targets.Y), self.n_features_in_, self.device)
            self.encoder_ = TableEncoder().fit(X, sample_weight=targets.weights)
            check_room(len(targets.Y), len(self.encoder_.encoded_), self.device)
        self._weight_scale: float | None = None
        self._table = self._distinct(X, targets)
        if learns_pool and len(self.classes_) > 1:
            with progress_bar(NUM_STAGES, "fit", self.progress) as bar:
                self._take(learn_default(self._table, seed_of(self.random_state) or 0, bar, num_rows))
            return self
        self.embedding_, self.result_ = learn_single(self, self._table)
        self.terms_ = self.result_.terms
        with torch.no_grad():
            self.conditioned_ = self.embedding_.condition(**self._table.data)
            self.calibration_ = self.conditioned_.calibrated().calibration if self.calibrated else None
        return self

    def _distinct(self, X: ArrayLike, targets: Targets) -> Table:
        """The labeled rows without duplicates; the first call normalizes the weights, later ones use its scale."""
        x, targets = encode_table(self.encoder_, X)[targets.labeled], targets.subset(targets.labeled)
        table = Table.of(x, targets.y, targets, self.encoder_, len(self.classes_), self.device)
        distinct, _, self._weight_scale = table.distinct(self._weight_scale)
        return distinct

    @cpu_by_default()
    def partial_fit(
        self, X: ArrayLike, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
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
        X, targets, _ = read_labels(X, y, sample_weight, self.classes_).without_zero_weights(X)
        new, self._importances = self._distinct(X, targets.times(self._class_factors)), None
        if isinstance(self.conditioned_, PooledPredictor):
            with few_threads(len(self._table.x)):
                self.conditioned_, self._table = self.conditioned_.updated(self._table, new)
        else:
            self.conditioned_ = self.conditioned_.updated(new.x, new.y, new.weights)
            self._table = self._table.joined(new)
        return self

    @property
    def bound_(self) -> Bound | None:
        """The bound of Theorem 4, as published, for one kernel; ``None`` for a pool of kernels or soft labels."""
        return self._bound("paper")

    @property
    def tight_bound_(self) -> Bound | None:
        """The same in its 1/√n form. It measures complexity only, because the kernel was learned on the same rows."""
        return self._bound("tight")

    def _bound(self, form: Literal["paper", "tight"]) -> Bound | None:
        conditioned = getattr(self, "conditioned_", None)
        if not isinstance(conditioned, ConditionedMulticlass) or conditioned.y.dim() == 2:
            return None
        with torch.no_grad():
            return generalization_bound(conditioned, self.confidence, form)

    def decision_function(self, X: ArrayLike) -> Floats:
        """Scores, highest for the predicted class: (n, m), or for two classes (n,) as scikit-learn has it."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def predict_proba(self, X: ArrayLike) -> Floats:
        """Probabilities of ``classes_``: (n, m)."""
        return self._probabilities(self._points(X)).cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable labels."""
        best = self._scores(X).argmax(axis=1)  # raises NotFittedError before there are classes
        return np.asarray(self.classes_[best])

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Conformal sets of classes that contain the true one at about the rate ``coverage``: a mask (n, m).

        See :func:`kernel_embed.embeddings.prediction_sets` for what is guaranteed and when.
        """
        probabilities, table, conditioned = self._probabilities(self._points(X)), self._table, self.conditioned_
        with torch.no_grad():
            if isinstance(conditioned, PooledPredictor):
                left_out, table = conditioned.left_out.exp(), table.subset(conditioned.left_out_rows)
            else:
                left_out = self._calibrated(conditioned.leave_one_out())
        labels = table.rows(table.labels)
        return prediction_sets(left_out, labels, probabilities, coverage, table.weights).cpu().numpy()

    @torch.no_grad()
    def _scores(self, X: ArrayLike) -> Floats:
        x = self._points(X)
        if self.calibration_ is None and not isinstance(self.conditioned_, PooledPredictor):
            return self.conditioned_.evaluate(x).cpu().numpy()
        return self._probabilities(x).clamp_min(1e-300).log().cpu().numpy()

    @torch.no_grad()
    def _probabilities(self, x: Tensor) -> Tensor:
        F = self.conditioned_.evaluate(x)
        return F if isinstance(self.conditioned_, PooledPredictor) else self._calibrated(F)

    def _calibrated(self, F: Tensor) -> Tensor:
        return clip_normalize(F) if self.calibration_ is None else self.calibration_.probabilities(F)

    _loss_name = "negative log probability of the label"

    def _held_out(self, max_rows: int, generator: np.random.Generator) -> Iterator[HeldOut]:
        yield classifier_held_out(self.conditioned_, self._table, self._calibrated, max_rows, generator)
