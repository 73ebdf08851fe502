"""The target of a user's table: its task, its values, and errors where nothing can be learned from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .reading import listed
from .tasks import TASKS

MOST_FRACTIONS = 20
"""A target with more different numbers, not all of them whole, is continuous."""
MOST_WHOLE = 50
"""A target with more different whole numbers is a count or a measurement, unless the task is given."""
FEWEST_ROWS = 10
FEWEST_OF_A_CLASS = 5


def task_of(cells: pd.Series) -> str:
    """Regression if every target is a number and there are many different ones; otherwise classification.

    Many means more than 20 if not all are whole numbers, more than 50 if all are, or more than half the rows.

    Example:
        >>> task_of(pd.Series(np.linspace(0, 1, 50))), task_of(pd.Series([1, 2] * 25)), task_of(pd.Series(["a", "b"]))
        ('regression', 'classification', 'classification')
    """
    if pd.api.types.is_bool_dtype(cells.dtype):
        return "classification"
    numbers = _as_floats(cells.dropna())
    if numbers.empty or not np.isfinite(numbers).all():
        return "classification"
    different, whole = numbers.nunique(), bool((numbers % 1 == 0).all())
    many = different > (MOST_WHOLE if whole else MOST_FRACTIONS)
    return "regression" if many or (different > 2 and 2 * different > len(numbers)) else "classification"


def _as_floats(cells: pd.Series) -> pd.Series:
    """The cells as numbers; NaN for what is not a number, infinite beyond the range of floats."""
    try:
        return pd.to_numeric(cells, errors="coerce").astype(np.float64)
    except OverflowError:
        return pd.to_numeric(cells.map(str), errors="coerce").astype(np.float64)


def targets(cells: pd.Series, name: str, are_numbers: bool) -> NDArray[Any]:
    """Numbers; or labels, as whole numbers if all of them are, otherwise as text."""
    values = _as_floats(cells)
    if are_numbers:
        if (text := values.isna()).any():
            raise ValueError(
                f"The target of {name} is not a number in every row: {cells[text].iloc[0]!r}. For classes use "
                "--task classification, or task='classification'."
            )
        if np.isinf(values).any():
            raise ValueError(f"The target of {name} is infinite in some rows. Make such cells empty.")
        return np.asarray(values)
    whole = len(values) and (np.abs(values) < 2**53).all() and (values % 1 == 0).all()
    if whole and not pd.api.types.is_bool_dtype(cells.dtype):
        return np.asarray(values.astype(np.int64))
    return np.array([str(cell).strip() for cell in cells])


def labels_like(name: str, labels: NDArray[Any], reference: NDArray[Any], task: str) -> NDArray[Any]:
    """The labels in the type of those of the training table, ``reference``, which has them all."""
    if TASKS[task].kind == "regression":
        return labels
    by_text = {str(label): label for label in np.unique(reference)}
    unknown = sorted(set(map(str, labels)) - set(by_text))
    if unknown:
        raise ValueError(
            f"{name} has labels that the training table does not have: {listed(unknown)}. Give only its labels."
        )
    return np.array([by_text[str(label)] for label in labels], dtype=reference.dtype)


def check_target(name: str, y: NDArray[Any], task: str) -> list[str]:
    """Notes on the target; an error if nothing can be learned from it."""
    are_labels = TASKS[task].kind == "classification"
    if len(y) < FEWEST_ROWS:
        word = "label" if are_labels else "target"
        raise ValueError(f"{name} has {len(y)} rows with a {word}, but {FEWEST_ROWS} are needed. Give more rows.")
    classes, counts = np.unique(y, return_counts=True)
    if len(classes) == 1 and are_labels:
        raise ValueError(f"The target of {name} has only one class: {classes[0]}. Name another column as the target.")
    if len(classes) == 1:
        raise ValueError(f"The target of {name} is {y[0]:g} in every row. Name another column.")
    if not are_labels:
        return []
    are_numbers = classes.dtype.kind == "U" and _as_floats(pd.Series(classes)).notna().all()
    if 2 * len(classes) > len(y) or (len(classes) > MOST_FRACTIONS and are_numbers):
        raise ValueError(
            f"The target of {name} has {len(classes)} classes in {len(y)} rows: it is a number or an identifier. "
            "Give --task regression, or name another column with --target."
        )
    rare = [str(label) for label in classes[counts < FEWEST_OF_A_CLASS]]
    words = f"classes with fewer than {FEWEST_OF_A_CLASS} rows, which some folds will miss: {listed(rare)}"
    return [words] if rare else []
