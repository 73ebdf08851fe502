"""Folds for calibration, from scikit-learn's splitters."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold, StratifiedKFold


def deal(codes: NDArray[np.int64], num_folds: int, seed: int | None) -> NDArray[np.int64]:
    """A fold for every point, the classes dealt out evenly where the largest has a member for each.

    Example:
        >>> import numpy as np
        >>> deal(np.array([0, 0, 0, 1, 1, 1]), 3, seed=0).tolist().count(0)
        2
    """
    n, counts = len(codes), np.bincount(codes)
    num_folds = min(num_folds, n)
    splitter = (StratifiedKFold if counts.max() >= num_folds else KFold)(num_folds, shuffle=True, random_state=seed)
    fold = np.zeros(n, dtype=np.int64)
    with warnings.catch_warnings():
        # A class with fewer members than folds is missing in some of them, which a temperature can do with.
        warnings.filterwarnings("ignore", "The least populated class", UserWarning)
        for i, (_, part) in enumerate(splitter.split(np.zeros(n), codes)):
            fold[part] = i
    return fold
