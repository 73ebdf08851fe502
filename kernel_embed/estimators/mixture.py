r"""The mixture of the regressor: two kinds of predictive distributions, weighted by their CRPS on left-out rows.

A **direct** one embeds the targets by their indicators, :math:`y \mapsto (\mathbf 1\{y \le t_j\} - \bar F(t_j))_j`,
so that the mean of the embedding is a distribution function. A **shifted** one embeds the residuals of a mean,
:math:`e_i = y_i - f_{-i}(x_i)`, and shifts their distribution by the mean: :math:`\hat F(t \mid x) = \hat F_e(t - f(x)
\mid x)`. With :math:`r_{c,i}(t) = \hat F_{c,-i}(t \mid x_i) - \mathbf
1\{y_i \le t\}` their mixture is

.. math::  \hat F(t \mid x) = \sum_c \pi_c \hat F_c(t \mid x), \qquad
           \pi = \tfrac12 \Big( \operatorname*{arg\,min}_{\pi \in \Delta} \pi^\top H \pi + \tfrac1C \mathbf 1 \Big), \;
           H_{cd} = \frac1n \sum_i \int r_{c,i}\, r_{d,i}\, dt ,

since the CRPS of a mixture is a convex quadratic form of its weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import ConditionalEmbedding, LinearPredictor
from ..embeddings.distribution import Distribution, support_of
from ..kernels import FeatureKernel
from .conditioning import Table, condition, ridge_of, weighted_mean

MAX_DISTINCT = 64
"""With at most this many distinct values, targets are treated as counts or ratings: no other value is predicted."""
POINTS = 512  # the largest number of training targets on a support, and of equally spaced points added to them
COARSE = 64  # the same for a component that is refitted; enough for a mean CRPS
BLOCK = 1024  # new points whose distribution functions are formed at once


def grid(y: Tensor, points: int = POINTS) -> Tensor:
    """The values that predictions take: training targets, and points between them, up to ``points`` of each."""
    distinct: Tensor = torch.unique(y)
    if len(distinct) <= MAX_DISTINCT:
        return distinct
    places = torch.linspace(0, len(distinct) - 1, points, dtype=torch.float64, device=y.device)
    thinned = distinct[places.round().long()]
    even = torch.linspace(distinct[0].item(), distinct[-1].item(), points, dtype=y.dtype, device=y.device)
    support: Tensor = torch.unique(torch.cat([thinned, even]))
    return support


class IndicatorEmbedding(ConditionalEmbedding):
    """Real targets by their indicators 1{y ≤ t_j} − F̄(t_j): E[·| X = x] is a distribution function less F̄.

    ``support`` is t, ascending, and ``y`` are all targets with their ``weights``, with distribution function F̄.
    """

    support: Tensor
    marginal: Tensor

    def __init__(self, kernel: Kernel, support: Tensor, y: Tensor, weights: Tensor | None = None) -> None:
        super().__init__(kernel)
        # F̄(t_j), from the weight of the targets up to each of the t_j
        order = y.argsort()
        mass = torch.ones_like(y) if weights is None else weights[order]
        total = torch.cat([mass.new_zeros(1), mass.cumsum(0)])
        below = torch.searchsorted(y[order].contiguous(), support, right=True)
        self.register_buffer("support", support)
        self.register_buffer("marginal", total[below] / total[-1])

    def targets(self, y: Tensor, like: Tensor) -> Tensor:
        """The centered indicators, ``(n, s)``."""
        return (y.reshape(-1, 1) <= self.support).to(like) - self.marginal


@dataclasses.dataclass(frozen=True)
class Component:
    """A predictive distribution of a real target, or a predicted ``mean`` plus the distribution of the residuals."""

    predictor: LinearPredictor  # of the indicators of the targets, or of the residuals
    embedding: IndicatorEmbedding  # its embedding, with the learned kernel
    mean: LinearPredictor | None = None
    support: Tensor | None = None  # of the residuals, where there is a mean

    def at(self, x: Tensor) -> Distribution:
        """F̄ + k(x)ᵀA⁻¹G, or F̂_e(t − f(x) | x), at new points ``x`` ``(t, D)``."""
        direct = Distribution(self.embedding.support, self.embedding.marginal + self.predictor.mean(x))
        if self.mean is None or self.support is None:
            return direct
        return shifted(direct, self.mean.mean(x).squeeze(-1), self.support)

    @torch.no_grad()
    def refitted(self, table: Table, subset: Table, support: Tensor) -> Component:
        """The same conditioned on a ``subset`` of its ``table``, with the same kernels and ridges."""
        mean = None
        if self.mean is not None:
            embedding = ConditionalEmbedding(self.mean.embedding.kernel).to(table.x)  # type: ignore[attr-defined]
            embedding.regularization = ridge_of(self.mean, table) / subset.total_weight
            mean = embedding.attach(**subset.data)
            subset = dataclasses.replace(subset, y=subset.y - mean.leave_one_out().squeeze(-1))
        of_indicators = support if mean is None else grid(subset.y, COARSE)
        indicators = IndicatorEmbedding(self.embedding.kernel, of_indicators, subset.y, subset.weights).to(table.x)
        indicators.regularization = ridge_of(self.predictor, table) / subset.total_weight
        predictor = indicators.attach(subset.x, subset.y, subset.weights)
        return Component(predictor, indicators, mean, None if mean is None else support)


def shifted(distribution: Distribution, by: Tensor, support: Tensor) -> Distribution:
    """The distribution of e + ``by``, every atom moved to the nearest value of ``support``."""
    # Upper ends of the cells of the values: halfway to the next one; infinity for the last
    ends = torch.cat([support[:-1] + 0.5 * support.diff(), torch.full_like(support[:1], torch.inf)])
    thresholds = (ends - by.unsqueeze(-1)).contiguous()
    below = torch.searchsorted(distribution.support, thresholds, right=True)
    padded = torch.cat([torch.zeros_like(distribution.F[..., :1]), distribution.F], dim=-1)
    return Distribution(support, padded.gather(-1, below))


@dataclasses.dataclass(frozen=True)
class Conditioning:
    """How embeddings of transformed rows are conditioned on all rows, with leave-one-out values at validation rows."""

    table: Table
    transform: torch.nn.Module
    validation_rows: Tensor
    points: Tensor | None
    exact: bool
    learned_weight: float  # of the rows that λ was learned from: their ridge nλ is a better start for all rows than λ

    @torch.no_grad()
    def components(
        self, learned: Sequence[ConditionalEmbedding], support: Tensor
    ) -> Iterator[tuple[Component, Distribution]]:
        """The direct and the shifted component, from embeddings of targets, mean and residuals, and values left out."""
        direct, mean, noise = learned
        table, rows = self.table, self.validation_rows
        yield self._direct(direct, table, rows, support)
        embedding = ConditionalEmbedding(FeatureKernel(self.transform, mean.kernel)).to(table.x)
        values, predictor = self._condition(embedding, mean, table, rows, table.y.new_ones(1))
        centers, part = values.squeeze(-1), table.subset(rows)
        residuals = dataclasses.replace(part, y=part.y - centers)
        component, around = self._direct(
            noise, residuals, torch.arange(len(rows), device=rows.device), support_of(residuals.y)
        )
        shifting = dataclasses.replace(component, mean=predictor, support=support)
        yield shifting, shifted(around, centers, support)

    def _direct(
        self, learned: ConditionalEmbedding, table: Table, rows: Tensor, support: Tensor
    ) -> tuple[Component, Distribution]:
        kernel = FeatureKernel(self.transform, learned.kernel)
        embedding = IndicatorEmbedding(kernel, support, table.y, table.weights).to(table.x)
        # The CRPS is the sum of squares over the t_j, each with the gap above it.
        gaps = torch.cat([support.diff(), support.new_zeros(1)])
        values, predictor = self._condition(embedding, learned, table, rows, gaps)
        return Component(predictor, embedding), Distribution(support, embedding.marginal + values)

    def _condition(
        self, embedding: ConditionalEmbedding, learned: ConditionalEmbedding, table: Table, rows: Tensor, gaps: Tensor
    ) -> tuple[Tensor, LinearPredictor]:
        def loss(F: Tensor, Y: Tensor, weights: Tensor | None) -> float:
            return weighted_mean((F - Y).square() @ gaps, weights)

        ridge = learned.regularization.item() * self.learned_weight
        return condition(embedding, table, rows, ridge, self.points, self.exact, loss)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Σ π_c F̂_c: ``components`` F̂_c with ``weights`` π on one ``support``."""

    components: tuple[Component, ...]
    weights: Tensor
    support: Tensor

    def at(self, x: Tensor) -> Distribution:
        """The mixture at new points ``x`` ``(t, D)``."""
        blocks = [mixed([one.at(rows) for one in self.components], self.weights).F for rows in x.split(BLOCK)]
        return Distribution(self.support, torch.cat(blocks))


def mixed(functions: Sequence[Distribution], weights: Tensor) -> Distribution:
    """Σ π_c F̂_c of distributions on one support."""
    parts = torch.stack([w * distribution.F for w, distribution in zip(weights, functions, strict=True)])
    return Distribution(functions[0].support, parts.sum(0))


def stacking_weights(functions: Sequence[Distribution], y: Tensor, sample_weights: Tensor | None = None) -> Tensor:
    """π of the module docstring, from leave-one-out distributions at the rows of ``y``."""
    from scipy.optimize import nnls

    C, support = len(functions), functions[0].support
    indicator = (y.unsqueeze(-1) <= support[:-1]).to(support)
    p = torch.full_like(y, 1.0 / len(y)) if sample_weights is None else sample_weights / sample_weights.sum()
    scale = support.diff().sqrt() * p.sqrt().unsqueeze(-1)
    residuals = torch.stack([((distribution.F[..., :-1] - indicator) * scale).flatten() for distribution in functions])
    H = (residuals @ residuals.mT).cpu().numpy()
    if not np.trace(H) > 0:
        return y.new_full((C,), 1.0 / C)
    # min πᵀHπ on the simplex: the direction of the solution of min ‖Rπ‖² + (1ᵀπ − 1)² s, π ≥ 0, for any s > 0
    values, vectors = np.linalg.eigh(H)
    R = (vectors * np.sqrt(values.clip(0.0))).T
    size = np.sqrt(np.trace(H) / C)
    solution, _ = nnls(np.vstack([R, np.full((1, C), size)]), np.append(np.zeros(C), size))
    return 0.5 * (y.new_tensor(solution / solution.sum()) + 1.0 / C)
