"""Learn the components of the regressor and condition them on all rows.

For one input transform and one family of kernels (:mod:`kernel_embed.estimators.candidates`) three embeddings are
learned by :class:`kernel_embed.LeaveOneOutScore`: of the targets by their CRPS, of their mean by squares, and of the
residuals of that mean. Each is then conditioned on all rows (:mod:`kernel_embed.estimators.conditioning`).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator
from typing import Literal

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel, LinearKernel
from torch import Tensor

from ..embeddings import ConditionalEmbedding, ConditionedEmbedding, Distribution, LinearPredictor
from ..embeddings.distribution import support_of
from ..kernels import FeatureKernel
from ..learning import LBFGS, fit
from ..objectives import LeaveOneOutScore, Objective
from .candidates import Learned, Rows, Search, tied_kernel
from .conditioning import Table, condition_exactly, condition_through_features, ridge_of, weighted_mean
from .mixture import Component, DirectComponent, Grid, IndicatorEmbedding, ShiftedComponent, shifted

RealFamily = Literal["rbf", "matern"]

FAMILIES: tuple[RealFamily, ...] = ("rbf", "matern")
"""A smooth and a rough kernel; the mixture weights both."""

COMMON_EVALUATIONS, NOISE_EVALUATIONS = 25, 20

DATA_WEIGHT = 0.3
"""Weight of the score relative to the priors of lengthscales.

With 1 the score at left-out rows was up to 15 % below that at new rows, and intervals corrected by it covered too
little; between 0.1 and 1 the score at new rows hardly changed.
"""

COARSE = 64
"""Targets on the grid of a component that is refitted, and points between them; enough for a mean CRPS."""

REGULARIZATION = (1e-9, 10.0)
"""Bounds of λ. Well below the upper bound, GPyTorch's interval transform is nearly logarithmic."""


def regularized(kernel: Kernel, regularization: float, prior: object = None) -> ConditionalEmbedding:
    """An embedding with bounded λ: on targets of pure noise λ would otherwise diverge.

    It has no prior on λ, unlike the classifier: a log prior is in nats, and a score is not.
    """
    low, high = REGULARIZATION
    start = min(max(regularization, 2.0 * low), 0.5 * high)
    interval = Interval(low, high)
    # GPyTorch rounds bounds to the default dtype.
    interval.lower_bound, interval.upper_bound = (torch.tensor(bound, dtype=torch.float64) for bound in (low, high))
    return ConditionalEmbedding(kernel, start, regularization_constraint=interval)


@dataclasses.dataclass(frozen=True)
class ScoreSearch(Search[ConditionalEmbedding, ConditionedEmbedding]):
    """Learning by a score, which has the units of the target or their square.

    When each column gets its lengthscale, the objective is ``nats``·log(score) per row, relative to the score at the
    common lengthscale. It is dimensionless, so that priors weigh as in a likelihood, up to :data:`DATA_WEIGHT`.
    """

    nats: float = 1.0

    def objective_of(self, stages: Learned[ConditionalEmbedding], rows: Rows) -> Objective[ConditionedEmbedding]:
        """The score, or its logarithmic form."""
        if "common" not in stages:
            return self.objective
        with torch.no_grad():
            value = self.objective.evaluate(stages["common"].attach(*rows.data, rows.weights, rows.units)).item()
        return self.objective * (DATA_WEIGHT * self.nats / max(value, 1e-12))


@dataclasses.dataclass(frozen=True)
class DistributionalModel:
    """Embeddings of transformed rows: of the targets, of the targets for their mean, and of the residuals of that mean.

    Attributes:
        total_weight: of the training rows; it converts λ to a ridge.
    """

    family: RealFamily
    distribution: ConditionalEmbedding
    mean: ConditionalEmbedding
    noise: ConditionalEmbedding
    total_weight: float

    def ridge(self, embedding: ConditionalEmbedding) -> float:
        """η = nλ: the ridge learned on a subset is a better start for all rows than its λ."""
        return embedding.regularization.item() * self.total_weight


def learn_distributional(family: RealFamily, rows: Rows, max_evaluations: int) -> DistributionalModel:
    """Learn the embeddings of a direct and a shifted component, for targets ``(n,)`` of mean 0 and scale 1."""
    crps, squares = LeaveOneOutScore(), LeaveOneOutScore(unit_linear(rows.y))
    common = LBFGS(max_evaluations=min(COMMON_EVALUATIONS, max_evaluations), tolerance=1e-3)
    columns = LBFGS(max_evaluations=max_evaluations)
    direct = _last(ScoreSearch(crps, regularized, common, columns).learn(family, rows))
    mean = _last(ScoreSearch(squares, regularized, common, columns, nats=0.5).learn(family, rows))
    with torch.no_grad():
        residuals = rows.y - mean.condition(*rows.data, rows.weights, rows.units).leave_one_out().squeeze(-1)
    noise = _learn_size(family, direct, dataclasses.replace(rows, y=residuals), crps, max_evaluations)
    return DistributionalModel(family, direct, mean, noise, rows.total_weight)


def _last(stages: Learned[ConditionalEmbedding]) -> ConditionalEmbedding:
    return stages["columns"] if "columns" in stages else stages["common"]


def _learn_size(
    family: RealFamily,
    embedding: ConditionalEmbedding,
    rows: Rows,
    score: Objective[ConditionedEmbedding],
    max_evaluations: int,
) -> ConditionalEmbedding:
    """Keep the ratios of the lengthscales for other targets, and learn their common scale and λ again."""
    lengthscale = embedding.kernel.lengthscale.detach()
    size = tied_kernel(family, torch.zeros_like(rows.groups), 1.0, 1.0)
    resized = regularized(size, embedding.regularization.item()).to(rows.x)
    optimizer = LBFGS(max_evaluations=min(NOISE_EVALUATIONS, max_evaluations), tolerance=1e-3)
    options = {"weights": rows.weights, "groups": rows.units, "optimizer": optimizer, "progress": False}
    fit(resized, score, rows.x / lengthscale, rows.y, **options)  # type: ignore[arg-type]
    kernel = copy.deepcopy(embedding.kernel)
    kernel.column_lengthscale = embedding.kernel.column_lengthscale.detach() * size.column_lengthscale.detach()
    return ConditionalEmbedding(kernel, resized.regularization.item()).to(rows.x)


@torch.no_grad()
def refitted(component: Component, table: Table, subset: Table, grid: Grid) -> Component:
    """A component that was conditioned on ``table``, conditioned on a ``subset`` with the same kernels and ridges."""
    if isinstance(component, DirectComponent):
        return _refitted_direct(component, table, subset, grid.support)
    assert isinstance(component, ShiftedComponent)
    embedding = ConditionalEmbedding(component.mean.embedding.kernel).to(table.x)  # type: ignore[attr-defined]
    embedding.regularization = ridge_of(component.mean, table) / subset.total_weight
    mean = embedding.attach(subset.x, subset.y, subset.weights, subset.units)
    residuals = dataclasses.replace(subset, y=subset.y - mean.leave_one_out().squeeze(-1))
    around = _refitted_direct(component.residuals, table, residuals, Grid(residuals.y, COARSE).support)
    return ShiftedComponent(mean, around, grid)


def _refitted_direct(component: DirectComponent, table: Table, subset: Table, support: Tensor) -> DirectComponent:
    embedding = IndicatorEmbedding(component.embedding.kernel, support, subset.y, subset.weights).to(table.x)
    embedding.regularization = ridge_of(component.predictor, table) / subset.total_weight
    return DirectComponent(embedding.attach(subset.x, subset.y, subset.weights), embedding)


def unit_linear(like: Tensor) -> LinearKernel:
    """The target kernel y·y′, for which the leave-one-out score is the squared error of the mean."""
    kernel = LinearKernel().to(like)
    kernel.variance = 1.0
    return kernel.requires_grad_(False)


@dataclasses.dataclass(frozen=True)
class Conditioning:
    """How embeddings of transformed rows are conditioned on all rows.

    Attributes:
        table: all rows, with standardized targets.
        transform: the input transform of the embeddings.
        validation_rows: row numbers at which leave-one-out values are needed: all rows if embeddings are exact.
        points: the Nyström points, from which the ridge is learned, and through which embeddings are conditioned unless
            ``exact``.
        exact: whether embeddings are exact.
    """

    table: Table
    transform: torch.nn.Module
    validation_rows: Tensor
    points: Tensor | None
    exact: bool

    @torch.no_grad()
    def components(self, learned: DistributionalModel, grid: Grid) -> Iterator[tuple[Component, Distribution]]:
        """The direct and the shifted component, each with its leave-one-out distributions at the validation rows."""
        table = self.table
        direct, left_out = self._direct(
            learned.distribution, learned.ridge(learned.distribution), table, self.validation_rows, grid.support
        )
        yield direct, left_out
        embedding = ConditionalEmbedding(FeatureKernel(self.transform, learned.mean.kernel)).to(table.x)
        values, mean = self._condition(
            embedding, learned.ridge(learned.mean), table, self.validation_rows, table.y.new_ones(1)
        )
        centers = values.squeeze(-1)
        residuals = table.subset(self.validation_rows)
        residuals = dataclasses.replace(residuals, y=residuals.y - centers)
        everywhere = torch.arange(len(self.validation_rows))
        support = support_of(residuals.y)
        residual_component, around = self._direct(
            learned.noise, learned.ridge(learned.noise), residuals, everywhere, support
        )
        yield ShiftedComponent(mean, residual_component, grid), shifted(around, centers, grid)

    def _direct(
        self, learned: ConditionalEmbedding, ridge: float, table: Table, validation_rows: Tensor, support: Tensor
    ) -> tuple[DirectComponent, Distribution]:
        kernel = FeatureKernel(self.transform, learned.kernel)
        embedding = IndicatorEmbedding(kernel, support, table.y, table.weights).to(table.x)
        # The CRPS is the sum of squares over the t_j, each with the gap above it.
        gaps = torch.cat([support.diff(), support.new_zeros(1)])
        values, predictor = self._condition(embedding, ridge, table, validation_rows, gaps)
        return DirectComponent(predictor, embedding), Distribution(support, embedding.marginal + values)

    def _condition(
        self, embedding: ConditionalEmbedding, ridge: float, table: Table, validation_rows: Tensor, gaps: Tensor
    ) -> tuple[Tensor, LinearPredictor]:
        def loss(F: Tensor, Y: Tensor, weights: Tensor | None) -> float:
            return weighted_mean((F - Y).square() @ gaps, weights)

        if self.exact:
            return condition_exactly(embedding, table, validation_rows, ridge, self.points, loss)
        assert self.points is not None
        return condition_through_features(embedding, table, validation_rows, ridge, self.points, loss)
