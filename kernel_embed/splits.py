"""Splits of rows: folds and samples that keep groups together, distinct rows, halves, and seeds of random choices.

Published results belong to the random numbers drawn here, so the same seed always gives the same rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from .validation import check_count, check_seed

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
RandomState: TypeAlias = int | np.random.RandomState | None
"""The types that scikit-learn accepts as ``random_state``."""


def seed_of(random_state: RandomState) -> int | None:
    """scikit-learn's ``random_state`` as an integer seed, drawn from a generator; ``None`` stays ``None``."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31 - 1))
    check_seed(random_state)
    return None if random_state is None else int(random_state)


def stratified_sample(
    labels: Integers, size: int, generator: np.random.Generator, groups: Integers | None = None
) -> Integers:
    """``size`` random rows: at least three of every class if it has them, otherwise in proportion.

    With ``groups``, about as many rows in whole groups, each with the label of most of its rows.
    """
    n = len(labels)
    if size >= n:
        return np.arange(n)
    if groups is not None:
        number, of_group = _majority_labels(labels, groups)
        chosen = stratified_sample(of_group, max(1, round(size * len(of_group) / n)), generator)
        return np.flatnonzero(np.isin(number, chosen))
    order = generator.permutation(n)
    place = np.empty(n, dtype=np.int64)
    for label in np.unique(labels):
        of_class = order[labels[order] == label]
        place[of_class] = np.arange(len(of_class))
    first, others = order[place[order] < 3], order[place[order] >= 3]
    return np.sort(np.concatenate([first, others])[: max(size, len(first))])


def _majority_labels(labels: Integers, groups: Integers) -> tuple[Integers, Integers]:
    """The number of each row's group, and the most frequent label of each group."""
    number: Integers = np.unique(groups, return_inverse=True)[1]
    counts = np.zeros((int(number.max()) + 1, int(labels.max()) + 1), dtype=np.int64)
    np.add.at(counts, (number, labels), 1)
    return number, counts.argmax(axis=1)


def group_numbers(groups: ArrayLike | None, n: int) -> Integers | None:
    """A number for each of n rows, the same for rows with the same label in ``groups``; ``None`` without groups."""
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must be one label for each of the {n} rows, but has shape {labels.shape}.")
    numbers: Integers = np.unique(labels.astype(str) if labels.dtype.kind == "O" else labels, return_inverse=True)[1]
    return numbers


def equal_rows(x: NDArray[Any]) -> Integers | None:
    """A number for each row, the same for equal ones; ``None`` if all rows differ."""
    number: Integers = np.unique(x, axis=0, return_inverse=True)[1].ravel()
    return None if number.max() + 1 == len(number) else number


def proportional_sample(y: NDArray[Any], size: int, seed: int = 0) -> Integers:
    """About ``size`` random rows: of classes, each its share and at least one row; of numbers, any rows."""
    if size >= len(y):
        return np.arange(len(y))
    generator = np.random.default_rng(seed)
    if y.dtype.kind == "f":
        return np.sort(generator.permutation(len(y))[:size])
    parts = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        parts.append(generator.permutation(members)[: math.ceil(len(members) * size / len(y))])
    return np.sort(np.concatenate(parts))


def stratified_folds(
    labels: Integers, folds: int, generator: np.random.Generator, groups: Integers | None = None, balanced: bool = False
) -> Integers:
    """A fold number for each row; every class is spread evenly, and all rows of a group are in one fold.

    Classes start in a random fold or, if ``balanced``, follow one another, so that folds differ by at most one row.
    """
    if groups is not None:
        number, of_group = _majority_labels(labels, groups)
        return stratified_folds(of_group, folds, generator, balanced=balanced)[number]
    fold, count = np.empty(len(labels), dtype=np.int64), 0
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        start = count if balanced else generator.integers(folds)
        fold[rows] = (np.arange(len(rows)) + start) % folds
        count += len(rows)
    return fold


def random_folds(n: int, num_folds: int, seed: int | None = 0) -> list[Integers]:
    """A random partition of 0 … n − 1 into at least three parts of nearly equal size."""
    check_seed(seed)
    if not 3 <= check_count("num_folds", num_folds) <= n:  # training, validation and test need one fold each
        raise ValueError(f"num_folds must be between 3 and {n}, the number of rows, not {num_folds}.")
    return [np.asarray(part) for part in np.array_split(np.random.default_rng(seed).permutation(n), num_folds)]


def check_partition(partition: Sequence[ArrayLike], n: int) -> list[Integers]:
    """The parts of a user's partition, which must contain each of the rows 0 … n − 1 once."""
    parts = [np.asarray(part) for part in partition]
    if len(parts) < 3 or not np.array_equal(np.sort(np.concatenate(parts)), np.arange(n)):
        sizes = [len(part) for part in parts]
        raise ValueError(f"partition must put each of the rows 0 … {n - 1} into one of at least 3 parts, got {sizes}.")
    return parts


def rotations(parts: Sequence[Integers]) -> list[tuple[Integers, ...]]:
    """Training, validation and test rows of every run: part i tests, part i + 1 validates, the others train."""
    n = len(parts)
    rest = [[parts[k] for k in range(n) if k not in (i, (i + 1) % n)] for i in range(n)]
    return [(np.concatenate(rest[i]), parts[(i + 1) % n], parts[i]) for i in range(n)]


def cross_validation_folds(
    y: NDArray[Any], num_folds: int, seed: int, groups: Integers | None = None
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Training and test rows: stratified folds that keep ``groups`` together; not stratified for numbers."""
    from sklearn.model_selection import KFold, StratifiedKFold

    if groups is not None:
        labels = np.zeros(len(y), dtype=np.int64) if y.dtype.kind == "f" else np.unique(y, return_inverse=True)[1]
        fold = stratified_folds(labels, num_folds, np.random.default_rng(seed), groups, balanced=True)
        yield from ((np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(num_folds))
        return

    plain = y.dtype.kind == "f" or np.unique(y, return_counts=True)[1].max() < num_folds
    splitter = (KFold if plain else StratifiedKFold)(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        yield from splitter.split(y, y)


def halves(n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows 0 … n − 1 in two random halves."""
    order = torch.randperm(n, generator=generator, device="cpu").to(device)
    return order[: n // 2], order[n // 2 :]


MOST_TARGETS = 64  # different targets up to which equal ones at the same inputs may be several observations
MOST_LEVELS = 10  # number of different values up to which a column is one of categories
OBSERVATIONS = 3  # mean number of rows with the same inputs from which a table of categories has repeated observations
FEWEST_PLACES = 6  # with fewer different inputs, half of a row is left out at most: the others say nothing about it
MOST_UNITS = 1e6


class DistinctRows(NamedTuple):
    """Distinct rows, their weights, and what is left out at a time."""

    rows: Integers  # one row number of each kind, in an order that depends only on the values
    weights: Floats | None  # sums over equal rows, scaled to add up to the number of units; None if all are 1
    shares: Floats | None  # the part of each row's weight that is one unit; None if every row is one
    places: Integers | None  # equal for rows with equal inputs, or of one group; None if all differ
    scale: float  # the factor of the weights


def distinct_rows(
    x: Floats, Y: Floats, weights: Floats | None = None, groups: Integers | None = None, scale: float | None = None
) -> DistinctRows:
    """Rows that differ in ``x``, ``Y`` or their group, with their weights added up; rows of weight 0 are dropped.

    Only the ratios of weights matter. A row with all of its copies is one unit, as in :mod:`kernel_embed.linalg`. Rows
    with the same inputs but different targets, and rows of a table of few categories, are repeated observations: there,
    a unit is the largest weight of which all are multiples, one row if the weights are counts.
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
        repeated = np.bincount(place)[place] > 1
        divisor = common_divisor(total)
        if divisor is not None and float(total.sum()) >= OBSERVATIONS * divisor * (place[-1] + 1):
            repeated |= all(len(np.unique(column)) <= MOST_LEVELS for column in x[rows].T)
        if repeated.any() and target.max() < MOST_TARGETS:
            shares = _units(total, num_weights, repeated, target) / total
        if place[-1] + 1 < FEWEST_PLACES:
            shares = np.minimum(0.5, 1.0 if shares is None else shares) * np.ones(len(rows))
        shares = None if shares is None or bool((shares == 1.0).all()) else shares
    num_units = float(len(rows) if shares is None else (1.0 / shares).sum())
    scale = num_units / float(total.sum()) if scale is None else scale
    normal = np.round(total * scale, 12)  # the same to the last digit for weights in other units
    places = None if place.max() + 1 == len(place) else place
    return DistinctRows(rows, None if bool((normal == 1.0).all()) else normal, shares, places, scale)


def _units(total: Floats, num_weights: Integers, repeated: NDArray[np.bool_], target: Integers) -> Floats:
    """The weight that is left out at a time: of repeated observations the largest of which all are multiples.

    Weights of classes have such a number for each class. Without one, it is the mean weight of the rows with one target
    that differ, also in their weight.
    """
    unit = total.copy()
    common = common_divisor(total[repeated])
    for kind in np.unique(target[repeated]):
        members = repeated & (target == kind)
        divisor = common or (common_divisor(total[members]) if members.sum() > 1 else None)
        unit[members] = divisor or total[members].sum() / num_weights[members].sum()
    return np.asarray(np.minimum(unit, total))


def common_divisor(weights: Floats) -> float | None:
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
