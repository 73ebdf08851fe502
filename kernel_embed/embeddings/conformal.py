r"""Conformal prediction: sets that cover at a stated rate for a finite sample, whatever the distribution.

Let :math:`s_1, \dots, s_n` be scores of rows that were not used to predict them, and s(x, y) that of a new row. With
:math:`Q` the :math:`\lceil (1 - \alpha)(n + 1) \rceil`-th smallest of the s_i (infinite if there are too few),
:math:`C(x) = \{ y : s(x, y) \le Q \}` covers with probability 1 − α if the rows were held out (Vovk et al. 2005), and
with 1 − 2α in :func:`jackknife_plus_interval` (Barber et al. 2021, Theorem 1).

**Recalibration of a whole distribution.** Row i was predicted by :math:`F_i`, and its target occupies the levels
:math:`[a_i, b_i] = [F_i(y_i-), F_i(y_i)]`. Calibrated levels are uniform on [0, 1]; with atoms (Czado et al. 2009)

.. math::  \hat G(u) = \frac1{n + 1} \Big( u + \sum_i \operatorname{clip} \Big( \frac{u - a_i}{b_i - a_i}, 0, 1 \Big)
           \Big) , \qquad F_{\mathrm{cal}}(y \mid x) = \hat G( F(y \mid x) ) .

Intervals are widened to two standard errors of their level on each side, which smooths :math:`\hat G`. If the rows were
held out, then with :math:`k = \lfloor (n + 1) \alpha / 2 \rfloor`, :math:`k' = n + 1 - k` (Chernozhukov et al. 2021),

.. math::  P \Big( \inf \{ y : F(y \mid X) \ge b_{(k)} \} \le Y \le \inf \{ y : F(y \mid X) > a_{(k')} \} \Big)
           \ge 1 - \alpha .
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..validation import check_features, check_finite, check_query_points, check_share, check_tensor
from .conditional import check_labels
from .distribution import Distribution, support_of

if TYPE_CHECKING:
    from .conditioned import ConditionedEmbedding

BLOCK_NUMBERS = 2**24
ROUNDING = 1e-9
"""Rounding error must not turn a product such as 0.9 · 20 into more than 18, or 0.05 · 20 into less than 1."""


def conformal_quantile(scores: Tensor, coverage: float, weights: Tensor | None = None) -> Tensor:
    """Q, the ⌈coverage·(n + 1)⌉-th smallest of n ``scores``; infinite if n is too small for that coverage.

    Args:
        scores: nonconformity scores, ``(n,)``.
        coverage: 1 − α.
        weights: how many times each score is there, ``(n,)``; n is then their sum.

    Raises:
        ValueError: if ``coverage`` is not between 0 and 1, or ``scores`` is not a vector or has NaN.

    Example:
        >>> conformal_quantile(torch.arange(1.0, 20.0), 0.9), conformal_quantile(torch.ones(5), 0.9)
        (tensor(18.), tensor(inf))
    """
    check_share("coverage", coverage)
    check_tensor(scores, "scores")
    if scores.dim() != 1 or bool(scores.isnan().any()):
        raise ValueError(f"Expected n scores without NaN, got shape {tuple(scores.shape)}. Give one for each row.")
    scores = scores if scores.is_floating_point() else scores.to(torch.get_default_dtype())
    ordered, order = scores.sort()
    total = torch.ones_like(scores).double().cumsum(0) if weights is None else weights[order].cumsum(0)
    reached = total >= coverage * (float(total[-1:].sum()) + 1.0) - ROUNDING
    return ordered[int(reached.int().argmax())] if bool(reached.any()) else scores.new_tensor(math.inf)


def interval_scores(interval: Tensor, y: Tensor) -> Tensor:
    """Nonconformity scores: how far y is outside its interval, negative inside: max(lo − y, y − hi), ``(n,)``.

    Args:
        interval: lower and upper ends, ``(n, 2)``.
        y: targets, ``(n,)``.

    Raises:
        ValueError: if ``interval`` is not ``(n, 2)`` and ``y`` not ``(n,)``.

    Example:
        >>> interval_scores(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0.25, 3.0]))
        tensor([-0.2500,  2.0000])
    """
    check_tensor(interval, "interval")
    check_tensor(y, "y")
    interval = interval if interval.is_floating_point() else interval.to(torch.get_default_dtype())
    if interval.dim() < 2 or interval.shape[-1] != 2 or interval.shape[:-1] != y.shape:
        shapes = f"{tuple(interval.shape)} and {tuple(y.shape)}"
        raise ValueError(f"Expected interval of shape (n, 2) and y of shape (n,), got {shapes}. Give one a target.")
    check_finite(y, "y")
    if bool(interval.isnan().any()):
        raise ValueError(f"Expected intervals without NaN, got {int(interval.isnan().sum())} NaN. Omit those rows.")
    return torch.maximum(interval[..., 0] - y, y - interval[..., 1])


def prediction_sets(
    left_out: Tensor, y: Tensor, probabilities: Tensor, coverage: float = 0.9, weights: Tensor | None = None
) -> Tensor:
    """A mask ``(t, m)`` of the classes with 1 − p_c(x) ≤ Q, and always the most probable one.

    Args:
        left_out: probabilities of the classes at n left-out or held-out rows, ``(n, m)``.
        y: their class numbers, ``(n,)``.
        probabilities: at new points, ``(t, m)``.
        coverage: 1 − α.
        weights: how many times each row is there, ``(n,)``; 1 each by default.

    Raises:
        ValueError: if the two have different numbers of classes, or ``y`` is not one class number for each row.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
        >>> prediction_sets(p, torch.tensor([0, 0, 1, 1]), torch.tensor([[0.55, 0.45]]), coverage=0.8)
        tensor([[True, True]])
    """
    left_out, probabilities = check_features(left_out, "left_out"), check_features(probabilities, "probabilities")
    m = left_out.shape[-1]
    if (got := probabilities.shape[-1]) != m:
        raise ValueError(f"Expected probabilities of {m} classes, got {got}. Give those of one classifier.")
    y = check_labels(left_out, y, m)
    if y.dim() != 1:
        raise ValueError("Expected class numbers y, got soft labels. Give the number of each row's class.")
    scores = 1.0 - left_out.gather(-1, y.reshape(-1, 1)).squeeze(-1)
    members = 1.0 - probabilities <= conformal_quantile(scores, coverage, weights)
    return members.scatter(-1, probabilities.argmax(-1, keepdim=True), True)


@torch.no_grad()
def jackknife_plus_interval(conditioned: ConditionedEmbedding, x: Tensor, coverage: float = 0.9) -> Tensor:
    r"""Intervals ``(t, 2)`` for a real target that cover with probability at least 1 − 2α = 2·``coverage`` − 1.

    With w = A⁻¹k(x), the embedding without row i is at x_i and at any x (with groups, :math:`w_i R_i` is a sum)

    .. math::
        \hat F_{-i}(t \mid x) = \sum_j w_j \mathbf 1\{y_j \le t\} - w_i R_i(t) + \Big( 1 - \sum_j w_j + w_i b_i \Big)
            \bar F_{-i}(t), \qquad R_i(t) = \frac{[A^{-1} \mathbf 1\{y \le t\}]_i}{[A^{-1}]_{ii}}, \quad
            b_i = \frac{[A^{-1} \mathbf 1]_i}{[A^{-1}]_{ii}} .

    With its quantiles lo, hi at (1 ∓ coverage)/2 and :math:`s_i = \max(lo_{-i}(x_i) - y_i,\; y_i - hi_{-i}(x_i))`, the
    interval runs from the ⌊α(n + 1)⌋-th smallest of :math:`lo_{-i}(x) - s_i` to the ⌈(1 − α)(n + 1)⌉-th smallest of
    :math:`hi_{-i}(x) + s_i`. The theorem needs a kernel and a ridge nλ that were fixed without these rows.

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned for a real target.
        x: new points, ``(t, d)``.
        coverage: 1 − α.

    Raises:
        TypeError: if the rows have weights.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.linspace(0, 1, 60)[:, None], ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel())
        >>> jackknife_plus_interval(embedding.condition(x, torch.ones(60)), x[:1])
        tensor([[1., 1.]])
    """
    check_share("coverage", coverage)
    if conditioned.row_weights is not None:
        raise TypeError("Jackknife+ intervals need exchangeable rows, but these have weights.")
    x = check_query_points(x, conditioned.x)
    y, units = conditioned.real_targets(), conditioned.units
    support, n, rank = support_of(y), len(y), math.ceil(coverage * (len(y) + 1) - ROUNDING)
    if rank > n:
        return y.new_tensor([-math.inf, math.inf]).repeat(len(x), 1)

    def of_group(values: Tensor, dim: int) -> Tensor:
        """The sum over the rows that are left out with each row: the row itself without groups."""
        if units is None or units.labels is None:
            return values
        return torch.zeros_like(values).index_add_(dim, units.labels, values).index_select(dim, units.labels)

    def interval(F: Tensor) -> Tensor:
        """Quantiles of unsorted functions ``(..., s)``: after sorting, #{F < q} values precede the first ≥ q."""
        index = torch.stack([(q > F).sum(-1) for q in (0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage))], dim=-1)
        return support[index.clamp_max(len(support) - 1)]

    G = (y.unsqueeze(-1) <= support).to(y)
    ones = torch.ones_like(G[:, :1])
    R, b = conditioned.left_out_residuals(G), conditioned.left_out_residuals(ones)
    marginal = (G.sum(0) - of_group(G, 0)) / (n - of_group(ones, 0)).clamp_min(1.0)
    # at x_i, Σ_j w_j 1{y_j ≤ t} without i is 1{y_i ≤ t} − R_i(t)
    scores = interval_scores(interval(G - R + b * marginal), y)
    ends = []
    for rows in x.split(max(1, BLOCK_NUMBERS // R.numel())):
        w = conditioned.weights(rows).mT
        rest = 1.0 - w.sum(-1, keepdim=True) + of_group(w * b.squeeze(-1), -1)
        F = (w @ G).unsqueeze(-2) - of_group(w.unsqueeze(-1) * R, -2) + rest.unsqueeze(-1) * marginal
        low, high = (interval(F) + torch.stack([-scores, scores], dim=-1)).unbind(-1)
        ends.append(torch.stack([-(-low).kthvalue(rank, dim=-1).values, high.kthvalue(rank, dim=-1).values], dim=-1))
    return torch.cat(ends)


@dataclasses.dataclass(frozen=True)
class Recalibration:
    """Ĝ of the module docstring: a ``below``, b ``upto`` and row ``weights`` with mean 1, ``(n,)`` each."""

    below: Tensor
    upto: Tensor
    weights: Tensor | None = None

    @classmethod
    def from_rows(cls, distribution: Distribution, y: Tensor, weights: Tensor | None = None) -> Recalibration:
        """From left-out or held-out predictions for targets ``y`` ``(n,)``; only ratios of ``weights`` matter."""
        pit = distribution.pit(y)
        return cls(pit[..., 0], pit[..., 1], None if weights is None else weights / weights.mean())

    @functools.cached_property
    def _knots(self) -> tuple[Tensor, Tensor]:
        """The ends of all intervals, ascending, and Ĝ there; Ĝ is linear in between."""
        n, middle = len(self.below), 0.5 * (self.below + self.upto)
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
        """From the quantile α/2 to 1 − α/2 of F_cal, moved outwards as the guarantee requires, to ±∞ for few rows."""
        low, high = self._levels(coverage, guaranteed)
        infinite = torch.full_like(recalibrated.F[..., 0], math.inf)
        lower = recalibrated.quantile(low) if low > 0.0 else -infinite
        upper = recalibrated.quantile(high) if high < 1.0 else infinite
        return torch.stack([lower, upper], dim=-1)

    def _levels(self, coverage: float, guaranteed: bool) -> tuple[float, float]:
        n, tail = len(self.below), 0.5 * (1.0 - coverage)
        if not guaranteed:
            return (tail, 1.0 - tail) if coverage * (n + 1) <= n + ROUNDING else (0.0, 1.0)
        k = math.floor(tail * (n + 1) + ROUNDING)
        if k == 0:
            return 0.0, 1.0
        low, high = self(self.upto.kthvalue(k).values), self(self.below.kthvalue(n + 1 - k).values)
        beyond = torch.nextafter(high, torch.ones_like(high))  # its quantile is the first y with F > a
        return min(tail, float(low)), max(1.0 - tail, float(beyond))
