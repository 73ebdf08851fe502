"""Labels that a classifier reads (any type, soft, missing, weighted), and the predictions of a fitted one."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _num_samples, check_is_fitted

from ..bounds import Bound
from ..embeddings import ConditionedMulticlass, MulticlassEmbedding, clip_normalize, prediction_sets
from ..learning import FitResult
from ..objectives import SoftmaxCalibration
from ..objectives.bounds import generalization_bound
from ..tabular.column_encoders import is_missing
from ..tabular.encoder import TableEncoder, label_array, plain_matrix, table_tags, validate_table
from .conditioning import Table
from .importance import HeldOut, ImportanceMixin, classifier_held_out
from .pooled import PooledPredictor
from .targets import read_weights

Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Labels:
    """The classes of n rows.

    Attributes:
        classes: the m labels, in order.
        numbers: the class number of each row, −1 for rows without a label; for soft labels the most probable class.
        Y: one-hot or soft labels, ``(n, m)``.
        soft: whether rows have probabilities.
        weights: how many rows each row stands for.
        weighted: whether weights were passed.
    """

    classes: NDArray[Any]
    numbers: NDArray[np.int64]
    Y: Floats
    soft: bool
    weights: Floats
    weighted: bool

    @property
    def labeled(self) -> NDArray[np.bool_]:
        """Which rows have a label."""
        labeled: NDArray[np.bool_] = self.numbers >= 0
        return labeled

    @property
    def weights_or_none(self) -> Floats | None:
        """The weights; ``None`` if none were passed."""
        return self.weights if self.weighted else None

    def class_factors(self, class_weight: dict[Any, float] | str | None) -> Floats | None:
        """The factor of the weight of each class, from ``class_weight``: ``(m,)``."""
        if class_weight is None:
            return None
        if isinstance(class_weight, str) and class_weight == "balanced":
            total: Floats = self.weights[self.labeled] @ self.Y[self.labeled]
            factors: Floats = total.sum() / (len(total) * np.where(total > 0, total, np.inf))
        else:
            of_row = self.classes[self.numbers[self.labeled]]
            factors = compute_class_weight(class_weight, classes=self.classes, y=of_row)
        return factors

    def times(self, factors: Floats | None) -> Labels:
        """The labels with weights multiplied by the ``factors`` of the classes."""
        weights = None if factors is None else self.weights * (self.Y @ factors)
        return self if weights is None else dataclasses.replace(self, weights=weights, weighted=True)

    def subset(self, rows: NDArray[np.int64]) -> Labels:
        """The labels of some rows."""
        parts = {name: getattr(self, name)[rows] for name in ("numbers", "Y", "weights")}
        return dataclasses.replace(self, **parts)

    def weights_of(self, rows: NDArray[np.int64]) -> Floats | None:
        """The weights of some rows."""
        return self.weights[rows] if self.weighted else None


def read_labels(
    X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None, classes: ArrayLike | None = None
) -> Labels:
    """The labels of the rows of ``X``, among ``classes`` if they are given; see :class:`Labels`."""
    n = _num_samples(X)
    if y is None:
        raise ValueError(
            "Expected labels y, got None. This MulticlassEmbeddingClassifier estimator requires y to be passed, but "
            "the target y is None."
        )
    try:
        array = np.asarray(y)
    except (TypeError, RuntimeError) as error:  # a tensor with a layout of its own
        raise TypeError(
            f"y cannot be read as an array of labels: it is a {type(y).__name__} ({error}). "
            "Pass one label for each row."
        ) from error
    soft = array.ndim == 2 and array.shape[1] > 1
    expected = None if classes is None else np.unique(np.asarray(classes))
    names, numbers, Y = _soft(array) if soft else _hard(y, expected)
    if soft and expected is not None and len(expected) != len(names):
        raise ValueError(
            f"y has {len(names)} columns of probabilities, but there are {len(expected)} classes. "
            "Pass one column for each class."
        )
    if len(numbers) != n:
        raise ValueError(
            f"Expected one label for each of the {n} rows of X, got {len(numbers)}: inconsistent numbers of samples. "
            "Give X and y of equal length."
        )
    if not bool((numbers >= 0).any()):
        raise ValueError("No row of y has a label. At least one is needed.")
    weights = read_weights(sample_weight, n)
    if not bool((weights[numbers >= 0] > 0).any()):
        raise ValueError(
            "sample_weight is zero for every row with a label. Pass a positive weight for some rows, or none at all."
        )
    return Labels(names if expected is None else expected, numbers, Y, soft, weights, sample_weight is not None)


def _hard(y: ArrayLike, classes: NDArray[Any] | None) -> tuple[NDArray[Any], NDArray[np.int64], Floats]:
    array = column_or_1d(label_array(y), warn=True)
    if array.dtype.kind == "f" and bool(np.isinf(array).any()):
        raise ValueError(
            "Expected labels, got infinities. Input y contains infinity or a value too large for dtype('float64')."
        )
    may_miss = array.dtype.kind in "fO"
    missing = np.array([may_miss and is_missing(label) for label in array], dtype=bool)
    present = array[~missing]
    if len(present) == 0:
        raise ValueError("No row of y has a label: Input y contains NaN only, or is empty.")
    present = label_array(present)
    if bool(missing.any()):
        warnings.warn(
            f"{int(missing.sum())} of {len(array)} rows have no label: they are skipped, and only scale the columns.",
            stacklevel=5,
        )
    check_classification_targets(present)
    names, inverse = np.unique(present, return_inverse=True)
    if classes is None:
        classes = names
    elif bool((unexpected := ~np.isin(names, classes)).any()):
        raise ValueError(
            f"Expected labels among {classes.tolist()}, got {names[unexpected].tolist()}. Name all classes in "
            "the first call, partial_fit(X, y, classes=...), or fit again."
        )
    else:
        inverse = np.searchsorted(classes, names)[inverse]
    numbers = np.full(len(array), -1, dtype=np.int64)
    numbers[~missing] = inverse
    Y = np.zeros((len(array), len(classes)))
    Y[np.flatnonzero(~missing), inverse] = 1.0
    return classes, numbers, Y


def _soft(array: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], Floats]:
    try:
        Y = array.astype(np.float64)
    except (TypeError, ValueError):
        Y = np.full(array.shape, np.inf)
    labeled = ~np.isnan(Y).any(axis=1)
    fits = (Y[labeled] >= 0).all() and bool(np.allclose(Y[labeled].sum(axis=1), 1.0, atol=1e-4))
    if not fits:
        raise ValueError(
            f"Expected y as labels, one for each row, or as soft labels, rows of probabilities that add up to 1, got "
            f"shape {array.shape} with other values. For several labels a row use "
            "sklearn.multioutput.MultiOutputClassifier."
        )
    Y[~labeled] = 0.0
    return np.arange(Y.shape[1]), np.where(labeled, Y.argmax(axis=1), -1), Y


class ClassifierPredictions(ClassifierMixin, ImportanceMixin):
    """The predictions of :class:`kernel_embed.MulticlassEmbeddingClassifier`, from the attributes that ``fit`` sets."""

    classes_: NDArray[Any]
    encoder_: TableEncoder | None
    conditioned_: PooledPredictor | ConditionedMulticlass
    embedding_: MulticlassEmbedding
    calibration_: SoftmaxCalibration | None
    result_: FitResult | None
    inverse_lengthscales_: dict[str, float]
    _table: Table
    _class_factors: Floats | None
    _weight_scale: float | None
    confidence: float
    device: str | None

    @property
    def bound_(self) -> Bound | None:
        """The bound of Theorem 4 of the decision probabilities of one kernel, as published; of a pool ``None``."""
        return self._bound("paper")

    @property
    def tight_bound_(self) -> Bound | None:
        """The same in its 1/√n form. It measures complexity only, because the kernel was learned on the same rows."""
        return self._bound("tight")

    def _bound(self, form: Any) -> Bound | None:
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
        best = self._scores(X).argmax(axis=1)  # raises NotFittedError before there are classes
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def predict_set(self, X: ArrayLike, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Conformal sets of classes that contain the true one at about the rate ``coverage``: a mask (n, m).

        See :func:`kernel_embed.embeddings.prediction_sets` for what is guaranteed and when.
        """
        probabilities = self._probabilities(self._encode(X))
        left_out, y, weights = self._left_out()
        return prediction_sets(left_out, y, probabilities, coverage, weights).cpu().numpy()

    @torch.no_grad()
    def _left_out(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Leave-one-out probabilities of training rows, their (most probable) classes, and their weights."""
        y = self._table.y if self._table.y.dim() == 1 else self._table.y.argmax(-1)
        if isinstance(self.conditioned_, PooledPredictor):
            rows = self.conditioned_.left_out_rows
            return self.conditioned_.left_out.exp(), y[rows], self._table.weights_of(rows)
        return self._calibrated(self.conditioned_.leave_one_out()), y, self._table.weights

    _loss_name = "negative log probability of the label"

    def _held_out(self, max_rows: int, generator: np.random.Generator) -> Iterator[HeldOut]:
        yield classifier_held_out(self.conditioned_, self._table, self._calibrated, max_rows, generator)

    def _scores(self, X: ArrayLike) -> Floats:
        x = self._encode(X)
        if self.calibration_ is None and not isinstance(self.conditioned_, PooledPredictor):
            return self._decision_probabilities(x).cpu().numpy()
        return self._probabilities(x).clamp_min(1e-300).log().cpu().numpy()

    @torch.no_grad()
    def _probabilities(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.conditioned_, PooledPredictor):
            return self.conditioned_.evaluate(x)
        return self._calibrated(self._decision_probabilities(x))

    def _calibrated(self, F: torch.Tensor) -> torch.Tensor:
        return clip_normalize(F) if self.calibration_ is None else self.calibration_.probabilities(F)

    @torch.no_grad()
    def _decision_probabilities(self, x: torch.Tensor) -> torch.Tensor:
        return self.conditioned_.evaluate(x)

    def _encode(self, X: ArrayLike) -> torch.Tensor:
        check_is_fitted(self)
        return self._tensor(self._matrix(validate_table(self, X, reset=False)))

    def _matrix(self, X: ArrayLike) -> Floats:
        if self.encoder_ is not None:
            return self.encoder_.transform(X)
        matrix = plain_matrix(X)
        if matrix is None:
            raise ValueError("X must be a matrix of numbers without missing values, as in training. Impute them first.")
        return matrix

    def _tensor(self, array: NDArray[Any]) -> torch.Tensor:
        # A copy: the caller may change the array later, and read-only arrays are allowed.
        return torch.tensor(array, device=self.device or "cpu")

    def __sklearn_tags__(self) -> Any:
        return table_tags(super().__sklearn_tags__())
