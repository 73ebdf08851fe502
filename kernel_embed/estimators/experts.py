r"""What the regressor combines: predictive distributions of two kinds, each with what it says of rows it has not seen.

A **direct** expert embeds the targets, as :mod:`kernel_embed.embeddings.distribution` does. A **shifted** one embeds
the residuals of a mean, :math:`e_i = y_i - f_{-i}(x_i)`, and moves their distribution to where the mean is:
:math:`\hat F(t \mid x) = \hat F_e(t - f(x) \mid x)`. The first knows atoms, skewness and several modes; the second
follows a slope between the training rows. With :math:`r_{c,i}(t) = \hat F_{c,-i}(t \mid x_i) - \mathbf 1\{y_i \le t\}`
their mixture is

.. math::  \hat F(t \mid x) = \sum_c \pi_c \hat F_c(t \mid x), \qquad
           \pi = \tfrac12 \Big( \operatorname*{arg\,min}_{\pi \in \Delta} \pi^\top H \pi + \tfrac1C \mathbf 1 \Big), \;
           H_{cd} = \frac1n \sum_i \int r_{c,i}\, r_{d,i}\, dt ,

since the CRPS of a mixture is a convex quadratic form of its weights.
"""

from __future__ import annotations

import abc
import dataclasses
import functools

import numpy as np
import torch
from torch import Tensor

from ..embeddings import ConditionedEmbedding, LinearAnswers, in_blocks
from ..embeddings.answers import real_targets
from ..embeddings.distribution import Distribution, indicators, support_of

MAX_DISTINCT = 64
"""Targets with no more different values than this are counts or ratings: no other value is predicted."""

POINTS = 512
"""Different training targets, and as many equally spaced points between the least and the largest, on a support."""

BLOCK = 1024
"""New points whose distribution functions are formed at once."""


class Grid:
    """The values that predictions take: training targets, and points between them.

    Attributes:
        support: ``(s,)``, ascending.
    """

    def __init__(self, y: Tensor) -> None:
        distinct: Tensor = torch.unique(y)
        if len(distinct) > MAX_DISTINCT:
            thinned = distinct[torch.linspace(0, len(distinct) - 1, POINTS).round().long()]
            even = torch.linspace(distinct[0].item(), distinct[-1].item(), POINTS, dtype=y.dtype)
            distinct = torch.unique(torch.cat([thinned, even]))
        self.support = distinct

    @functools.cached_property
    def midpoints(self) -> Tensor:
        """Up to where mass is moved to each value: halfway to the next; to the last from everywhere above."""
        middle = self.support[:-1] + 0.5 * self.support.diff()
        return torch.cat([middle, torch.full_like(self.support[:1], torch.inf)])


class Expert(abc.ABC):
    """A predictive distribution of a real target, on a grid."""

    @abc.abstractmethod
    def left_out(self, grid: Grid) -> Distribution:
        """At every training row, by what has not seen it."""

    @abc.abstractmethod
    def at(self, x: Tensor, grid: Grid) -> Distribution:
        """At new points ``x`` ``(t, d)``."""


@dataclasses.dataclass
class DirectExpert(Expert):
    """The embedding of the targets."""

    law: LinearAnswers

    def left_out(self, grid: Grid) -> Distribution:
        """F̄ + G − A⁻¹G / diag A⁻¹."""
        return Distribution(grid.support, left_out_cdf(self.law, grid.support))

    def at(self, x: Tensor, grid: Grid) -> Distribution:
        """F̄ + k(x)ᵀA⁻¹G."""
        if getattr(self, "_of", None) is not grid:
            G, F = indicators(real_targets(self.law), grid.support, self.law.row_weights)
            self._of, self._F, self._coefficients = grid, F, self.law.coefficients_of(G)
        return Distribution(grid.support, self._F + in_blocks(self.law.representation, x, self._coefficients))


@dataclasses.dataclass
class ShiftedExpert(Expert):
    """The embedding of the residuals of ``mean``, moved to where the mean is."""

    mean: LinearAnswers
    law: ConditionedEmbedding

    def left_out(self, grid: Grid) -> Distribution:
        """Mean and law without row i, each in closed form; the residuals of the others are held."""
        assert isinstance(self.mean, ConditionedEmbedding)
        support = support_of(self.law.y)
        law = Distribution(support, left_out_cdf(self.law, support))
        return shifted(law, self.mean.leave_one_out().squeeze(-1), grid)

    def at(self, x: Tensor, grid: Grid) -> Distribution:
        """F̂_e(t − f(x) | x)."""
        return shifted(self.law.distribution(x), self.mean.mean(x).squeeze(-1), grid)


def left_out_cdf(law: LinearAnswers, support: Tensor) -> Tensor:
    """F̂_{−i}(t_j | x_i), ``(n, s)``, not yet made to rise."""
    assert isinstance(law, ConditionedEmbedding)
    G, F = indicators(law.y, support, law.row_weights)
    return F + G - law.system.solve(G) / law.system.inverse_diagonal().unsqueeze(-1)


def shifted(law: Distribution, by: Tensor, grid: Grid) -> Distribution:
    """The distribution of e + ``by``, every atom moved to the nearest value of ``grid``."""
    thresholds = (grid.midpoints - by.unsqueeze(-1)).contiguous()
    below = torch.searchsorted(law.support, thresholds, right=True)
    padded = torch.cat([torch.zeros_like(law.F[..., :1]), law.F], dim=-1)
    return Distribution(grid.support, padded.gather(-1, below))


@dataclasses.dataclass
class Mixture:
    """Σ π_c F̂_c.

    Attributes:
        experts: the F̂_c.
        weights: π.
        grid: the values predicted.
        left_out: the mixture at every training row, by what has not seen it.
    """

    experts: list[Expert]
    weights: Tensor
    grid: Grid
    left_out: Distribution | None = None

    @classmethod
    def stacked(cls, experts: list[Expert], y: Tensor, sample_weights: Tensor | None = None) -> Mixture:
        """The mixture of least leave-one-out CRPS, halfway to equal weights."""
        grid = Grid(y)
        functions = [expert.left_out(grid).F for expert in experts]
        weights = stacking_weights(functions, y, grid.support, sample_weights)
        mixed = sum((w * F for w, F in zip(weights, functions, strict=True)), torch.zeros_like(functions[0]))
        return cls(experts, weights, grid, Distribution(grid.support, mixed))

    def at(self, x: Tensor) -> Distribution:
        """The mixture at new points ``x`` ``(t, d)``."""
        blocks = []
        for rows in x.split(BLOCK):
            parts = [w * expert.at(rows, self.grid).F for w, expert in zip(self.weights, self.experts, strict=True)]
            blocks.append(torch.stack(parts).sum(0))
        return Distribution(self.grid.support, torch.cat(blocks))


def stacking_weights(
    functions: list[Tensor], y: Tensor, support: Tensor, sample_weights: Tensor | None = None
) -> Tensor:
    """π of the module's text for distribution functions ``(n, s)`` at the rows of ``y``, left out."""
    from scipy.optimize import nnls

    C = len(functions)
    indicator = (y.unsqueeze(-1) <= support[:-1]).to(support)
    scale = support.diff().sqrt()
    p = torch.full_like(y, 1.0 / len(y)) if sample_weights is None else sample_weights / sample_weights.sum()
    scale = scale * p.sqrt().unsqueeze(-1)
    residuals = [((F[..., :-1] - indicator) * scale).flatten() for F in functions]
    H = torch.stack([torch.stack([one @ other for other in residuals]) for one in residuals]).numpy()
    if not np.trace(H) > 0:
        return torch.full((C,), 1.0 / C, dtype=y.dtype)
    # min πᵀHπ on the simplex: the direction of the solution of min ‖Rπ‖² + (1ᵀπ − 1)² s, π ≥ 0, for any s > 0
    values, vectors = np.linalg.eigh(H)
    R = (vectors * np.sqrt(values.clip(0.0))).T
    size = np.sqrt(np.trace(H) / C)
    found, _ = nnls(np.vstack([R, np.full((1, C), size)]), np.append(np.zeros(C), size))
    best = torch.as_tensor(found / found.sum(), dtype=y.dtype)
    return 0.5 * (best + 1.0 / C)
