r"""The distribution P(Y | X = x) of a real target, for each point x.

An embedding of real targets is a signed measure with weights :math:`v = 1/n + w - (\sum_j w_j)/n` on them, where
:math:`w = A^{-1} \mathbf k(x)`. Its distribution function need not be monotone:

.. math::  \hat F(t \mid x) = \sum_j v_j \mathbf 1\{y_j \le t\}
           = \bar F(t) + \mathbf k(x)^\top A^{-1} \big( \mathbf 1\{y \le t\} - \bar F(t) \big) .

Predictions use its *monotone rearrangement*: the values at the ordered targets, sorted and clipped to [0, 1].
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..validation import (
    all_finite,
    check_array,
    check_count,
    check_finite,
    check_number,
    check_setting,
    check_share,
    check_tensor,
    generator_of,
)

MAX_SUPPORT = 1024
"""The largest number of points of a support. With more distinct training targets, their quantiles are used."""


class Distribution:
    """Distribution functions on one support, each a step function.

    Args:
        support: t_1 < … < t_s, ``(s,)``.
        values: F̂(t_j) for every point x, ``(*batch, t, s)``, rearranged here to ``F``: sorted and clipped to [0, 1].

    Example:
        >>> Distribution(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([[0.5, 0.2, 1.0]])).quantile(0.4)
        tensor([1.])
    """

    def __init__(self, support: Tensor, values: Tensor) -> None:
        self.support = support
        self.F = values.sort(dim=-1).values.clamp(0.0, 1.0)

    @property
    def probabilities(self) -> Tensor:
        """The mass at each point of the support, ``(*batch, t, s)``; what is above the last value stays there."""
        F = torch.cat([self.F[..., :-1], torch.ones_like(self.F[..., :1])], dim=-1)
        return F.diff(dim=-1, prepend=torch.zeros_like(F[..., :1]))

    def cdf(self, t: float | Tensor) -> Tensor:
        """P(Y ≤ t): ``(*batch, t)``, or ``(*batch, t, k)`` for k thresholds.

        Raises:
            ValueError: if ``t`` is neither a number nor a vector, or has NaN.
        """
        thresholds = self._places(t, "t")
        if thresholds.dim() > 1 or bool(thresholds.isnan().any()):
            raise ValueError(f"Expected thresholds t as a number or a vector without NaN, got {thresholds.tolist()}.")
        below = torch.searchsorted(self.support, thresholds.reshape(-1).contiguous(), right=True)
        F = torch.cat([torch.zeros_like(self.F[..., :1]), self.F], dim=-1)[..., below]
        return F.squeeze(-1) if thresholds.dim() == 0 else F

    def exceedance(self, t: float | Tensor) -> Tensor:
        """P(Y > t), as :meth:`cdf`."""
        return 1.0 - self.cdf(t)

    def quantile(self, q: float | Tensor) -> Tensor:
        """inf{t : F(t) ≥ q}: ``(*batch, t)``, or ``(*batch, t, k)`` for k levels, each in (0, 1).

        Raises:
            ValueError: if a level is not between 0 and 1, both excluded.
        """
        levels = self._places(q, "q")
        check_levels(levels)
        quantiles = self._inverse(levels.reshape(-1).expand(*self.F.shape[:-1], -1).contiguous())
        return quantiles.squeeze(-1) if levels.dim() == 0 else quantiles

    def _inverse(self, levels: Tensor) -> Tensor:
        index = torch.searchsorted(self.F.contiguous(), levels)
        return self.support[index.clamp_max(len(self.support) - 1)]

    def interval(self, coverage: float = 0.9) -> Tensor:
        """The central interval, from the quantile (1 − coverage)/2 to (1 + coverage)/2: ``(*batch, t, 2)``.

        Raises:
            ValueError: if ``coverage`` is not between 0 and 1, both excluded.
        """
        check_share("coverage", coverage)
        return self.quantile(self.support.new_tensor([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)]))

    @property
    def mean(self) -> Tensor:
        """The mean E Y, ``(*batch, t)``."""
        return self.probabilities @ self.support

    @property
    def variance(self) -> Tensor:
        """The variance Var Y, ``(*batch, t)``, never negative."""
        p, mean = self.probabilities, self.mean
        return (p * (self.support - mean.unsqueeze(-1)).square()).sum(-1)

    def sample(self, k: int, seed: int | None = None) -> Tensor:
        """k independent draws by inverse transform: ``(*batch, t, k)``.

        Raises:
            ValueError: if ``k`` is below 1, or ``seed`` is negative.
        """
        shape = (*self.F.shape[:-1], check_count("k", k))
        levels = torch.rand(shape, generator=generator_of(seed), dtype=self.F.dtype, device="cpu")
        return self._inverse(levels.to(self.F.device))

    def density(self, t: Tensor, bandwidth: float) -> Tensor:
        """The density of the distribution smoothed by a Gaussian of scale ``bandwidth``, at t ``(k,)``: (…, t, k).

        Raises:
            ValueError: if ``bandwidth`` is not positive and finite, or ``t`` is not finite.
        """
        width = check_number("bandwidth", bandwidth)
        check_setting("bandwidth", bandwidth, 0.0 < width < math.inf, "positive and finite, in units of the target")
        t = self._places(t, "t")
        check_finite(t, "t")
        z = (t.reshape(-1) - self.support.unsqueeze(-1)) / bandwidth
        return self.probabilities @ (torch.exp(-0.5 * z.square()) / (bandwidth * math.sqrt(2.0 * math.pi)))

    def crps(self, y: Tensor) -> Tensor:
        """∫ (F(t) − 1{y ≤ t})² dt for one outcome at each point, ``y`` of shape ``(t,)``: ``(*batch, t)``."""
        y = self._outcomes(y).unsqueeze(-1)
        gaps, left, F = self.support.diff(), self.support[:-1], self.F[..., :-1]
        # Of a gap, the part above y counts (1 − F)², that below F²; outside the support F is 0 or 1.
        above = (self.support[1:] - torch.maximum(y, left)).clamp_min(0.0).minimum(gaps)
        inside = (above * (1.0 - F).square() + (gaps - above) * F.square()).sum(-1)
        outside = (self.support[0] - y).clamp_min(0.0) + (y - self.support[-1]).clamp_min(0.0)
        return inside + outside.squeeze(-1)

    def pit(self, y: Tensor) -> Tensor:
        """The levels F(y−), F(y) of one outcome at each point, ``y`` of shape ``(t,)``: ``(*batch, t, 2)``."""
        y = self._outcomes(y)
        index = torch.stack([torch.searchsorted(self.support, y, right=right) for right in (False, True)], dim=-1)
        F = torch.cat([torch.zeros_like(self.F[..., :1]), self.F[..., :-1], torch.ones_like(self.F[..., :1])], dim=-1)
        return F.expand(*F.shape[:-2], len(y), -1).gather(-1, index.expand(*F.shape[:-2], len(y), 2))

    def _outcomes(self, y: Tensor) -> Tensor:
        y = self._places(y, "y")
        if y.dim() != 1 or self.F.shape[-2] not in (1, len(y)):
            shape, points = tuple(y.shape), self.F.shape[-2]
            raise ValueError(f"Expected one outcome y for each of the {points} points, got shape {shape}.")
        check_finite(y, "y")
        return y

    def _places(self, values: float | Tensor, name: str) -> Tensor:
        """Numbers given by the user as a tensor with dtype and device of the support."""
        if isinstance(values, Tensor):
            check_tensor(values, name)
            return values.to(self.support)
        return torch.tensor(check_array(values, name), device="cpu").to(
            self.support
        )  # a copy: arrays of pandas may be read-only


def support_of(y: Tensor) -> Tensor:
    """The points at which distribution functions are kept, the least and the largest target among them."""
    distinct: Tensor = torch.unique(y)
    if len(distinct) <= MAX_SUPPORT:
        return distinct
    ranks = torch.linspace(0, len(y) - 1, MAX_SUPPORT, device=y.device, dtype=torch.float64).round().long()
    thinned: Tensor = torch.unique(y.sort().values[ranks])
    return thinned


def indicators(y: Tensor, support: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """1{y_i ≤ t_j} − F̄(t_j), ``(n, s)``, and F̄, the weighted distribution function of the targets, ``(s,)``."""
    G = (y.unsqueeze(-1) <= support).to(support)
    F = G.mean(0) if weights is None else (weights / weights.sum()) @ G
    return G - F, F


def check_levels(q: Tensor) -> None:
    """Raise unless every level is in (0, 1)."""
    if q.dim() > 1 or q.numel() == 0 or not bool(((q > 0) & (q < 1)).all()):
        raise ValueError(f"Expected quantile levels between 0 and 1, as a number or a vector, got {q.tolist()}.")


def clip_normalize(p: Tensor) -> Tensor:
    """eq. (6): max{p_c, 0} / Σ_j max{p_j, 0}; uniform where no entry is positive.

    Args:
        p: decision probabilities, ``(*batch, t, m)``.

    Raises:
        ValueError: if ``p`` has no rows, integers, or values that are not finite.

    Example:
        >>> clip_normalize(torch.tensor([[1.5, 0.5, -0.2]]))
        tensor([[0.7500, 0.2500, 0.0000]])
    """
    check_tensor(p, "p")
    check_finite(p, "p")
    if p.dim() == 0 or p.shape[-1] == 0 or not p.is_floating_point():
        raise ValueError(f"p must have rows of floating-point numbers, not shape {tuple(p.shape)} in {p.dtype}.")
    tiny, positive = torch.finfo(p.dtype).tiny, p.clamp_min(0.0)
    total = positive.sum(dim=-1, keepdim=True)
    if not all_finite(total):  # the sum overflows, the shares do not
        positive = positive / positive.amax(dim=-1, keepdim=True).clamp_min(tiny)
        total = positive.sum(dim=-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp_min(tiny), 1.0 / p.shape[-1])


def information(p: Tensor) -> Tensor:
    """−p log p where p > 0, else 0, with a finite derivative everywhere."""
    return torch.where(p > 0, -p * p.clamp_min(torch.finfo(p.dtype).tiny).log(), 0.0)


def resampled_rows(w: Tensor, k: int, seed: int | None = None, row_weights: Tensor | None = None) -> Tensor:
    """k rows for each point, ``(t, k)``, by w + (1 − Σw) p, clipped at 0 and normalized; p: shares of rows."""
    check_count("k", k)
    w = w.mT
    p = torch.ones_like(w[0]) if row_weights is None else row_weights
    v = clip_normalize(w + (1.0 - w.sum(-1, keepdim=True)) * (p / p.sum()))
    return torch.multinomial(v, k, replacement=True, generator=generator_of(seed, v.device))
