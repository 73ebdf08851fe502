"""One real output of the regressor: its scale, its mixture of components, and the calibration of its distributions."""

from __future__ import annotations

import dataclasses
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings import ConditionalEmbedding, Distribution
from ..embeddings.recalibration import Recalibration
from ..linalg import Units
from ..progress import ProgressBar
from ..resources import few_threads
from ..tabular import InputTransform, make_input_transform
from .candidates import Rows, relevances
from .conditioning import PROBES, Table, num_points
from .distinct import distinct_rows
from .distributional import COARSE, FAMILIES, Conditioning, learn_distributional, refitted
from .importance import Fold, HeldOut, random_folds, units_of
from .mixture import Component, Grid, Mixture, mixed, stacking_weights

Conformal = Literal["auto", "leave-one-out", "split"]

INPUT_TRANSFORMS: tuple[InputTransform, ...] = ("standard", "quantile")
"""Standardized columns, which allow a mean to extrapolate, and ranks."""
NUM_STAGES = len(INPUT_TRANSFORMS) * len(FAMILIES)
"""Steps of the progress bar for each output."""

CALIBRATION_ROWS = 1000
"""Most rows held out for conformal scores: their quantile then has a coverage known to about one percent."""

SAMPLED = 0.6
"""Fraction of the rows; if kernels were learned from less, the ridge is learned again."""

VALIDATION_ROWS = 4000
"""The largest number of rows for mixture weights and residuals if embeddings use features."""

FEWEST_CALIBRATION_ROWS = 19
"""Rows held out at least, if there are twice as many: with fewer, an interval of coverage 0.9 is infinite."""

CERTIFICATE = (
    "Intervals: P(Y ∈ C(X)) ≥ coverage for exchangeable rows (split conformal, {n} rows held out). Quantiles and "
    "probabilities: approximate, calibrated on the same rows."
)
OBSERVATION = (
    "Intervals, quantiles and probabilities: approximate, calibrated on {n} leave-one-out predictions; no theorem for "
    "a finite sample, because the kernels were learned from the same rows."
)
WEIGHTED = (
    "Intervals, quantiles and probabilities: approximate, calibrated on {n} held-out rows; no theorem for rows with "
    "weights, copies or groups."
)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Settings of the regressor; see its arguments."""

    conformal: Conformal
    subset_size: int
    max_rows: int
    num_features: int | None
    max_evaluations: int
    seed: int


@dataclasses.dataclass(frozen=True)
class Output:
    """The fitted model of one target.

    Attributes:
        center: its mean, subtracted before learning.
        scale: its standard deviation, by which it is divided.
        mixture: the components and their weights, on that scale.
        calibration: the conformal recalibration of its distributions.
        certified: whether a theorem holds for the coverage of the intervals.
        guarantee: what is guaranteed, in words.
        relevances: of the columns, ``(G,)``; they sum to 1.
        table: the rows it was conditioned on, without duplicates.
        numbers: their indices among the rows passed to ``fit``, ``(n,)``.
        support: the predicted values, in the units of the target; training targets are reproduced exactly.
    """

    center: float
    scale: float
    mixture: Mixture
    calibration: Recalibration
    certified: bool
    guarantee: str
    relevances: Tensor
    table: Table
    numbers: Tensor
    support: Tensor

    @classmethod
    def learned(cls, table: Table, settings: Settings, bar: ProgressBar) -> Output:
        """Learn from encoded rows with one real target each."""
        held_out, training = held_out_rows(len(table.y), settings, table.places)
        rows, numbers = _distinct(table.subset(training))
        # Calibration rows are used for nothing else, not even for the scale.
        center, scale = _center_and_scale(rows.y, rows.weights)
        original, rows = rows.y, dataclasses.replace(rows, y=(rows.y - center) / scale)
        mixture, calibration, relevance = _Learner(rows, settings, bar).learned()
        guarantee, certified = OBSERVATION, False
        if len(held_out):
            calibration_rows, _ = _distinct(table.subset(held_out))
            certified = table.weights is None and table.places is None
            guarantee = CERTIFICATE if certified else WEIGHTED
            with torch.no_grad():
                calibration = Recalibration.from_rows(
                    mixture.at(calibration_rows.x), (calibration_rows.y - center) / scale, calibration_rows.weights
                )
        guarantee = guarantee.format(n=calibration.num_rows)
        support = _in_original_units(mixture.grid.support, center, scale, rows.y, original)
        return cls(
            center, scale, mixture, calibration, certified, guarantee, relevance, rows, training[numbers], support
        )

    @torch.no_grad()
    def distribution(self, x: Tensor) -> Distribution:
        """The predictive distributions at ``x`` ``(t, D)``, in the units of the target."""
        return self.calibration.recalibrated(Distribution(self.support, self.mixture.at(x).F))

    def interval(self, distribution: Distribution, coverage: float) -> Tensor:
        """Intervals ``(t, 2)`` of predictive distributions, with the guarantee."""
        return self.calibration.interval(distribution, coverage, guaranteed=self.certified)

    def held_out(self, max_rows: int, generator: np.random.Generator) -> HeldOut:
        """Rows, and their CRPS by the mixture conditioned on the other folds, on a coarse grid."""
        table, grid = self.table, Grid(self.table.y, COARSE)

        def fold(rows: Tensor, training: Tensor) -> Fold:
            subset = table.subset(training)
            components = tuple(refitted(component, table, subset, grid) for component in self.mixture.components)
            mixture = Mixture(components, self.mixture.weights, grid)
            return Fold(rows, lambda x, rows: self.calibration.recalibrated(mixture.at(x)).crps(table.y[rows]))

        folds = [fold(*part) for part in random_folds(units_of(table), max_rows, generator)]
        return HeldOut(table.x, table.weights, folds)

    @torch.no_grad()
    def row_weights(self, x: Tensor) -> Tensor:
        """v(x) = Σ_c π_c (w_c + (1 − Σ w_c) p), p the weights of the rows, for the rows of ``table``: ``(t, n)``."""
        table = self.table
        p = table.y.new_full((len(table.y),), 1.0 / len(table.y)) if table.weights is None else table.weights
        p, total = p / p.sum(), table.y.new_zeros(len(x), len(table.y))
        for share, component in zip(self.mixture.weights, self.mixture.components, strict=True):
            learned = component.mean_predictor.embedding  # type: ignore[attr-defined]
            embedding = ConditionalEmbedding(learned.kernel, learned.regularization.item()).to(table.x)
            w = embedding.condition(table.x, table.y, table.weights).weights(x).mT
            total += share * (w + (1.0 - w.sum(-1, keepdim=True)) * p)
        return total


@dataclasses.dataclass(frozen=True)
class _Learner:
    """Components of every kernel family on both input transforms: learned on a subset, then conditioned on all rows."""

    table: Table
    settings: Settings
    bar: ProgressBar

    def learned(self) -> tuple[Mixture, Recalibration, Tensor]:
        """The mixture, its calibration on the rows that determine its weights, and the relevances of the columns."""
        table, settings = self.table, self.settings
        n, generator = len(table.y), np.random.default_rng(settings.seed + 1)
        order = torch.as_tensor(generator.permutation(n))
        exact = n <= settings.max_rows
        labels = table.units.labels
        if labels is not None and not exact:  # rows of a group follow one another
            order = torch.as_tensor(generator.permutation(int(labels.max()) + 1))[labels].argsort(stable=True)
        part = order[: settings.subset_size].sort().values
        size = max(VALIDATION_ROWS, settings.subset_size)
        if labels is not None and not exact:  # whole groups
            size = min(size, n)
            size += int((labels[order[size:]] == labels[order[size - 1]]).sum())
        validation_rows = torch.arange(n) if exact else order[:size].sort().values
        points = self._points(order, exact)
        grid = Grid(table.y)
        components: list[Component] = []
        left_out, counts = [], []
        for input_transform in INPUT_TRANSFORMS:
            transform = make_input_transform(input_transform, table.x, table.numbers, table.weights).to(table.x)
            rows = Rows(transform(table.x), table.y, table.weights, table.groups, units=table.units).subset(part)
            for family in FAMILIES:
                self.bar.set_postfix_str(f"learning {input_transform} {family}")
                with few_threads(len(part)):
                    model = learn_distributional(family, rows, settings.max_evaluations)
                with few_threads(n):
                    for component, distribution in Conditioning(
                        table, transform, validation_rows, points, exact
                    ).components(model, grid):
                        components.append(component)
                        left_out.append(distribution)
                counts += [relevances(model.distribution, table.groups), relevances(model.mean, table.groups)]
                self.bar.update()
        weights = stacking_weights(left_out, table.y[validation_rows], table.weights_of(validation_rows))
        calibration = Recalibration.from_rows(
            mixed(left_out, weights), table.y[validation_rows], table.weights_of(validation_rows)
        )
        shares = torch.stack([count / count.sum() for count in counts])
        return Mixture(tuple(components), weights, grid), calibration, weights @ shares

    def _points(self, order: Tensor, exact: bool) -> Tensor | None:
        n, settings = len(order), self.settings
        if exact:
            return self.table.x[order[: min(PROBES, n // 2 + 1)]] if settings.subset_size < SAMPLED * n else None
        return self.table.x[order[: settings.num_features or num_points(n)]]


def held_out_rows(n: int, settings: Settings, places: NDArray[np.int64] | None) -> tuple[Tensor, Tensor]:
    """The row numbers for calibration (none without a split) and for learning; equal ``places`` are not divided."""
    order = np.random.default_rng(settings.seed).permutation(n)
    num_units = n if places is None else len(np.unique(places))
    split = settings.conformal == "split" or (settings.conformal == "auto" and num_units > settings.max_rows)
    num_held = min(CALIBRATION_ROWS, max(n // 4, min(n // 2, FEWEST_CALIBRATION_ROWS))) if split else 0
    if places is None:
        return torch.as_tensor(order[:num_held]), torch.as_tensor(np.sort(order[num_held:]))
    # Units in the order of their first rows, until there are enough rows.
    units, first, sizes = np.unique(places[order], return_index=True, return_counts=True)
    by_first = first.argsort()
    before = sizes[by_first].cumsum() - sizes[by_first]
    held_out = np.isin(places, units[by_first[before < num_held]])
    return torch.as_tensor(np.flatnonzero(held_out)), torch.as_tensor(np.flatnonzero(~held_out))


def _distinct(table: Table) -> tuple[Table, Tensor]:
    """The distinct rows, in any order, with normalized weights and units, and the index of one copy of each."""
    weights = None if table.weights is None else table.weights.numpy()
    groups = None if table.units.labels is None else table.units.labels.numpy()
    distinct = distinct_rows(table.x.numpy(), table.y.numpy()[:, None], weights, groups)
    rows = torch.as_tensor(distinct.rows)
    counts, shares = (None if a is None else torch.as_tensor(a) for a in (distinct.weights, distinct.shares))
    units = Units(None if table.units.labels is None else table.units.labels[rows], shares)
    kept = dataclasses.replace(table, x=table.x[rows], y=table.y[rows], weights=counts, units=units)
    return dataclasses.replace(kept, places=distinct.places), rows


def _center_and_scale(y: Tensor, weights: Tensor | None) -> tuple[float, float]:
    p = torch.full_like(y, 1.0 / len(y)) if weights is None else weights / weights.sum()
    center = float(p @ y)
    scale = float((p @ (y - center).square()).sqrt())
    # A spread of a few units in the last place is rounding.
    return center, scale if scale > 1e-12 * max(1.0, abs(center)) else 1.0


def _in_original_units(support: Tensor, center: float, scale: float, standard: Tensor, original: Tensor) -> Tensor:
    """The standardized ``support`` in the units of the target; training targets are reproduced exactly."""
    order = standard.argsort()
    place = torch.searchsorted(standard[order].contiguous(), support).clamp_max(len(order) - 1)
    is_target = standard[order][place] == support
    return torch.where(is_target, original[order][place], center + scale * support)
