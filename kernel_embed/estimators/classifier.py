"""The multiclass embedding as a scikit-learn classifier."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding, clip_normalize, prediction_sets
from ..learning import FitResult
from ..objectives import GeneralizationBound, Objective, SoftmaxCalibration, calibrate, default_objective
from ..objectives.bounds import generalization_bound
from ..progress import progress_bar
from .conditioning import Table
from .default import NUM_STAGES, learn_default
from .labels import Labels, read_labels
from .pooled import PooledAnswers
from .random_state import RandomState, seed_of
from .rows import distinct_rows
from .single import KernelChoice, SingleKernel, check_settings
from .table import TableEncoder, plain_matrix, validated

Floats = NDArray[np.float64]


class MulticlassEmbeddingClassifier(ClassifierMixin, BaseEstimator):
    """A multiclass classifier that learns its kernels, without a validation set, from a table of any kind.

    As it is, it learns several kernels on rows as they are and by their ranks, each with hyperparameters that have not
    seen the rows they are judged by, and combines them in one convex solve (see the page on the default classifier).
    With ``kernel``, ``objective`` or ``batch_size`` it learns that one kernel instead.

    Args:
        kernel: any GPyTorch kernel, which is copied and never changed; or a function that builds one for the training
            inputs.
        objective: what learning minimizes; ``None`` for :func:`kernel_embed.default_objective`.
        class_weight: how many times as frequent each label is taken to be where the classifier is used, as a dict;
            ``"balanced"`` makes all equally frequent. Probabilities are multiplied by it and normalized; what is
            learned is the same.
        regularization: the starting value of λ, for one kernel.
        calibrated: report probabilities calibrated on leave-one-out values
            (:func:`kernel_embed.objectives.calibrate`); otherwise the clip-normalized ones of eq. (6). For one kernel.
        confidence: 1 − β of the bound that is reported.
        max_evaluations: a limit for the optimizer, for one kernel.
        tolerance: see :func:`kernel_embed.fit`, for one kernel.
        num_restarts: further starts of the optimizer, for one kernel.
        subset_size: with at least twice as many rows, learning one kernel starts on a random subset of this size, and
            goes on with all rows from there; ``None`` starts with all rows.
        batch_size: learn one kernel with mini-batches of this size (Algorithm 1).
        num_epochs: epochs, with mini-batches.
        learning_rate: of Adam, with mini-batches.
        random_state: seed of every random choice.
        device: where to compute; ``None`` for the CPU.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Attributes:
        classes_: the labels.
        encoder_: the :class:`kernel_embed.estimators.TableEncoder` of the columns; ``None`` where one kernel sees a
            matrix of numbers as it is.
        conditioned_: what answers every question: :class:`kernel_embed.estimators.PooledAnswers`, or the one embedding
            with its data.
        embedding_: the learned embedding; of a pool the one with the largest weight, on warped rows.
        feature_relevances_: what each column counts, by name; they add up to 1. Not for one kernel.
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
        self.progress = progress

    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> MulticlassEmbeddingClassifier:
        """Learn from a table.

        Args:
            X: a matrix, or a data frame with numbers, texts, booleans, dates and missing cells.
            y: labels of any kind; or soft labels, one row of probabilities each. Rows without a label (NaN or None)
                take part in the scaling of columns alone.
            sample_weight: how many rows each row stands for.
        """
        check_settings(self.kernel, self.regularization, self.confidence)
        X = validated(self, X, reset=True)
        labels = read_labels(X, y, sample_weight)
        if bool((labels.weights == 0).any()):
            # A row of weight 0 is not there.
            rows = np.flatnonzero(labels.weights > 0)
            X, labels = _safe_indexing(X, rows), labels.taken(rows)
        self.classes_ = labels.classes
        factors = labels.class_factors(self.class_weight)
        self._class_factors = None if factors is None else self._tensor(factors)
        self._learns_pool = self.kernel is None and self.objective is None and self.batch_size is None
        matrix = None if self._learns_pool else plain_matrix(X)
        self.encoder_: TableEncoder | None = None
        if matrix is None:
            self.encoder_ = TableEncoder().fit(X, sample_weight=labels.weights_or_none)
            matrix = self.encoder_.transform(X)
        self._table = self._distinct(matrix, labels)
        if self._learns_pool and len(self.classes_) > 1:
            self._learn_pool()
        else:
            self._learn_single()
        return self

    def _distinct(self, x: Floats, labels: Labels) -> Table:
        """Rows with a label, equal ones once, with what the numbers are."""
        known = np.flatnonzero(labels.known)
        kept = distinct_rows(x[known], labels.Y[known], labels.weights_of(known))
        rows = known[kept.rows]
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
        )

    def _learn_pool(self) -> None:
        assert self.encoder_ is not None
        seed = seed_of(self.random_state) or 0
        with progress_bar(NUM_STAGES, "fit", self.progress) as bar:
            pooled = learn_default(self._table, default_objective(), seed, bar)
        self.conditioned_: PooledAnswers | ConditionedMulticlass = pooled
        self.embedding_: MulticlassEmbedding = pooled.members[int(pooled.pool.weights.argmax())].embeddings[0]
        self.feature_relevances_ = self.encoder_.by_column(pooled.relevances.cpu().numpy())
        self.calibration_: SoftmaxCalibration | None = None
        self.result_: FitResult | None = None

    def _learn_single(self) -> None:
        objective = self.objective if self.objective is not None else default_objective()
        learner = SingleKernel(
            self.kernel,
            objective,
            len(self.classes_),
            self.regularization,
            self.max_evaluations,
            self.tolerance,
            self.num_restarts,
            self.subset_size,
            self.batch_size,
            self.num_epochs,
            self.learning_rate,
            seed_of(self.random_state),
            self.progress,
        )
        table = self._table
        self.embedding_, result = learner.learn(table.x, table.y, table.weights)
        self.result_, self.terms_ = result, result.terms
        with torch.no_grad():
            conditioned = self.embedding_.condition(table.x, table.y, table.weights)
            self.calibration_ = None
            if self.calibrated:
                self.calibration_ = calibrate(conditioned.leave_one_out(), conditioned.Y, weights=table.weights)
        self.conditioned_ = conditioned

    @property
    def bound_(self) -> GeneralizationBound | None:
        """The bound of Theorem 4 of the decision probabilities of one kernel, as published; of a pool ``None``."""
        return self._bound("paper")

    @property
    def tight_bound_(self) -> GeneralizationBound | None:
        """The same in its 1/√n form, a measure of complexity, since the kernel saw the same rows."""
        return self._bound("tight")

    def _bound(self, form: Any) -> GeneralizationBound | None:
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
        return self._probabilities(self._encode(X)).cpu().numpy()

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable labels."""
        scores = self._scores(X)
        labels: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return labels

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Conformal sets of classes that hold the true one at about the rate ``coverage``: (n, m), true for members.

        See :func:`kernel_embed.embeddings.prediction_sets` for what is guaranteed and when.
        """
        probabilities = self._probabilities(self._encode(X))
        left_out, y = self._left_out()
        return prediction_sets(left_out, y, probabilities, coverage).cpu().numpy()

    @torch.no_grad()
    def _left_out(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Probabilities of training rows by what has not seen them, and their (most probable) classes."""
        y = self._table.y if self._table.y.dim() == 1 else self._table.y.argmax(-1)
        if isinstance(self.conditioned_, PooledAnswers):
            return self._reweighted(self.conditioned_.left_out.exp()), y[self.conditioned_.left_out_rows]
        return self._calibrated(self.conditioned_.leave_one_out()), y

    def _scores(self, X: ArrayLike) -> Floats:
        x = self._encode(X)
        plain = self.calibration_ is None and self._class_factors is None
        if plain and not isinstance(self.conditioned_, PooledAnswers):
            return self._decision_probabilities(x).cpu().numpy()
        return self._probabilities(x).clamp_min(1e-300).log().cpu().numpy()

    @torch.no_grad()
    def _probabilities(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.conditioned_, PooledAnswers):
            return self._reweighted(self.conditioned_.probabilities(x))
        return self._calibrated(self._decision_probabilities(x))

    def _calibrated(self, F: torch.Tensor) -> torch.Tensor:
        return self._reweighted(clip_normalize(F) if self.calibration_ is None else self.calibration_.probabilities(F))

    def _reweighted(self, p: torch.Tensor) -> torch.Tensor:
        return p if self._class_factors is None else clip_normalize(p * self._class_factors.to(p))

    @torch.no_grad()
    def _decision_probabilities(self, x: torch.Tensor) -> torch.Tensor:
        return self.conditioned_.decision_probabilities(x)

    def _encode(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        X = validated(self, X, reset=False)
        if self.encoder_ is not None:
            return self._tensor(self.encoder_.transform(X))
        matrix = plain_matrix(X)
        if matrix is None:
            raise ValueError("Expected numbers without missing cells, as in training, got others. Impute them first.")
        return self._tensor(matrix)

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        # A copy: the classifier keeps its data when the caller's array changes, and read-only arrays are welcome.
        return torch.tensor(array, device=self.device or "cpu")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        return tags
