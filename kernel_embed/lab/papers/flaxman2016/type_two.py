"""Figure 2(C) of the Bayesian kernel embeddings: type II error over the ratio of eigenvalues, level 0.05."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

from ....hypothesis import two_sample_test
from ....plots import free_figure, save_picture, styled
from ....plots.style import legend_below, line_style, marker
from ....results import Record, table
from ...studies.rejections import RejectionStudy
from ..experiment import Settings
from .blobs import grid_samples
from .rejections import NUM_PERMUTATIONS, Design, RejectionExperiment, Test

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Errors: TypeAlias = Mapping[str, Mapping[float, float]]
"""By test and ratio."""

RATIOS = (4.0, 2.0, 3.0, 8.0, 15.0, 1.0)
TESTS: dict[str, Test] = {
    "evidence": lambda x, y, seed: two_sample_test(x, y, None, NUM_PERMUTATIONS, seed),
    "median heuristic": lambda x, y, seed: two_sample_test(x, y, "median", NUM_PERMUTATIONS, seed),
}


def _sample(repetition: int, ratio: float, num_per_centre: int) -> tuple[Tensor, ...]:
    return grid_samples(ratio, num_per_centre, seed=repetition)


@dataclass(frozen=True)
class TypeTwoErrors(RejectionExperiment):
    """Both tests on 900 points of each distribution, for every ratio."""

    name = "type-two"
    shows = "Figure 2 (C) of Flaxman et al.: the type II error of a learned lengthscale and of the median heuristic"
    duration = "an hour"

    def designs(self, settings: Settings) -> list[Design]:
        """One design: both tests on every ratio."""
        per_centre = 10 if settings.quick else 100
        simulators = {
            f"{ratio:g}": functools.partial(_sample, ratio=ratio, num_per_centre=per_centre) for ratio in RATIOS
        }
        return [Design(TESTS, simulators, settings.repetitions or (2 if settings.quick else 100))]

    def summary(self, records: Sequence[Record]) -> str:
        """The errors as a table."""
        (study,) = self.studies(records)
        rows = [
            [name, *(f"{1.0 - study.rate(name, test):.2f}" for test in study.tests)]
            for name in sorted(study.simulators, key=float)
        ]
        count = len(study.pvalues(study.simulators[0], study.tests[0]))
        return table(["ratio ε", *study.tests], rows) + f"\n\nType II error at level 0.05, {count} repetitions."

    def draw(self, records: Sequence[Record], out: pathlib.Path) -> None:
        """``figure2c.png``: type II error over the ratio."""
        (study,) = self.studies(records)
        with styled():
            figure = free_figure(5.6, 3.2)
            error_curves(errors_of(study), figure.subplots())
        out.mkdir(parents=True, exist_ok=True)
        save_picture(figure, out / "figure2c.png", 100)


def errors_of(study: RejectionStudy) -> Errors:
    """The type II error of each test at each ratio."""
    ratios = sorted(study.simulators, key=float)
    return {test: {float(ratio): 1.0 - study.rate(ratio, test) for ratio in ratios} for test in TESTS}


def error_curves(errors: Errors, panel: Axes) -> None:
    """Type II error over the ratio, a curve for each test."""
    for place, (test, curve) in enumerate(errors.items()):
        panel.plot(list(curve), list(curve.values()), marker=marker(place), ms=4, label=test, **line_style(place))
    panel.set(xlabel="ratio ε of covariance eigenvalues", ylabel="type II error", ylim=(-0.05, 1.05))
    legend_below(panel, 1)
