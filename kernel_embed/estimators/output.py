"""One real output of the regressor: its scale, its mixture of experts, and the scores that correct its intervals."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import torch
from sklearn.preprocessing import QuantileTransformer
from torch import Tensor

from ..embeddings import Distribution, conformal_quantile, interval_scores
from .experts import Expert, Grid, Mixture
from .laws import FAMILIES, Learner, through_features

Conformal = Literal["auto", "leave-one-out", "split"]

CALIBRATION_ROWS = 1000
"""Most rows held out for conformal scores: their quantile then has a coverage known to about one percent."""

CERTIFICATE = "split conformal: P(Y ∈ C(X)) ≥ coverage for exchangeable rows"
OBSERVATION = (
    "leave-one-out conformal: about the coverage asked for; no theorem for a finite sample, because the kernels were "
    "learned from the same rows"
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the regressor was told; see there."""

    conformal: Conformal
    subset_size: int
    max_rows: int
    num_features: int
    max_evaluations: int
    seed: int
    progress: bool | None


class Warp:
    """Each input by its quantile among the training values: heavy tails and many zeros lose their sting."""

    def __init__(self, x: Tensor, seed: int) -> None:
        self.quantiles = QuantileTransformer(n_quantiles=min(1000, len(x)), random_state=seed).fit(x.numpy())

    def __call__(self, x: Tensor) -> Tensor:
        """The inputs in [0, 1]."""
        return torch.as_tensor(self.quantiles.transform(x.numpy()))


@dataclasses.dataclass
class Seen(Expert):
    """An expert with what it sees of the inputs: as they are, or warped."""

    expert: Expert
    warp: Warp | None

    def left_out(self, grid: Grid) -> Distribution:
        """At the training rows."""
        return self.expert.left_out(grid)

    def at(self, x: Tensor, grid: Grid) -> Distribution:
        """At new points."""
        return self.expert.at(self.view(x), grid)

    def view(self, x: Tensor) -> Tensor:
        """What the expert sees of ``x``."""
        return x if self.warp is None else self.warp(x)


@dataclasses.dataclass
class Output:
    """What was learned about one target.

    Attributes:
        centre: its mean, taken off before learning.
        scale: its standard deviation, divided by.
        mixture: the experts and their weights, on that scale.
        calibration: distributions at rows that they were made without, and the targets there.
        guarantee: which theorem holds for the intervals.
    """

    centre: float
    scale: float
    mixture: Mixture
    calibration: tuple[Distribution, Tensor]
    guarantee: str

    @classmethod
    def learned(cls, x: Tensor, y: Tensor, settings: Settings) -> Output:
        """Learn from inputs ``x`` ``(n, d)`` and targets ``y`` ``(n,)``."""
        n = len(y)
        order = torch.as_tensor(np.random.default_rng(settings.seed).permutation(n))
        split = settings.conformal == "split" or (settings.conformal == "auto" and n > settings.max_rows)
        held = min(CALIBRATION_ROWS, n // 4) if split else 0
        calibration, rows = order[:held], order[held:].sort().values
        # Rows that calibrate are used for nothing else: not even for the scale.
        centre, scale = float(y[rows].mean()), float(y[rows].std(correction=0))
        # A spread of a few units in the last place is rounding.
        scale = scale if scale > 1e-12 * max(1.0, abs(centre)) else 1.0
        standard = (y - centre) / scale
        mixture = learned_mixture(x[rows], standard[rows], settings)
        with torch.no_grad():
            if held:
                known = (mixture.at(x[calibration]), standard[calibration])
            else:
                assert mixture.left_out is not None
                known = (mixture.left_out, standard)
        return cls(centre, scale, mixture, known, CERTIFICATE if held else OBSERVATION)

    @torch.no_grad()
    def distribution(self, x: Tensor) -> Distribution:
        """The predictive distributions at ``x`` ``(t, d)``, in the units of the target."""
        law = self.mixture.at(x)
        return Distribution(self.centre + self.scale * law.support, law.F)

    def corrected(self, interval: Tensor, coverage: float) -> Tensor:
        """The ``interval`` ``(t, 2)`` moved out, or in, by the conformal quantile of its scores."""
        law, y = self.calibration
        Q = self.scale * conformal_quantile(interval_scores(law.interval(coverage), y), coverage)
        low, high = interval[..., 0] - Q, interval[..., 1] + Q
        middle = 0.5 * (low + high)
        crossed = low > high
        return torch.stack([torch.where(crossed, middle, low), torch.where(crossed, middle, high)], dim=-1)


def learned_mixture(x: Tensor, y: Tensor, settings: Settings) -> Mixture:
    """The experts of every family on both views: kernels from a part of the rows, then conditioned on all.

    Above ``max_rows`` rows the mixture is weighed on that part, and its experts see all rows through features.
    """
    n, rows = len(y), np.random.default_rng(settings.seed + 1)
    part = torch.arange(n)
    if n > settings.subset_size:
        part = torch.as_tensor(rows.permutation(n)[: settings.subset_size])
    exact = torch.arange(n) if n <= settings.max_rows else part
    experts: list[Expert] = []
    at_size: list[Expert] = []
    for warp in (None, Warp(x, settings.seed)):
        seen = x if warp is None else warp(x)
        for family in FAMILIES:
            learned = Learner(family, settings.max_evaluations, progress=settings.progress)(seen[part], y[part])
            experts += [Seen(expert, warp) for expert in learned.experts(seen[exact], y[exact])]
            if n > settings.max_rows:
                large = through_features(learned, seen, y, part, settings.num_features, settings.seed)
                at_size += [Seen(expert, warp) for expert in large]
    with torch.no_grad():
        mixture = Mixture.stacked(experts, y[exact])
    return dataclasses.replace(mixture, experts=at_size, left_out=None) if at_size else mixture
