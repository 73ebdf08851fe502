"""What the estimators read: labels of any type, soft, missing or weighted; real targets; weights; kernels."""

from __future__ import annotations

import dataclasses
import inspect
import math
import warnings
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils import _safe_indexing, column_or_1d
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_y, _num_samples, check_consistent_length

from ..splits import Floats, Integers, group_numbers
from ..tabular.column_encoders import is_missing
from ..tabular.encoder import label_array, on_host
from ..validation import check_dense

KernelChoice: TypeAlias = Kernel | Callable[[torch.Tensor], Kernel] | None


@dataclasses.dataclass(frozen=True)
class Targets:
    """The targets of n rows."""

    Y: Floats  # one-hot or soft labels (n, m), zeros for a row without a label; or real targets (n, outputs)
    weights: Floats | None  # how many rows each row stands for
    groups: Integers | None = None  # the number of the group of each row
    classes: NDArray[Any] | None = None  # the m labels, in order; None for real targets
    soft: bool = False  # whether rows have probabilities

    @property
    def labeled(self) -> Integers:
        """The numbers of the rows with a label."""
        return np.flatnonzero(self.Y.any(axis=1))

    @property
    def y(self) -> NDArray[Any]:
        """Soft labels, or the class number of each row, the most probable one."""
        return self.Y if self.soft else self.Y.argmax(axis=1)

    def class_factors(self, class_weight: dict[Any, float] | str | None) -> Floats | None:
        """The factor of the weight of each class, from ``class_weight``: ``(m,)``."""
        if class_weight is None:
            return None
        rows = self.labeled
        if isinstance(class_weight, str) and class_weight == "balanced":
            total: Floats = (np.ones(len(rows)) if self.weights is None else self.weights[rows]) @ self.Y[rows]
            return np.asarray(total.sum() / (len(total) * np.where(total > 0, total, np.inf)))
        assert self.classes is not None
        of_row = self.classes[self.Y[rows].argmax(axis=1)]
        return np.asarray(compute_class_weight(class_weight, classes=self.classes, y=of_row))

    def times(self, factors: Floats | None) -> Targets:
        """The same with weights multiplied by the ``factors`` of the classes."""
        if factors is None:
            return self
        of_rows = self.Y @ factors
        return dataclasses.replace(self, weights=of_rows if self.weights is None else self.weights * of_rows)

    def subset(self, rows: Integers) -> Targets:
        """The targets of some rows."""
        weights = None if self.weights is None else self.weights[rows]
        groups = None if self.groups is None else self.groups[rows]
        return dataclasses.replace(self, Y=self.Y[rows], weights=weights, groups=groups)

    def without_zero_weights(self, X: Any) -> tuple[Any, Targets, Integers]:
        """The rows of ``X`` with a positive weight, their targets, and their numbers."""
        if self.weights is None or bool((self.weights > 0).all()):
            return X, self, np.arange(len(self.Y))
        rows = np.flatnonzero(self.weights > 0)
        return _safe_indexing(X, rows), self.subset(rows), rows


def read_labels(
    X: Any,
    y: ArrayLike | None,
    sample_weight: ArrayLike | None,
    classes: ArrayLike | None = None,
    groups: ArrayLike | None = None,
) -> Targets:
    """The labels of the rows of ``X``, among ``classes`` if they are given."""
    n = _num_samples(X)
    _check_given(y, "labels", "MulticlassEmbeddingClassifier")
    try:
        array = np.asarray(y)
    except (TypeError, RuntimeError) as error:  # a sparse tensor, for example
        raise TypeError(f"Expected y as labels, one for each row, got {type(y).__name__} ({error}).") from error
    soft = array.ndim == 2 and array.shape[1] > 1
    expected = None if classes is None else np.unique(np.asarray(classes))
    names, Y = _soft(array, expected) if soft else _hard(y, expected)
    if len(Y) != n:
        raise ValueError(f"Expected one label for each of {n} rows, got {len(Y)}: inconsistent numbers of samples.")
    if not Y.any():
        raise ValueError("No row of y has a label. At least one is needed.")
    targets = Targets(Y, read_weights(sample_weight, n), group_numbers(groups, n), names, soft)
    if targets.weights is not None and not bool((targets.weights[targets.labeled] > 0).any()):
        raise ValueError("sample_weight is zero for every row with a label. Pass a positive weight for some rows.")
    return targets


def _check_given(y: ArrayLike | None, what: str, estimator: str) -> None:
    if y is None:  # in scikit-learn's words, which its estimator checks look for
        raise ValueError(
            f"Expected {what} y, got None. This {estimator} requires y to be passed, but the target y is None."
        )


def _hard(y: ArrayLike | None, classes: NDArray[Any] | None) -> tuple[NDArray[Any], Floats]:
    """All classes, and one-hot rows, which are zero without a label."""
    array = column_or_1d(label_array(y), warn=True)
    if array.dtype.kind == "f" and bool(np.isinf(array).any()):
        raise ValueError("Expected labels. Input y contains infinity or a value too large for dtype('float64').")
    may_miss = array.dtype.kind in "fO"
    missing = np.array([may_miss and is_missing(label) for label in array], dtype=bool)
    if bool(missing.all()):
        raise ValueError("No row of y has a label: Input y contains NaN only, or is empty.")
    present = label_array(array[~missing])
    if bool(missing.any()):
        warnings.warn(
            f"{int(missing.sum())} of {len(array)} rows have no label: they are skipped, and only scale the columns.",
            stacklevel=5,
        )
    check_classification_targets(present)
    names, numbers = np.unique(present, return_inverse=True)
    if classes is None:
        classes = names
    elif bool((unexpected := ~np.isin(names, classes)).any()):
        raise ValueError(
            f"Expected labels among {classes.tolist()}, got {names[unexpected].tolist()}. Fit again, or name all "
            "classes in the first call, partial_fit(X, y, classes=...)."
        )
    Y = np.zeros((len(array), len(classes)))
    Y[np.flatnonzero(~missing), np.searchsorted(classes, names)[numbers]] = 1.0
    return classes, Y


def _soft(array: NDArray[Any], classes: NDArray[Any] | None) -> tuple[NDArray[Any], Floats]:
    """All classes, and probabilities, which are zero without a label."""
    try:
        Y = array.astype(np.float64)
    except (TypeError, ValueError):
        Y = np.full(array.shape, np.inf)
    labeled = ~np.isnan(Y).any(axis=1)
    if not ((Y[labeled] >= 0).all() and np.allclose(Y[labeled].sum(axis=1), 1.0, atol=1e-4)):
        raise ValueError(
            f"Expected y as labels, one for each row, or as soft labels, rows of probabilities that add up to 1, got "
            f"shape {array.shape}. For several labels a row use sklearn.multioutput.MultiOutputClassifier."
        )
    if classes is not None and len(classes) != Y.shape[1]:
        raise ValueError(f"Expected y with one column for each of {len(classes)} classes, got {Y.shape[1]} columns.")
    Y[~labeled] = 0.0
    return np.arange(Y.shape[1]) if classes is None else classes, Y


def read_numbers(
    X: Any, y: ArrayLike | None, sample_weight: ArrayLike | None, groups: ArrayLike | None
) -> tuple[Targets, bool]:
    """The real targets of the rows of ``X``, and whether ``y`` has a dimension for outputs."""
    _check_given(y, "numbers", "ConditionalEmbeddingRegressor")
    y = on_host(y)
    _check_numeric(y)
    try:
        targets = np.asarray(_check_y(y, multi_output=True, y_numeric=True), dtype=np.float64)
    except OverflowError as error:
        raise ValueError("A target is beyond the range of float64. Rescale y.") from error
    check_consistent_length(X, targets)
    if targets.size == 0:
        raise ValueError(f"y has no rows or no columns: its shape is {targets.shape}.")
    if np.isnan(targets).any():
        raise ValueError(f"y has {int(np.isnan(targets).sum())} missing values. Leave those rows out.")
    largest = float(np.abs(targets).max())
    if not largest < np.finfo(np.float64).max ** 0.5:
        raise ValueError(f"The squares of targets up to {largest:.2g} overflow in float64. Rescale y.")
    n = len(targets)
    weights = read_weights(sample_weight, n)
    if weights is not None and not bool((weights > 0).any()):
        raise ValueError("sample_weight is zero for every row. Pass a positive weight for some rows.")
    return Targets(targets.reshape(n, -1), weights, group_numbers(groups, n)), targets.ndim == 2


def _check_numeric(y: Any) -> None:
    """Raise for text (and suggest the classifier), dates, sparse or complex targets, and missing values."""
    if isinstance(y, torch.Tensor):
        check_dense(y, "y")
    if issparse(y):
        raise TypeError("y must be a dense array of numbers; got a sparse matrix. Pass y.toarray().ravel().")
    values = np.asarray(y)
    kind = values.dtype.kind
    if kind in "mM":
        raise ValueError(
            f"Expected numbers as targets, got {values.dtype}. Choose a unit, for example days since the first: "
            "(y - y.min()) / np.timedelta64(1, 'D')."
        )
    if kind in "USO" and values.size and any(isinstance(value, str) for value in values.ravel()[:100]):
        first = next(str(value) for value in values.ravel() if isinstance(value, str))
        advice = "Give y.astype(float)" if _is_number(first) else "Use MulticlassEmbeddingClassifier for classes"
        raise ValueError(f"Expected numbers as targets, got text such as {first!r}. {advice}.")
    if kind == "c":
        raise ValueError(f"Expected real targets, got {values.dtype}: Complex data not supported. Pass y.real.")
    if kind == "f" and not np.isfinite(values).all():
        # scikit-learn's estimator checks look for these words.
        gaps = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
        what = "NaN" if np.isnan(values).any() else "infinity or a value too large for dtype('float64')"
        raise ValueError(
            f"Expected a finite number in each target, got {len(gaps)} rows without one, the first at index {gaps[0]}: "
            f"Input y contains {what}. Leave those rows out."
        )


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def read_weights(sample_weight: ArrayLike | None, n: int) -> Floats | None:
    """Checked sample weights: how many rows each row stands for, ``(n,)``."""
    if sample_weight is None:
        return None
    weights = np.array(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must have one number for each of {n} rows, but has shape {weights.shape}.")
    if not bool(np.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError("sample_weight must be finite and not negative. Look for NaN or negative values.")
    return weights


def check_settings(kernel: KernelChoice, regularization: float, confidence: float) -> None:
    """Raise for invalid settings, before anything is learned."""
    if not 0.0 < regularization < math.inf:
        raise ValueError(f"Expected a positive, finite regularization, got {regularization}. Usual is 0.01.")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"Expected confidence between 0 and 1, got {confidence}. Usual is 0.95.")
    if isinstance(kernel, type):
        raise TypeError(f"Expected a kernel, got the class {kernel.__name__}. Write {kernel.__name__}().")
    if isinstance(kernel, Kernel) and len(kernel.batch_shape) > 0:
        shape = tuple(kernel.batch_shape)
        raise ValueError(f"Expected a kernel without batch shape, got {shape}. Fit one classifier for each element.")
    if not callable(kernel) or isinstance(kernel, Kernel):
        return
    try:
        signature = inspect.signature(kernel)
    except ValueError:
        return  # a built-in function need not have a signature
    try:
        signature.bind(None)
    except TypeError as error:
        raise TypeError(
            f"kernel must be a kernel, or a function of the training inputs alone; this function takes {signature}. "
            "Pass one such as lambda x: RBFKernel()."
        ) from error
