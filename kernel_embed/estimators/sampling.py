"""Which rows: equal ones counted once, and samples in which every class takes part."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True)
class DistinctRows:
    """Rows that differ, and how often each is there."""

    rows: Integers
    """Numbers of one row of each kind, in an order that depends on what they hold alone."""
    weights: Floats | None
    """How often, ``None`` where all are there once."""


def distinct_rows(x: Floats, Y: Floats, weights: Floats | None) -> DistinctRows:
    """Rows that differ in ``x`` or ``Y``, with their weights added up; rows of weight 0 are left out.

    Example:
        >>> x, Y = np.array([[1.0], [2.0], [1.0]]), np.array([[1.0], [0.0], [1.0]])
        >>> distinct_rows(x, Y, None)
        DistinctRows(rows=array([0, 1]), weights=array([2., 1.]))
    """
    own = np.ones(len(x)) if weights is None else weights
    kept = np.flatnonzero(own > 0)
    joined = np.concatenate([x[kept], Y[kept]], axis=1)
    # By value and not by place, so that neither the order of the rows nor the units of the columns matter.
    order = np.lexsort(joined.T[::-1])
    differs = np.ones(len(order), dtype=bool)
    differs[1:] = (joined[order[1:]] != joined[order[:-1]]).any(axis=1)
    total: Floats = np.bincount(np.cumsum(differs) - 1, own[kept][order]).astype(np.float64)
    return DistinctRows(kept[order[differs]], None if bool((total == 1.0).all()) else total)


def sample_rows(labels: Integers, size: int, generator: np.random.Generator) -> Integers:
    """``size`` row numbers, every class with at least three rows where it has them, and in proportion otherwise."""
    n = len(labels)
    if size >= n:
        return np.arange(n)
    order = generator.permutation(n)
    place = np.empty(n, dtype=np.int64)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        place[of_class] = np.arange(len(of_class))
    chosen = order[place[order] < 3]
    others = order[place[order] >= 3]
    return np.sort(np.concatenate([chosen, others])[: max(size, len(chosen))])


def folds(labels: Integers, num_folds: int, generator: np.random.Generator) -> Integers:
    """A fold number for each row, every class spread over the folds as evenly as it goes.

    Example:
        >>> folds(np.array([0, 0, 0, 1, 1, 1]), 3, np.random.default_rng(0)).tolist()
        [1, 2, 0, 0, 2, 1]
    """
    part = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        part[rows] = (np.arange(len(rows)) + generator.integers(num_folds)) % num_folds
    return part
