"""How many rows a learner can take in the time it has: tried on small parts first, and extrapolated.

Time is CPU time, so that a busy machine does not cut learners short, and two runs cut them alike.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .evaluate import Classifier, Features, fitted_whole

SMALLEST = 125
"""Rows of the first trial; tables up to twice this size are never cut."""
STEEPEST, FLATTEST, FIRST_STEP = 3.3, 2.5, 1.5
"""Exponents of time in rows: limits of the one to extrapolate with, and the one expected of the first doubling, where
much of the time does not depend on the rows at all."""
SAFETY = 1.3
"""Learning on more rows may take more steps."""


class Allowance(NamedTuple):
    """``rows`` to train on (0 where even the smallest trial took too long), and the seconds a fit should take."""

    rows: int
    seconds: float


def affordable(make: Callable[[], Classifier], x: Features, y: NDArray[Any], budget: float, seed: int = 0) -> Allowance:
    """The rows of ``x, y`` on which a new learner can be fitted in about ``budget`` seconds.

    Trials on 125, 250, 500, … rows give time and its growth, t ∝ rows^p; they go on while the next fits in.
    """
    n = len(y)
    if n <= 2 * SMALLEST:
        return Allowance(n, 0.0)
    size, seconds, exponent = SMALLEST, _trial(make, x, y, SMALLEST, seed), FIRST_STEP
    if seconds > 2.0 * budget:
        return Allowance(0, seconds)
    while True:
        steep = min(max(exponent, FLATTEST), STEEPEST)
        expected = SAFETY * seconds * (n / size) ** steep
        if expected <= budget:
            return Allowance(n, expected)
        if 2 * size >= n or seconds * 2 ** min(exponent, STEEPEST) > 0.7 * budget:
            break
        try:
            longer = _trial(make, x, y, 2 * size, seed)
        except MemoryError:
            break
        exponent = math.log2(max(longer, 1e-9) / max(seconds, 1e-9))
        size, seconds = 2 * size, longer
    rows = int(size * (budget / (SAFETY * max(seconds, 1e-9))) ** (1.0 / steep))
    rows = min(max(rows, SMALLEST), n)
    return Allowance(rows, SAFETY * seconds * (rows / size) ** steep)


def subset(y: NDArray[Any], rows: int, seed: int = 0) -> NDArray[np.int64]:
    """About ``rows`` positions in ``y``, drawn with the share of every class, at least one row of each; of numbers any.

    Example:
        >>> chosen = subset(np.array([0] * 90 + [1] * 9 + [2]), 20)
        >>> len(chosen), sorted(set(np.array([0] * 90 + [1] * 9 + [2])[chosen].tolist()))
        (21, [0, 1, 2])
    """
    if rows >= len(y):
        return np.arange(len(y))
    generator = np.random.default_rng(seed)
    if y.dtype.kind == "f":
        return np.sort(generator.permutation(len(y))[:rows])
    parts = []
    for label in np.unique(y):
        members = np.flatnonzero(y == label)
        parts.append(generator.permutation(members)[: math.ceil(len(members) * rows / len(y))])
    return np.sort(np.concatenate(parts))


def take(x: Features, rows: NDArray[Any]) -> Features:
    """Rows of a matrix or a data frame, by position."""
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


def _trial(make: Callable[[], Classifier], x: Features, y: NDArray[Any], rows: int, seed: int) -> float:
    chosen = subset(y, rows, seed)
    started = time.process_time()
    fitted_whole(make(), take(x, chosen), y[chosen])
    return time.process_time() - started
