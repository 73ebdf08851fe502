"""One real output of the regressor: its scale, its mixture of experts, and the scores that correct its intervals."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ..embeddings import ConditionalEmbedding, Distribution, conformal_quantile, interval_scores
from ..progress import ProgressBar
from ..resources import few_threads
from ..splits import distinct_rows
from ..tabular import InputTransform, make_input_transform
from .candidates import Rows, relevances
from .conditioning import PROBES, Table, num_points
from .distributional import FAMILIES, Conditioning, learn_law
from .mixture import Expert, Grid, Mixture, mixed, stacking_weights

Conformal = Literal["auto", "leave-one-out", "split"]

WARPINGS: tuple[InputTransform, ...] = ("standard", "quantile")
"""Columns as they are, since a mean may follow one beyond its bulk, and by their ranks."""
NUM_STAGES = len(WARPINGS) * len(FAMILIES)
"""Of the progress bar, for each output."""

CALIBRATION_ROWS = 1000
"""Most rows held out for conformal scores: their quantile then has a coverage known to about one percent."""

SAMPLED = 0.6
"""Share of the rows; where kernels were learned from less, the ridge is learned anew."""

VALIDATION_ROWS = 4000
"""Rows that weigh the experts and have residuals, at most, where embeddings go through features."""

CERTIFICATE = "split conformal: P(Y ∈ C(X)) ≥ coverage for exchangeable rows"
OBSERVATION = (
    "leave-one-out conformal: about the coverage asked for; no theorem for a finite sample, because the kernels were "
    "learned from the same rows"
)
WEIGHTED = "split conformal, rows counted by their weights: about the coverage asked for; no theorem for weighted rows"


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the regressor was told; see there."""

    conformal: Conformal
    subset_size: int
    max_rows: int
    num_features: int | None
    max_evaluations: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Calibration:
    """Distributions at rows that they were made without, with the targets there and how many rows each stands for."""

    law: Distribution
    y: Tensor
    weights: Tensor | None

    def quantile(self, coverage: float) -> Tensor:
        """Q, by which an interval of this coverage is moved out, or in."""
        return conformal_quantile(interval_scores(self.law.interval(coverage), self.y), coverage, self.weights)


@dataclasses.dataclass(frozen=True)
class Output:
    """What was learned about one target.

    Attributes:
        center: its mean, taken off before learning.
        scale: its standard deviation, divided by.
        mixture: the experts and their weights, on that scale.
        calibration: what corrects its intervals.
        guarantee: which theorem holds for the intervals.
        relevances: what each column counts, ``(G,)``; they add up to 1.
        table: the rows it was conditioned on, equal ones once.
        numbers: which of the rows given they are, ``(n,)``.
        support: the values predicted, in the units of the target; training targets to the last digit.
    """

    center: float
    scale: float
    mixture: Mixture
    calibration: Calibration
    guarantee: str
    relevances: Tensor
    table: Table
    numbers: Tensor
    support: Tensor

    @classmethod
    def learned(cls, table: Table, settings: Settings, bar: ProgressBar) -> Output:
        """Learn from encoded rows with one real target each."""
        held, kept = held_out_rows(len(table.y), settings)
        apart = _taken(table, held)
        rows, numbers = _distinct(_taken(table, kept))
        # Rows that calibrate are used for nothing else: not even for the scale.
        center, scale = _center_and_scale(rows.y, rows.weights)
        given, rows = rows.y, dataclasses.replace(rows, y=(rows.y - center) / scale)
        mixture, calibration, relevance = _Learner(rows, settings, bar).learned()
        guarantee = OBSERVATION
        if len(held):
            guarantee = CERTIFICATE if table.weights is None else WEIGHTED
            with torch.no_grad():
                calibration = Calibration(mixture.at(apart.x), (apart.y - center) / scale, apart.weights)
        support = _given_back(mixture.grid.support, center, scale, rows.y, given)
        return cls(center, scale, mixture, calibration, guarantee, relevance, rows, kept[numbers], support)

    @torch.no_grad()
    def distribution(self, x: Tensor) -> Distribution:
        """The predictive distributions at ``x`` ``(t, D)``, in the units of the target."""
        return Distribution(self.support, self.mixture.at(x).F)

    def corrected(self, interval: Tensor, coverage: float) -> Tensor:
        """The ``interval`` ``(t, 2)`` moved out, or in, by the conformal quantile of its scores."""
        Q = self.scale * self.calibration.quantile(coverage)
        low, high = interval[..., 0] - Q, interval[..., 1] + Q
        middle = 0.5 * (low + high)
        crossed = low > high
        return torch.stack([torch.where(crossed, middle, low), torch.where(crossed, middle, high)], dim=-1)

    @torch.no_grad()
    def row_weights(self, x: Tensor) -> Tensor:
        """v(x) = Σ_c π_c (w_c + (1 − Σ w_c) p), p the weights of the rows, for the rows of ``table``: ``(t, n)``."""
        table = self.table
        p = table.y.new_full((len(table.y),), 1.0 / len(table.y)) if table.weights is None else table.weights
        p, total = p / p.sum(), table.y.new_zeros(len(x), len(table.y))
        for share, expert in zip(self.mixture.weights, self.mixture.experts, strict=True):
            known = expert.speaker.embedding  # type: ignore[attr-defined]
            embedding = ConditionalEmbedding(known.kernel, known.regularization.item()).to(table.x)
            w = embedding.condition(table.x, table.y, table.weights).weights(x).mT
            total += share * (w + (1.0 - w.sum(-1, keepdim=True)) * p)
        return total


@dataclasses.dataclass(frozen=True)
class _Learner:
    """The experts of every family on both views: kernels from a part of the rows, then conditioned on all."""

    table: Table
    settings: Settings
    bar: ProgressBar

    def learned(self) -> tuple[Mixture, Calibration, Tensor]:
        """The mixture, its calibration on the rows that weigh it, and what the columns count in it."""
        table, settings = self.table, self.settings
        n, generator = len(table.y), np.random.default_rng(settings.seed + 1)
        order = torch.as_tensor(generator.permutation(n))
        part = order[: settings.subset_size].sort().values
        exact = n <= settings.max_rows
        validation_rows = (
            torch.arange(n) if exact else order[: max(VALIDATION_ROWS, settings.subset_size)].sort().values
        )
        points = self._points(order, exact)
        grid = Grid(table.y)
        experts: list[Expert] = []
        left_out, counts = [], []
        for warping in WARPINGS:
            warp = make_input_transform(warping, table.x, table.numbers, table.weights).to(table.x)
            rows = Rows(warp(table.x), table.y, table.weights, table.groups).taken(part)
            for family in FAMILIES:
                self.bar.set_postfix_str(f"learning {warping} {family}")
                with few_threads(len(part)):
                    law = learn_law(family, rows, settings.max_evaluations)
                with few_threads(n):
                    for expert, known in Conditioning(table, warp, validation_rows, points, exact).experts(law, grid):
                        experts.append(expert)
                        left_out.append(known)
                counts += [relevances(law.law, table.groups), relevances(law.mean, table.groups)]
                self.bar.update()
        weights = stacking_weights(left_out, table.y[validation_rows], table.weights_of(validation_rows))
        calibration = Calibration(mixed(left_out, weights), table.y[validation_rows], table.weights_of(validation_rows))
        shares = torch.stack([count / count.sum() for count in counts])
        return Mixture(tuple(experts), weights, grid), calibration, weights @ shares

    def _points(self, order: Tensor, exact: bool) -> Tensor | None:
        n, settings = len(order), self.settings
        if exact:
            return self.table.x[order[: min(PROBES, n // 2 + 1)]] if settings.subset_size < SAMPLED * n else None
        return self.table.x[order[: settings.num_features or num_points(n)]]


def held_out_rows(n: int, settings: Settings) -> tuple[Tensor, Tensor]:
    """The numbers of the rows that calibrate intervals, none without a split, and of those that are learned from."""
    order = torch.as_tensor(np.random.default_rng(settings.seed).permutation(n))
    split = settings.conformal == "split" or (settings.conformal == "auto" and n > settings.max_rows)
    num_held = min(CALIBRATION_ROWS, n // 4) if split else 0
    return order[:num_held], order[num_held:].sort().values


def _taken(table: Table, rows: Tensor) -> Table:
    return dataclasses.replace(table, x=table.x[rows], y=table.y[rows], weights=table.weights_of(rows))


def _distinct(table: Table) -> tuple[Table, Tensor]:
    """Equal rows once, with how many there are, whatever the order; and the number of one row of each kind."""
    weights = None if table.weights is None else table.weights.numpy()
    found = distinct_rows(table.x.numpy(), table.y.numpy()[:, None], weights)
    rows = torch.as_tensor(found.rows)
    counts = None if found.weights is None else torch.as_tensor(found.weights)
    return dataclasses.replace(table, x=table.x[rows], y=table.y[rows], weights=counts), rows


def _center_and_scale(y: Tensor, weights: Tensor | None) -> tuple[float, float]:
    p = torch.full_like(y, 1.0 / len(y)) if weights is None else weights / weights.sum()
    center = float(p @ y)
    scale = float((p @ (y - center).square()).sqrt())
    # A spread of a few units in the last place is rounding.
    return center, scale if scale > 1e-12 * max(1.0, abs(center)) else 1.0


def _given_back(support: Tensor, center: float, scale: float, standard: Tensor, given: Tensor) -> Tensor:
    """The values of a standard ``support`` in the units of the target: those that were ``given`` without rounding."""
    order = standard.argsort()
    place = torch.searchsorted(standard[order].contiguous(), support).clamp_max(len(order) - 1)
    known = standard[order][place] == support
    return torch.where(known, given[order][place], center + scale * support)
