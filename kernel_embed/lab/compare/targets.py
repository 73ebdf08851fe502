"""What stands in the target column: classes as text or whole numbers, or numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MOST_FRACTIONS = 20
"""A target with more different numbers than these, some of them no whole ones, is continuous."""
MOST_WHOLE = 50
"""One with more different whole numbers than these is a count or a measurement, where the task is not named."""
CLASSIFICATION, REGRESSION = "classification", "regression"
"""Kinds of task: the target is one of few classes, or a number."""


def task_of(cells: pd.Series) -> str:
    """Regression where every target is a number and there are many different ones; otherwise classification.

    Many are more than 20 where some are no whole numbers, more than 50 where all are, or more than half the rows.

    Example:
        >>> task_of(pd.Series(np.linspace(0, 1, 50))), task_of(pd.Series([1, 2] * 25)), task_of(pd.Series(["a", "b"]))
        ('regression', 'classification', 'classification')
    """
    if pd.api.types.is_bool_dtype(cells.dtype):
        return CLASSIFICATION
    known = cells.dropna()
    numbers = pd.to_numeric(known, errors="coerce").astype(np.float64)
    if numbers.empty or not np.isfinite(numbers).all():
        return CLASSIFICATION
    different, whole = numbers.nunique(), bool((numbers % 1 == 0).all())
    many = different > (MOST_WHOLE if whole else MOST_FRACTIONS)
    return REGRESSION if many or (different > 2 and 2 * different > len(numbers)) else CLASSIFICATION


def numbers_of(cells: pd.Series, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Targets as floats, and which rows have one; a clear error for text, which has classes."""
    known = cells.notna().to_numpy()
    values = pd.to_numeric(cells.where(known), errors="coerce").astype(np.float64).to_numpy()
    text = known & np.isnan(values)
    if text.any():
        raise ValueError(
            f"Expected numbers in the target of {name}, got {cells[text].iloc[0]!r}. For classes use "
            "--task classification, or task='classification'."
        )
    if np.isinf(values[known]).any():
        raise ValueError(f"Expected finite numbers in the target of {name}, got infinity. Make such cells empty.")
    return values, known


def labels_of(cells: pd.Series) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels as whole numbers where all of them are, as text otherwise; and which rows have one."""
    known = cells.notna().to_numpy()
    numbers = pd.to_numeric(cells.where(known), errors="coerce").astype(np.float64)
    whole = np.isfinite(numbers[known]).all() and (np.abs(numbers[known]) < 2**53).all()
    if whole and known.any() and (numbers[known] % 1 == 0).all() and not pd.api.types.is_bool_dtype(cells.dtype):
        return numbers.where(known, 0.0).astype(np.int64).to_numpy(), known
    return np.array([str(cell).strip() if k else "" for cell, k in zip(cells, known, strict=True)]), known


def are_numbers(classes: NDArray[Any]) -> bool:
    """Whether labels that are text, because some are no whole numbers, are numbers all the same."""
    return classes.dtype.kind == "U" and bool(pd.to_numeric(pd.Series(classes), errors="coerce").notna().all())
