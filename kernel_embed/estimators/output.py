"""One real output of the regressor: its scale, its mixture of components, and the calibration of its distributions.

For every input transform and family of kernels three embeddings are learned on a subset of the rows by
:class:`kernel_embed.LeaveOneOutScore`: of the targets by their CRPS, of their mean by squares, and of the residuals of
that mean. Each is then conditioned on all rows.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, LinearKernel
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings import ConditionalEmbedding, Distribution
from ..embeddings.conformal import Recalibration
from ..learning import LBFGS, fit
from ..objectives import LeaveOneOutScore
from ..runtime import ProgressBar, few_threads
from ..tabular import InputTransform, make_input_transform
from .candidates import Family, Search, relevances, tied_kernel
from .conditioning import PROBES, Table, num_points
from .importance import HeldOut, random_folds
from .mixture import COARSE, Conditioning, Mixture, grid, mixed, stacking_weights

if TYPE_CHECKING:
    from .regressor import ConditionalEmbeddingRegressor

Conformal = Literal["auto", "leave-one-out", "split"]

INPUT_TRANSFORMS: tuple[InputTransform, ...] = ("standard", "quantile")  # the first allows a mean to extrapolate
FAMILIES: tuple[Family, ...] = ("rbf", "matern")  # a smooth and a rough kernel
NUM_STAGES = len(INPUT_TRANSFORMS) * len(FAMILIES)  # steps of the progress bar for each output
COMMON_EVALUATIONS, NOISE_EVALUATIONS = 25, 20
REGULARIZATION = (1e-9, 10.0)  # bounds of λ
SAMPLED = 0.6  # fraction of the rows; if kernels were learned from less, the ridge is learned again
VALIDATION_ROWS = 4000  # the largest number of rows for mixture weights and residuals if embeddings use features
CALIBRATION_ROWS = 1000  # held out for conformal scores at most: coverage is then known to about one percent
FEWEST_CALIBRATION_ROWS = 19  # if there are twice as many: with fewer, an interval of coverage 0.9 is infinite

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
class Output:
    """The fitted model of one target."""

    center: float  # its mean, subtracted before learning
    scale: float  # its standard deviation, by which it is divided
    mixture: Mixture  # the components and their weights, on that scale
    calibration: Recalibration  # the conformal recalibration of its distributions
    certified: bool  # whether a theorem holds for the coverage of the intervals
    guarantee: str  # what is guaranteed, in words
    relevances: Tensor  # of the columns, (G,); they sum to 1
    table: Table  # the rows it was conditioned on, without duplicates
    numbers: Tensor  # their indices among the rows passed to fit, (n,)
    support: Tensor  # the predicted values, in the units of the target; training targets are reproduced exactly

    @classmethod
    def learned(cls, table: Table, settings: ConditionalEmbeddingRegressor, bar: ProgressBar) -> Output:
        """Learn from encoded rows with one real target each."""
        held_out, training = (table.rows(part) for part in held_out_rows(len(table.y), settings, table.places))
        rows, numbers, _ = table.subset(training).distinct()
        # Calibration rows are used for nothing else, not even for the scale.
        center = float(rows.shares @ rows.y)
        scale = float((rows.shares @ (rows.y - center).square()).sqrt())
        if not scale > 1e-12 * max(1.0, abs(center)):
            scale = 1.0  # a spread of a few units in the last place is rounding
        original, rows = rows.y, dataclasses.replace(rows, y=(rows.y - center) / scale)
        mixture, calibration, relevance = _learn_mixture(rows, settings, bar)
        guarantee, certified = OBSERVATION, False
        if len(held_out):
            others = table.subset(held_out).distinct()[0]
            certified = table.weights is None and table.places is None
            guarantee = CERTIFICATE if certified else WEIGHTED
            with torch.no_grad():
                distribution = mixture.at(others.x)
                calibration = Recalibration.from_rows(distribution, (others.y - center) / scale, others.weights)
        guarantee = guarantee.format(n=len(calibration.below))
        order = rows.y.argsort()
        place = torch.searchsorted(rows.y[order].contiguous(), mixture.support).clamp_max(len(order) - 1)
        is_target = rows.y[order][place] == mixture.support
        support = torch.where(is_target, original[order][place], center + scale * mixture.support)
        numbers = training[numbers]
        return cls(center, scale, mixture, calibration, certified, guarantee, relevance, rows, numbers, support)

    @torch.no_grad()
    def distribution(self, x: Tensor) -> Distribution:
        """The predictive distributions at ``x`` ``(t, D)``, in the units of the target."""
        return self.calibration.recalibrated(Distribution(self.support, self.mixture.at(x).F))

    def interval(self, distribution: Distribution, coverage: float) -> Tensor:
        """Intervals ``(t, 2)`` of predictive distributions, with the guarantee."""
        return self.calibration.interval(distribution, coverage, guaranteed=self.certified)

    def held_out(self, max_rows: int, generator: np.random.Generator) -> HeldOut:
        """Rows, and their CRPS by the mixture conditioned on the other folds, on a coarse grid."""
        table, support, folds = self.table, grid(self.table.y, COARSE), []

        def loss(mixture: Mixture, x: Tensor, rows: Tensor) -> Tensor:
            return self.calibration.recalibrated(mixture.at(x)).crps(table.y[rows])

        for rows, training in random_folds(table, max_rows, generator):
            subset = table.subset(training)
            components = tuple(one.refitted(table, subset, support) for one in self.mixture.components)
            folds.append((rows, functools.partial(loss, Mixture(components, self.mixture.weights, support))))
        return HeldOut(table, folds)

    @torch.no_grad()
    def row_weights(self, x: Tensor) -> Tensor:
        """v(x) = Σ_c π_c (w_c + (1 − Σ w_c) p), p the weights of the rows, for the rows of ``table``: ``(t, n)``."""
        table, p = self.table, self.table.shares
        total = p.new_zeros(len(x), len(p))
        for share, component in zip(self.mixture.weights, self.mixture.components, strict=True):
            learned = (component.mean or component.predictor).embedding  # type: ignore[attr-defined]
            embedding = ConditionalEmbedding(learned.kernel, learned.regularization.item()).to(table.x)
            w = embedding.condition(table.x, table.y, table.weights).weights(x).mT
            total += share * (w + (1.0 - w.sum(-1, keepdim=True)) * p)
        return total


def held_out_rows(
    n: int, settings: ConditionalEmbeddingRegressor, places: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers for calibration (none without a split) and for learning; equal ``places`` stay together."""
    order = np.random.default_rng(settings._seed).permutation(n)
    num_units = n if places is None else len(np.unique(places))
    split = settings.conformal == "split" or (settings.conformal == "auto" and num_units > settings.max_rows)
    num_held = min(CALIBRATION_ROWS, max(n // 4, min(n // 2, FEWEST_CALIBRATION_ROWS))) if split else 0
    if places is None:
        return order[:num_held], np.sort(order[num_held:])
    # Units in the order of their first rows, until there are enough rows.
    units, first, sizes = np.unique(places[order], return_index=True, return_counts=True)
    by_first = first.argsort()
    before = sizes[by_first].cumsum() - sizes[by_first]
    held_out = np.isin(places, units[by_first[before < num_held]])
    return np.flatnonzero(held_out), np.flatnonzero(~held_out)


def _learn_mixture(
    table: Table, settings: ConditionalEmbeddingRegressor, bar: ProgressBar
) -> tuple[Mixture, Recalibration, Tensor]:
    """The mixture, its calibration on the rows that determine its weights, and the relevances of the columns."""
    n, generator = len(table.y), np.random.default_rng(settings._seed + 1)
    order = table.rows(generator.permutation(n))
    validation_rows, labels = torch.arange(n, device=order.device), table.units.labels
    exact = n <= settings.max_rows
    if not exact:
        size = min(max(VALIDATION_ROWS, settings.subset_size), n)
        if labels is not None:  # rows of a group follow one another, and whole groups are taken
            order = table.rows(generator.permutation(int(labels.max()) + 1))[labels].argsort(stable=True)
            size += int((labels[order[size:]] == labels[order[size - 1]]).sum())
        validation_rows = order[:size].sort().values
    part = order[: settings.subset_size].sort().values
    points = None
    if not exact:
        points = table.x[order[: settings.num_features or num_points(n)]]
    elif settings.subset_size < SAMPLED * n:
        points = table.x[order[: min(PROBES, n // 2 + 1)]]
    support = grid(table.y)
    components, left_out, counts = [], [], []
    for name in INPUT_TRANSFORMS:
        transform = make_input_transform(name, table.x, table.numbers, table.weights).to(table.x)
        rows = dataclasses.replace(table, x=transform(table.x)).subset(part)
        for family in FAMILIES:
            bar.set_postfix_str(f"learning {name} {family}")
            with few_threads(len(part)):
                learned = _learn_embeddings(family, rows, settings.max_evaluations)
            conditioning = Conditioning(table, transform, validation_rows, points, exact, rows.total_weight)
            with few_threads(n):
                for component, distribution in conditioning.components(learned, support):
                    components.append(component)
                    left_out.append(distribution)
            counts += [relevances(embedding, table.groups) for embedding in learned[:2]]
            bar.update()
    y, row_weights = table.y[validation_rows], table.weights_of(validation_rows)
    weights = stacking_weights(left_out, y, row_weights)
    calibration = Recalibration.from_rows(mixed(left_out, weights), y, row_weights)
    shares = torch.stack([count / count.sum() for count in counts])
    return Mixture(tuple(components), weights, support), calibration, weights @ shares


def _learn_embeddings(family: Family, rows: Table, max_evaluations: int) -> tuple[ConditionalEmbedding, ...]:
    """Embeddings of targets ``(n,)`` of mean 0 and scale 1, of the targets for their mean, and of its residuals."""
    linear = LinearKernel().to(rows.y)
    linear.variance = 1.0  # y·y′, for which the leave-one-out score is the squared error of the mean
    crps, squares = LeaveOneOutScore(), LeaveOneOutScore(linear.requires_grad_(False))
    common = LBFGS(max_evaluations=min(COMMON_EVALUATIONS, max_evaluations), tolerance=1e-3)
    columns = LBFGS(max_evaluations=max_evaluations)
    direct, mean = (
        list(Search(score, _bounded, common, columns, nats).learn(family, rows).values())[-1]
        for score, nats in ((crps, 1.0), (squares, 0.5))
    )
    with torch.no_grad():
        residuals = rows.y - mean.condition(**rows.data).leave_one_out().squeeze(-1)
    # The ratios of the lengthscales stay; their common scale and λ are learned again.
    size = tied_kernel(family, torch.zeros_like(rows.groups), 1.0, 1.0)
    resized = _bounded(size, direct.regularization.item()).to(rows.x)
    data = {**rows.data, "x": rows.x / direct.kernel.lengthscale.detach(), "y": residuals}
    optimizer = LBFGS(max_evaluations=min(NOISE_EVALUATIONS, max_evaluations), tolerance=1e-3)
    fit(resized, crps, **data, optimizer=optimizer, progress=False)
    kernel = copy.deepcopy(direct.kernel)
    kernel.column_lengthscale = direct.kernel.column_lengthscale.detach() * size.column_lengthscale.detach()
    return direct, mean, ConditionalEmbedding(kernel, resized.regularization.item()).to(rows.x)


def _bounded(kernel: Kernel, regularization: float, prior: object = None) -> ConditionalEmbedding:
    """An embedding with bounded λ, which would diverge on pure noise, and without its prior: a score is not in nats."""
    low, high = REGULARIZATION
    interval = Interval(low, high)
    # GPyTorch rounds bounds to the default dtype.
    interval.lower_bound, interval.upper_bound = (
        torch.tensor(bound, dtype=torch.float64, device="cpu") for bound in (low, high)
    )
    start = min(max(regularization, 2.0 * low), 0.5 * high)
    return ConditionalEmbedding(kernel, start, regularization_constraint=interval)
