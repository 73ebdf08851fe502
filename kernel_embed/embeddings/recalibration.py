r"""Conformal recalibration of a whole predictive distribution, from rows that were not used to predict them.

Row i was predicted by :math:`F_i`, and its target occupies the levels :math:`[a_i, b_i] = [F_i(y_i-), F_i(y_i)]`, one
point unless :math:`F_i` has an atom there. If the predictions are calibrated, a uniform draw from each of these
intervals, the *probability integral transform* (PIT), is uniform on [0, 1]. Its distribution function is estimated by

.. math::  \hat G(u) = \frac1{n + 1} \Big( u + \sum_i \operatorname{clip} \Big( \frac{u - a_i}{b_i - a_i}, 0, 1 \Big)
           \Big) , \qquad F_{\mathrm{cal}}(y \mid x) = \hat G( F(y \mid x) ) .

The term u stands for the new row. No random numbers are needed, and for counts and other atoms the PIT is the
nonrandomized one of Czado et al. 2009. Narrow intervals are widened to two standard errors of their level on each side,
which smooths :math:`\hat G`. Mean, quantiles, intervals and draws are those of :math:`F_{\mathrm{cal}}`.

**Guarantee.** Let :math:`k = \lfloor (n + 1) \alpha / 2 \rfloor` and :math:`k' = n + 1 - k`. If the rows of the PIT
were held out and are exchangeable with the new one, then

.. math::  P \Big( \inf \{ y : F(y \mid X) \ge b_{(k)} \} \le Y \le \inf \{ y : F(y \mid X) > a_{(k')} \} \Big)
           \ge 1 - \alpha ,

since :math:`Y` below the lower end means :math:`F(Y \mid X) < b_{(k)}`, the rank of which is uniform; likewise above
(distributional conformal prediction, Chernozhukov et al. 2021). :math:`\hat G` is strictly increasing, so both ends are
quantiles of :math:`F_{\mathrm{cal}}`, at levels :math:`\hat G(b_{(k)})` and :math:`\hat G(a_{(k')})` that differ from
α/2 and 1 − α/2 by about 1/n.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import torch
from torch import Tensor

from .distribution import Distribution


@dataclasses.dataclass(frozen=True)
class Recalibration:
    """Ĝ of the module docstring.

    Attributes:
        below: a, ``(n,)``.
        upto: b, ``(n,)``.
        weights: of the rows, ``(n,)``, with mean 1; ``None`` for equal weights.
    """

    below: Tensor
    upto: Tensor
    weights: Tensor | None = None

    @classmethod
    def from_rows(cls, distribution: Distribution, y: Tensor, weights: Tensor | None = None) -> Recalibration:
        """From left-out or held-out predictions for targets ``y`` ``(n,)``; only ratios of ``weights`` matter."""
        pit = distribution.pit(y)
        return cls(pit[..., 0], pit[..., 1], None if weights is None else weights / weights.mean())

    @property
    def num_rows(self) -> int:
        """n."""
        return len(self.below)

    @functools.cached_property
    def _knots(self) -> tuple[Tensor, Tensor]:
        """The ends of all intervals, ascending, and Ĝ there; Ĝ is linear in between."""
        n, middle = self.num_rows, 0.5 * (self.below + self.upto)
        error = (middle * (1.0 - middle) / (n + 1)).sqrt()
        half = torch.maximum(0.5 * (self.upto - self.below), 2.0 * error).clamp(0.5 / (n + 1), 0.5)
        middle = torch.minimum(torch.maximum(middle, half), 1.0 - half)  # within [0, 1]
        ones = middle.new_ones(1)
        a, b = torch.cat([middle - half, 0.0 * ones]).clamp_min(0.0), torch.cat([middle + half, ones]).clamp_max(1.0)
        slope = torch.cat([torch.ones_like(middle) if self.weights is None else self.weights, ones]) / (b - a)
        knots, order = torch.cat([a, b]).sort()
        slopes = torch.cat([slope, -slope])[order].cumsum(0)[:-1].clamp_min(0.0)
        values = torch.cat([0.0 * ones, (slopes * knots.diff()).cumsum(0)])
        return knots, values / values[-1]

    def __call__(self, F: Tensor) -> Tensor:
        """Ĝ(F), elementwise, for levels F in [0, 1]."""
        knots, values = self._knots
        right = torch.searchsorted(knots, F.contiguous(), right=True).clamp(1, len(knots) - 1)
        left = right - 1
        share = (F - knots[left]) / (knots[right] - knots[left]).clamp_min(torch.finfo(F.dtype).tiny)
        return torch.lerp(values[left], values[right], share.clamp(0.0, 1.0))

    def recalibrated(self, distribution: Distribution) -> Distribution:
        """F_cal, on the same support. The last value has all mass above it."""
        F = self(distribution.F)
        return Distribution(distribution.support, torch.cat([F[..., :-1], torch.ones_like(F[..., -1:])], dim=-1))

    def interval(self, recalibrated: Distribution, coverage: float, *, guaranteed: bool) -> Tensor:
        """From the quantile α/2 to 1 − α/2 of F_cal, moved outwards as far as the guarantee requires: ``(t, 2)``.

        Both ends are infinite if there are too few rows for this coverage, and one of them if more than α/2 of their
        targets lie beyond the support on that side.
        """
        low, high = self._levels(coverage, guaranteed)
        infinite = torch.full_like(recalibrated.F[..., 0], math.inf)
        lower = recalibrated.quantile(low) if low > 0.0 else -infinite
        upper = recalibrated.quantile(high) if high < 1.0 else infinite
        return torch.stack([lower, upper], dim=-1)

    def _levels(self, coverage: float, guaranteed: bool) -> tuple[float, float]:
        n, tail = self.num_rows, 0.5 * (1.0 - coverage)
        # Rounding error must not turn a product such as 0.05 · 20 into 0.
        if not guaranteed:
            return (tail, 1.0 - tail) if coverage * (n + 1) <= n + 1e-9 else (0.0, 1.0)
        k = math.floor(tail * (n + 1) + 1e-9)
        if k == 0:
            return 0.0, 1.0
        low, high = self(self.upto.kthvalue(k).values), self(self.below.kthvalue(n + 1 - k).values)
        beyond = torch.nextafter(high, torch.ones_like(high))  # its quantile is the first y with F > a
        return min(tail, float(low)), max(1.0 - tail, float(beyond))
