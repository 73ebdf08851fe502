"""Splits of rows: folds and samples that keep groups together, distinct rows, halves, and seeds of random choices.

Published results belong to the random numbers drawn here, so the same seed always gives the same rows.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

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
    """scikit-learn's ``random_state`` as an integer seed, drawn from a generator; ``None`` stays ``None``.

    Example:
        >>> seed_of(3), seed_of(None), seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
        (3, None, True)
    """
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
    """A number for each of n rows, the same for rows with the same label in ``groups``; ``None`` without groups.

    Example:
        >>> group_numbers(["b", "a", "b"], 3)
        array([1, 0, 1])
    """
    if groups is None:
        return None
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise ValueError(f"groups must be one label for each of the {n} rows, but has shape {labels.shape}.")
    numbers: Integers = np.unique(labels.astype(str) if labels.dtype.kind == "O" else labels, return_inverse=True)[1]
    return numbers


def proportional_sample(y: NDArray[Any], size: int, seed: int = 0) -> Integers:
    """About ``size`` random rows: of classes, each its share and at least one row; of numbers, any rows.

    Example:
        >>> y = np.array([0] * 90 + [1] * 9 + [2])
        >>> rows = proportional_sample(y, 20)
        >>> len(rows), sorted(set(y[rows].tolist()))
        (21, [0, 1, 2])
    """
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
    labels: Integers, num_folds: int, generator: np.random.Generator, groups: Integers | None = None
) -> Integers:
    """A fold number for each row; every class starts in a random fold and is spread evenly.

    With ``groups``, all rows of a group are in one fold.

    Example:
        >>> stratified_folds(np.array([0, 0, 0, 1, 1, 1]), 3, np.random.default_rng(0)).tolist()
        [1, 2, 0, 0, 2, 1]
    """
    if groups is not None:
        number, of_group = _majority_labels(labels, groups)
        return stratified_folds(of_group, num_folds, generator)[number]
    fold = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        fold[rows] = (np.arange(len(rows)) + generator.integers(num_folds)) % num_folds
    return fold


def balanced_folds(labels: Integers, num_folds: int, seed: int | None) -> Integers:
    """A fold number for each row; classes follow one another, so that folds differ by at most one row.

    Example:
        >>> balanced_folds(np.array([0, 0, 0, 1, 1, 1]), 3, seed=0).tolist().count(0)
        2
    """
    check_seed(seed)
    generator = np.random.default_rng(seed)
    fold = np.zeros(len(labels), dtype=np.int64)
    count = 0
    for label in np.unique(labels):
        rows = generator.permutation(np.flatnonzero(labels == label))
        fold[rows] = (np.arange(len(rows)) + count) % num_folds
        count += len(rows)
    return fold


def random_folds(n: int, num_folds: int, seed: int | None = 0) -> list[Integers]:
    """A random partition of 0 … n − 1 into at least three parts of nearly equal size.

    Example:
        >>> sorted(len(part) for part in random_folds(7, 3))
        [2, 2, 3]
    """
    check_seed(seed)
    if not 3 <= check_count("num_folds", num_folds) <= n:
        raise ValueError(
            f"num_folds must be between 3 and {n}, because training, validation and test need one fold each: "
            f"{num_folds}. Give another number of folds."
        )
    return [np.asarray(part) for part in np.array_split(np.random.default_rng(seed).permutation(n), num_folds)]


def check_partition(partition: Sequence[ArrayLike], n: int) -> list[Integers]:
    """The parts of a user's partition, which must contain each of the rows 0 … n − 1 once."""
    parts = [np.asarray(part) for part in partition]
    if len(parts) < 3 or not np.array_equal(np.sort(np.concatenate(parts)), np.arange(n)):
        raise ValueError(
            f"partition must split the rows 0 … {n - 1} into at least 3 parts, because training, validation and test "
            f"need one each: it has {len(parts)} parts with {sum(map(len, parts))} rows. Put every row in one part."
        )
    return parts


def rotations(parts: Sequence[Integers]) -> list[tuple[Integers, ...]]:
    """Training, validation and test rows of every run: part i tests, part i + 1 validates, the others train.

    Example:
        >>> [[rows.tolist() for rows in run] for run in rotations([np.array([2]), np.array([0]), np.array([1])])][0]
        [[1], [0], [2]]
    """
    n = len(parts)
    rest = [[parts[k] for k in range(n) if k not in (i, (i + 1) % n)] for i in range(n)]
    return [(np.concatenate(rest[i]), parts[(i + 1) % n], parts[i]) for i in range(n)]


def cross_validation_folds(y: NDArray[Any], num_folds: int, seed: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Training and test rows: stratified folds; plain ones for numbers, or if no class is large enough."""
    from sklearn.model_selection import KFold, StratifiedKFold

    plain = y.dtype.kind == "f" or np.unique(y, return_counts=True)[1].max() < num_folds
    splitter = (KFold if plain else StratifiedKFold)(num_folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        yield from splitter.split(y, y)


def halves(n: int, generator: torch.Generator, device: torch.device) -> tuple[Tensor, Tensor]:
    """The rows 0 … n − 1 in two random halves."""
    order = torch.randperm(n, generator=generator).to(device)
    return order[: n // 2], order[n // 2 :]
