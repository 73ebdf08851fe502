"""The random folds of the votes. The reproduced Table 1 and every calibrated probability belong to these draws.

Any other partition serves too, for example that of a splitter of scikit-learn: see ``partition`` of
:func:`kernel_embed.voting.cross_validate_votes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..validation import check_count, check_seed


def split_folds(n: int, num_folds: int, seed: int | None = 0) -> list[NDArray[np.int64]]:
    """A random partition of 0 … n − 1 into parts of nearly equal size.

    Example:
        >>> sorted(len(part) for part in split_folds(7, 3))
        [2, 2, 3]
    """
    check_seed(seed)
    if not 3 <= check_count("num_folds", num_folds) <= n:
        raise ValueError(
            f"Expected 3 ≤ num_folds ≤ {n} (training, validation and test need one each), got {num_folds}. "
            "Give another number of folds."
        )
    return [np.asarray(part) for part in np.array_split(np.random.default_rng(seed).permutation(n), num_folds)]


def deal_folds(codes: NDArray[np.int64], num_folds: int, seed: int | None) -> NDArray[np.int64]:
    """A fold for every point, the classes dealt out evenly, however rare they are.

    Example:
        >>> import numpy as np
        >>> deal_folds(np.array([0, 0, 0, 1, 1, 1]), 3, seed=0).tolist().count(0)
        2
    """
    check_seed(seed)
    rng = np.random.default_rng(seed)
    fold = np.zeros(len(codes), dtype=np.int64)
    dealt = 0
    for c in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == c))
        fold[members] = (np.arange(len(members)) + dealt) % num_folds
        dealt += len(members)
    return fold


def checked_partition(partition: Sequence[ArrayLike], n: int) -> list[NDArray[np.int64]]:
    """Parts given by the caller, which together must have each of the rows 0 … n − 1 once."""
    parts = [np.asarray(part) for part in partition]
    if len(parts) < 3 or not np.array_equal(np.sort(np.concatenate(parts)), np.arange(n)):
        raise ValueError(
            f"Expected a partition of the rows 0 … {n - 1} into at least 3 parts (training, validation and test need "
            f"one each), got {len(parts)} parts with {sum(map(len, parts))} rows. Give every row to exactly one part."
        )
    return parts


def turns(parts: Sequence[NDArray[np.int64]]) -> list[tuple[NDArray[np.int64], ...]]:
    """Training, validation and test rows of every run: fold i tests, fold i + 1 validates, the rest trains.

    Example:
        >>> import numpy as np
        >>> [[part.tolist() for part in turn] for turn in turns([np.array([2]), np.array([0]), np.array([1])])][0]
        [[1], [0], [2]]
    """
    n = len(parts)
    rest = [[parts[k] for k in range(n) if k not in (i, (i + 1) % n)] for i in range(n)]
    return [(np.concatenate(rest[i]), parts[(i + 1) % n], parts[i]) for i in range(n)]
