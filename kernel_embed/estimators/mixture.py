r"""The mixture of the regressor: two kinds of predictive distributions, weighted by their CRPS on left-out rows.

A **direct** one embeds the targets by their indicators, :math:`y \mapsto (\mathbf 1\{y \le t_j\} - \bar F(t_j))_j`,
so that the mean of the embedding is a distribution function, as in :mod:`kernel_embed.embeddings.distribution`. A
**shifted** one embeds the residuals of a mean, :math:`e_i = y_i - f_{-i}(x_i)`, and shifts their distribution by the
mean: :math:`\hat F(t \mid x) = \hat F_e(t - f(x) \mid x)`. The first can represent atoms, skewness and several modes;
the second follows a slope between the training rows. With :math:`r_{c,i}(t) = \hat F_{c,-i}(t \mid x_i) - \mathbf
1\{y_i \le t\}` their mixture is

.. math::  \hat F(t \mid x) = \sum_c \pi_c \hat F_c(t \mid x), \qquad
           \pi = \tfrac12 \Big( \operatorname*{arg\,min}_{\pi \in \Delta} \pi^\top H \pi + \tfrac1C \mathbf 1 \Big), \;
           H_{cd} = \frac1n \sum_i \int r_{c,i}\, r_{d,i}\, dt ,

since the CRPS of a mixture is a convex quadratic form of its weights.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import ConditionalEmbedding, LinearPredictor
from ..embeddings.distribution import Distribution

MAX_DISTINCT = 64
"""With at most this many distinct values, targets are treated as counts or ratings: no other value is predicted."""

POINTS = 512
"""The largest number of training targets on a support, and the number of equally spaced points added to them."""

BLOCK = 1024
"""New points whose distribution functions are formed at once."""


class Grid:
    """The values that predictions take: training targets, and points between them, up to ``points`` of each.

    Attributes:
        support: ``(s,)``, ascending.
    """

    def __init__(self, y: Tensor, points: int = POINTS) -> None:
        distinct: Tensor = torch.unique(y)
        if len(distinct) > MAX_DISTINCT:
            thinned = distinct[torch.linspace(0, len(distinct) - 1, points, dtype=torch.float64).round().long()]
            even = torch.linspace(distinct[0].item(), distinct[-1].item(), points, dtype=y.dtype)
            distinct = torch.unique(torch.cat([thinned, even]))
        self.support = distinct

    @functools.cached_property
    def midpoints(self) -> Tensor:
        """Upper ends of the cells of the values: halfway to the next one; infinity for the last."""
        middle = self.support[:-1] + 0.5 * self.support.diff()
        return torch.cat([middle, torch.full_like(self.support[:1], torch.inf)])


class IndicatorEmbedding(ConditionalEmbedding):
    """Real targets by their indicators 1{y ≤ t_j} − F̄(t_j): E[·| X = x] is a distribution function less F̄.

    Args:
        kernel: on the inputs.
        support: t, ``(s,)``, ascending.
        y: all targets, which have the distribution function F̄.
        weights: how many rows each of them stands for.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> y = torch.tensor([0.0, 1.0, 1.0, 3.0])
        >>> embedding = IndicatorEmbedding(RBFKernel(), torch.tensor([0.0, 2.0]), y)
        >>> embedding.targets(y, y)
        tensor([[ 0.7500,  0.2500],
                [-0.2500,  0.2500],
                [-0.2500,  0.2500],
                [-0.2500, -0.7500]])
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


class Component(abc.ABC):
    """A predictive distribution of a real target, on a grid."""

    @property
    @abc.abstractmethod
    def mean_predictor(self) -> LinearPredictor:
        """The predictor of the mean, whose weights are those of the training rows."""

    @abc.abstractmethod
    def at(self, x: Tensor) -> Distribution:
        """At new points ``x`` ``(t, D)``."""


@dataclasses.dataclass(frozen=True)
class DirectComponent(Component):
    """The embedding of the indicators of the targets."""

    predictor: LinearPredictor
    embedding: IndicatorEmbedding

    @property
    def mean_predictor(self) -> LinearPredictor:
        """The predictor itself."""
        return self.predictor

    def at(self, x: Tensor) -> Distribution:
        """F̄ + k(x)ᵀA⁻¹G."""
        return Distribution(self.embedding.support, self.embedding.marginal + self.predictor.mean(x))


@dataclasses.dataclass(frozen=True)
class ShiftedComponent(Component):
    """The distribution of the ``residuals`` of ``mean``, shifted by the mean."""

    mean: LinearPredictor
    residuals: DirectComponent
    grid: Grid

    @property
    def mean_predictor(self) -> LinearPredictor:
        """The mean by which the residuals are shifted."""
        return self.mean

    def at(self, x: Tensor) -> Distribution:
        """F̂_e(t − f(x) | x)."""
        return shifted(self.residuals.at(x), self.mean.mean(x).squeeze(-1), self.grid)


def shifted(distribution: Distribution, by: Tensor, grid: Grid) -> Distribution:
    """The distribution of e + ``by``, every atom moved to the nearest value of ``grid``."""
    thresholds = (grid.midpoints - by.unsqueeze(-1)).contiguous()
    below = torch.searchsorted(distribution.support, thresholds, right=True)
    padded = torch.cat([torch.zeros_like(distribution.F[..., :1]), distribution.F], dim=-1)
    return Distribution(grid.support, padded.gather(-1, below))


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Σ π_c F̂_c.

    Attributes:
        components: the F̂_c.
        weights: π.
        grid: the values predicted.
    """

    components: tuple[Component, ...]
    weights: Tensor
    grid: Grid

    def at(self, x: Tensor) -> Distribution:
        """The mixture at new points ``x`` ``(t, D)``."""
        blocks = []
        for rows in x.split(BLOCK):
            parts = [w * component.at(rows).F for w, component in zip(self.weights, self.components, strict=True)]
            blocks.append(torch.stack(parts).sum(0))
        return Distribution(self.grid.support, torch.cat(blocks))


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
    residuals = [((distribution.F[..., :-1] - indicator) * scale).flatten() for distribution in functions]
    H = torch.stack([torch.stack([one @ other for other in residuals]) for one in residuals]).numpy()
    if not np.trace(H) > 0:
        return torch.full((C,), 1.0 / C, dtype=y.dtype)
    # min πᵀHπ on the simplex: the direction of the solution of min ‖Rπ‖² + (1ᵀπ − 1)² s, π ≥ 0, for any s > 0
    values, vectors = np.linalg.eigh(H)
    R = (vectors * np.sqrt(values.clip(0.0))).T
    size = np.sqrt(np.trace(H) / C)
    solution, _ = nnls(np.vstack([R, np.full((1, C), size)]), np.append(np.zeros(C), size))
    best = torch.as_tensor(solution / solution.sum(), dtype=y.dtype)
    return 0.5 * (best + 1.0 / C)
