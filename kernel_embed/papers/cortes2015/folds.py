"""The partition behind the reproduced Table 1."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ...votes.cross_validation import check_num_folds


def split_folds(n: int, num_folds: int, seed: int | None = 0) -> list[NDArray[np.int64]]:
    """A random partition of 0 … n − 1 into parts of nearly equal size; the figures of the table belong to it.

    Example:
        >>> sorted(len(part) for part in split_folds(7, 3))
        [2, 2, 3]
    """
    check_num_folds(num_folds, n)
    return [np.asarray(part) for part in np.array_split(np.random.default_rng(seed).permutation(n), num_folds)]
