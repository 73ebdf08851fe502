"""Figure 2(C) of the Bayesian kernel embeddings: type II error over the ratio of eigenvalues, level 0.05."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

from ...hypothesis import two_sample_test
from ...hypothesis.study import RejectionStudy, rejection_study
from ...plots import free_figure
from ...results import table
from .grid import grid_samples

RATIOS = (4.0, 2.0, 3.0, 8.0, 15.0, 1.0)
NUM_PERMUTATIONS = 99
TESTS: dict[str, Callable[..., Any]] = {
    "evidence": lambda x, y, seed: two_sample_test(x, y, None, NUM_PERMUTATIONS, seed),
    "median heuristic": lambda x, y, seed: two_sample_test(x, y, "median", NUM_PERMUTATIONS, seed),
}


def _sample(repetition: int, ratio: float, num_per_centre: int) -> tuple[Any, ...]:
    return grid_samples(ratio, num_per_centre, seed=repetition)


def run(path: pathlib.Path | None, repetitions: int = 100, num_per_centre: int = 100) -> RejectionStudy:
    """Both tests on 900 points of each distribution, for every ratio."""
    simulators = {
        f"{ratio:g}": functools.partial(_sample, ratio=ratio, num_per_centre=num_per_centre) for ratio in RATIOS
    }
    return rejection_study(TESTS, simulators, repetitions, path=path)


def draw(study: RejectionStudy, path: pathlib.Path) -> None:
    """Type II error over the ratio."""
    figure = free_figure(5.0, 3.2)
    panel = figure.subplots()
    names = sorted(study.simulators, key=float)
    ratios = [float(name) for name in names]
    for test, style in (("median heuristic", "--"), ("evidence", "-")):
        errors = [1.0 - study.rate(name, test) for name in names]
        panel.plot(ratios, errors, style, marker="o", markersize=4, color="black", label=test)
    panel.set_xlabel("ratio ε of covariance eigenvalues")
    panel.set_ylabel("type II error")
    panel.set_ylim(-0.05, 1.05)
    panel.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)


def summary(study: RejectionStudy) -> str:
    """The errors as a table."""
    rows = [
        [name, *(f"{1.0 - study.rate(name, test):.2f}" for test in study.tests)]
        for name in sorted(study.simulators, key=float)
    ]
    count = len(study.pvalues(study.simulators[0], study.tests[0]))
    return table(["ratio ε", *study.tests], rows) + f"\n\nType II error at level 0.05, {count} repetitions."
