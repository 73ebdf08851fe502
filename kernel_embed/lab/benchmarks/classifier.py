"""Time to a learned classifier, and the NLL it reaches, against what people use today; and how time and memory grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ...results import Record
from ..compare.tasks import CLASSIFICATION
from .cases import OURS, Call, Case, Scope

PART, GROWTH = "time to a learned classifier", "growth with n"
NUM_TEST = 1000
REFERENCES = ("svc grid", "gpc", "dirichlet")
ALIKE = ("rademacher 4e/sqrt(n)", "rademacher 4e", "empirical risk")
GROWING = tuple(name for name, learner in CLASSIFICATION.learners().items() if learner.default and name not in ALIKE)
"""All ways to learn that are compared, but one of each kind of cost."""


def problem(
    n: int, d: int = 8, m: int = 2
) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """(x, y, x_test, y_test): two classes by noisy smooth scores of three of eight features, in the unit cube.

    Two classes are the kindest to the references, which learn one kernel for each class, or pair of them.

    The test points are the same for every n; their labels are drawn again, so compare NLL at one n only.
    """
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(3, m))
    x = rng.uniform(size=(NUM_TEST + n, d))
    scores = 4.0 * np.sin(4.0 * x[:, :3]) @ weights
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    y = (p.cumsum(axis=1) < rng.uniform(size=(len(x), 1))).sum(axis=1)
    return x[NUM_TEST:], y[NUM_TEST:], x[:NUM_TEST], y[:NUM_TEST]


def _prepare(name: str, n: int) -> Call:
    make = CLASSIFICATION.learners()[name].make
    x, y, x_test, y_test = problem(n)

    def call() -> Record:
        record = CLASSIFICATION.measure(make, (x, y, x_test, y_test), np.arange(2)).record
        kept = ("nll", "accuracy", "peak_megabytes", "processor_seconds", "num_evaluations")
        return {"seconds": record["fit_seconds"], **{field: record[field] for field in kept}}

    return call


def cases(scope: Scope) -> Iterator[Case]:
    """Time to a learned classifier and its NLL, beside SVC, GPC and Dirichlet."""
    ours = f"{OURS}: default"
    for n in (150, 300) if scope.quick else (500, 1000, 2000, 4000):
        yield Case(PART, ours, n, partial(_prepare, "default", n), against=ours)
        for name in REFERENCES:
            yield Case(PART, name, n, partial(_prepare, name, n), against=ours)


def growth_cases(scope: Scope) -> Iterator[Case]:
    """Time and memory of every learner at sizes that double, and the exponents."""
    for n in (75, 150) if scope.quick else (250, 500, 1000, 2000):
        for name in GROWING:
            yield Case(GROWTH, name, n, partial(_prepare, name, n), against="default")


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """p of values ∝ sizes^p, by least squares on the logarithms of the upper half of the sizes, two at least.

    Example:
        >>> round(exponent([100, 200, 400], [1.0, 3.0, 24.0]), 6)
        3.0
    """
    order = np.argsort(sizes)[-max(2, (len(sizes) + 1) // 2) :]
    known = [i for i in order if values[i] > 0]
    if len(known) < 2:
        return float("nan")
    return float(np.polyfit(np.log([sizes[i] for i in known]), np.log([values[i] for i in known]), 1)[0])
