"""Distinct rows of a table, their weights, and what is left out at a time."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from ..splits import Floats, Integers


@dataclasses.dataclass(frozen=True)
class DistinctRows:
    """Distinct rows, their normalized weights, and what is left out at a time.

    Attributes:
        rows: one row number of each kind, in an order that depends only on the values.
        weights: relative to each other as the sums of the weights of equal rows, and adding up to the number of units;
            ``None`` if all are equal.
        shares: the part of each row's weight that is one unit; ``None`` if every row is a unit as a whole.
        places: a number for each row, the same for rows with the same inputs or in the same group; ``None`` if all
            differ.
        scale: the factor of the weights.
    """

    rows: Integers
    weights: Floats | None
    shares: Floats | None
    places: Integers | None
    scale: float


def distinct_rows(
    x: Floats, Y: Floats, weights: Floats | None = None, groups: Integers | None = None, scale: float | None = None
) -> DistinctRows:
    """Rows that differ in ``x``, ``Y`` or their group, with their weights added up; rows of weight 0 are dropped.

    Only the ratios of weights matter. A row with all of its copies is one unit, which is left out as a whole. Rows with
    the same inputs but different targets, and rows of a table of few categories, are repeated observations: there, a
    unit is the largest weight of which all are multiples, one row if the weights are counts. A ``scale`` replaces the
    one of the units.

    Example:
        >>> x = np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 6.0, 6.0])[:, None]
        >>> Y = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0])[:, None]
        >>> distinct = distinct_rows(x, Y, np.full(8, 4.0))
        >>> distinct.rows, distinct.weights, distinct.shares
        (array([0, 1, 2, 3, 4, 5, 6]), array([1., 1., 1., 1., 1., 1., 2.]), array([1. , 1. , 1. , 1. , 1. , 1. , 0.5]))
    """
    w = np.ones(len(x)) if weights is None else weights
    positive = np.flatnonzero(w > 0)
    label = np.zeros((len(x), 1)) if groups is None else groups[:, None].astype(np.float64)
    joined = np.concatenate([part[positive] for part in (x, Y, label, w[:, None])], axis=1)
    # By value, so that neither the order of the rows nor the units of the columns matter.
    order = np.lexsort(joined.T[::-1])
    joined = joined[order]
    differs = np.ones((len(order), joined.shape[1]), dtype=bool)
    differs[1:] = np.logical_or.accumulate(joined[1:] != joined[:-1], axis=1)
    # The first rows with these inputs, with these inputs, targets and group, and with all of these and their weight.
    first_input, first, first_weight = differs[:, x.shape[1] - 1], differs[:, -2], differs[:, -1]
    total: Floats = np.bincount(np.cumsum(first) - 1, joined[:, -1]).astype(np.float64)
    rows, place = positive[order[first]], (np.cumsum(first_input) - 1)[first]
    shares = None
    if groups is not None:
        place = np.unique(groups[rows], return_inverse=True)[1]
    else:
        num_weights = np.bincount(np.cumsum(first)[first_weight] - 1)
        target = np.unique(Y[rows], axis=0, return_inverse=True)[1].ravel()
        repeated = _repeated(x[rows], total, place)
        if repeated.any() and target.max() < MOST_TARGETS:
            shares = _units(total, num_weights, repeated, target) / total
        if place[-1] + 1 < FEWEST_PLACES:
            shares = np.minimum(0.5, 1.0 if shares is None else shares) * np.ones(len(rows))
        shares = None if shares is None or bool((shares == 1.0).all()) else shares
    num_units = float(len(rows) if shares is None else (1.0 / shares).sum())
    scale = num_units / float(total.sum()) if scale is None else scale
    normal = np.round(total * scale, 12)  # the same to the last digit for weights in other units
    equal = bool((normal == 1.0).all())
    places = None if place.max() + 1 == len(place) else place
    return DistinctRows(rows, None if equal else normal, shares, places, scale)


MOST_TARGETS = 64
"""Number of different targets up to which equal ones at the same inputs may be several observations."""
MOST_LEVELS = 10
"""Number of different values up to which a column is one of categories."""
OBSERVATIONS = 3
"""Mean number of rows with the same inputs from which a table of categories has repeated observations."""
FEWEST_PLACES = 6
"""With fewer different inputs, half of a row is left out at most: the others say nothing about it."""
MOST_UNITS = 1e6


def _repeated(x: Floats, total: Floats, place: Integers) -> NDArray[np.bool_]:
    """Which rows stand for repeated observations, and not for copies.

    Those with the same inputs as rows of another target; and all rows of a table of categories with few combinations.
    """
    different: NDArray[np.bool_] = np.bincount(place)[place] > 1
    divisor = _common_divisor(total)
    if divisor is None or float(total.sum()) < OBSERVATIONS * divisor * (place[-1] + 1):
        return different
    categories = all(len(np.unique(column)) <= MOST_LEVELS for column in x.T)
    return np.ones(len(x), dtype=bool) if categories else different


def _units(total: Floats, num_weights: Integers, repeated: NDArray[np.bool_], target: Integers) -> Floats:
    """The weight that is left out at a time: of repeated observations the largest of which all are multiples.

    Without one, it is the mean weight of the rows with one target that differ, also in their weight.
    """
    unit: Floats = total.copy()
    common = _common_divisor(total[repeated])
    for kind in np.unique(target[repeated]):
        members = repeated & (target == kind)
        # Weights of classes have a divisor for each class; other real numbers have none.
        divisor = common or (_common_divisor(total[members]) if members.sum() > 1 else None)
        unit[members] = divisor or total[members].sum() / num_weights[members].sum()
    np.minimum(unit, total, out=unit)
    return unit


def _common_divisor(weights: Floats) -> float | None:
    """The largest number of which all ``weights`` are multiples; ``None`` if there is none of a sensible size."""
    divisor, smallest = 0.0, float(weights.sum()) / MOST_UNITS
    for weight in np.unique(weights).tolist():
        a, b = weight, divisor
        while b > 1e-6 * smallest:  # Euclid, with rounding
            a, b = b, min(a % b, b - a % b)
        divisor = a
        if divisor < smallest:
            return None
    return divisor
