"""Numeric targets that the regressor reads, and weights of rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import issparse
from sklearn.utils.validation import _check_y, check_consistent_length

from ..validation import check_dense


def read_targets(X: Any, y: ArrayLike | None) -> NDArray[np.float64]:
    """The targets of the rows of ``X`` as numbers, ``(n,)`` or ``(n, outputs)``."""
    if y is None:
        raise ValueError(
            "Expected numbers y, got None. This ConditionalEmbeddingRegressor estimator requires y to be passed, but "
            "the target y is None."
        )
    check_numeric_targets(y)
    try:
        targets = np.asarray(_check_y(y, multi_output=True, y_numeric=True), dtype=np.float64)
    except OverflowError as error:
        raise ValueError("A target is beyond the range of float64. Rescale y.") from error
    check_consistent_length(X, targets)
    if targets.size == 0:
        raise ValueError(f"y has no rows or no columns: its shape is {targets.shape}.")
    if np.isnan(targets).any():
        missing = int(np.isnan(targets).sum())
        raise ValueError(f"y has {missing} missing values. Leave those rows out.")
    largest = float(np.abs(targets).max())
    if not largest < np.finfo(np.float64).max ** 0.5:
        raise ValueError(f"The squares of targets up to {largest:.2g} overflow in float64. Rescale y.")
    return targets


def check_numeric_targets(y: ArrayLike) -> None:
    """Raise for text (and suggest the classifier), dates, sparse or complex targets, and missing values."""
    if isinstance(y, torch.Tensor):
        check_dense(y, "y")
    if issparse(y):
        raise TypeError("y must be a dense array of numbers; got a sparse matrix. Pass y.toarray().ravel().")
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
        raise ValueError(
            f"Expected real targets, got {values.dtype}: Complex data not supported. Pass y.real, for example."
        )
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        # scikit-learn's estimator checks look for these words.
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


def read_weights(sample_weight: ArrayLike | None, n: int) -> NDArray[np.float64]:
    """Check sample weights: how many rows each row stands for, ``(n,)``."""
    if sample_weight is None:
        return np.ones(n)
    weights = np.array(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise ValueError(
            f"sample_weight must have shape ({n},), one number for each row, but has shape {weights.shape}. "
            "Pass a vector as long as y."
        )
    if not bool(np.isfinite(weights).all()) or bool((weights < 0).any()):
        raise ValueError("sample_weight must be finite and not negative. Look for NaN or negative values.")
    return weights
