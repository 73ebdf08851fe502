"""The target column: classes as text or whole numbers, or numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MOST_FRACTIONS = 20
"""A target with more different numbers, not all of them whole, is continuous."""
MOST_WHOLE = 50
"""A target with more different whole numbers is a count or a measurement, unless the task is given."""
CLASSIFICATION, REGRESSION = "classification", "regression"
"""The tasks: the target is one of few classes, or a number."""


def task_of(cells: pd.Series) -> str:
    """Regression if every target is a number and there are many different ones; otherwise classification.

    Many means more than 20 if not all are whole numbers, more than 50 if all are, or more than half the rows.

    Example:
        >>> task_of(pd.Series(np.linspace(0, 1, 50))), task_of(pd.Series([1, 2] * 25)), task_of(pd.Series(["a", "b"]))
        ('regression', 'classification', 'classification')
    """
    if pd.api.types.is_bool_dtype(cells.dtype):
        return CLASSIFICATION
    numbers = pd.to_numeric(cells.dropna(), errors="coerce").astype(np.float64)
    if numbers.empty or not np.isfinite(numbers).all():
        return CLASSIFICATION
    different, whole = numbers.nunique(), bool((numbers % 1 == 0).all())
    many = different > (MOST_WHOLE if whole else MOST_FRACTIONS)
    return REGRESSION if many or (different > 2 and 2 * different > len(numbers)) else CLASSIFICATION


def numbers_of(cells: pd.Series, name: str) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Targets as floats, and which rows have one."""
    has_label = cells.notna().to_numpy()
    values = pd.to_numeric(cells.where(has_label), errors="coerce").astype(np.float64).to_numpy()
    text = has_label & np.isnan(values)
    if text.any():
        raise ValueError(
            f"The target of {name} is not a number in every row: {cells[text].iloc[0]!r}. For classes use "
            "--task classification, or task='classification'."
        )
    if np.isinf(values[has_label]).any():
        raise ValueError(f"The target of {name} is infinite in some rows. Make such cells empty.")
    return values, has_label


def labels_of(cells: pd.Series) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Labels as whole numbers if all of them are, otherwise as text; and which rows have one."""
    has_label = cells.notna().to_numpy()
    numbers = pd.to_numeric(cells.where(has_label), errors="coerce").astype(np.float64)
    whole = np.isfinite(numbers[has_label]).all() and (np.abs(numbers[has_label]) < 2**53).all()
    if (
        whole
        and has_label.any()
        and (numbers[has_label] % 1 == 0).all()
        and not pd.api.types.is_bool_dtype(cells.dtype)
    ):
        return numbers.where(has_label, 0.0).astype(np.int64).to_numpy(), has_label
    return np.array(
        [str(cell).strip() if known else "" for cell, known in zip(cells, has_label, strict=True)]
    ), has_label


def are_numbers(classes: NDArray[Any]) -> bool:
    """Whether labels are numbers in text form, because not all of them are whole."""
    return classes.dtype.kind == "U" and bool(pd.to_numeric(pd.Series(classes), errors="coerce").notna().all())
