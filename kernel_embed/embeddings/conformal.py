r"""Conformal prediction: sets that cover at a stated rate for a finite sample, whatever the distribution.

Let :math:`s_1, \dots, s_n` be scores of rows that were not used to predict them, and s(x, y) that of a new row. With
:math:`Q` the :math:`\lceil (1 - \alpha)(n + 1) \rceil`-th smallest of the s_i (infinite if there are too few),

.. math::  C(x) = \{ y : s(x, y) \le Q \} .

=====================  =================================================================  ==========================
rows of the scores     condition                                                          P(Y ∈ C(X)) is at least
=====================  =================================================================  ==========================
held out (*split*)     rows exchangeable, and the held-out ones used for nothing else     1 − α
left out (jackknife+)  kernel, λ chosen without these rows, and each s_i compared with    1 − 2α
                       the model without row i at x: :func:`jackknife_plus_interval`
left out, one model    stable learning; no theorem for a finite sample                    about 1 − α, as measured
=====================  =================================================================  ==========================

The first is Vovk et al. 2005, the second Barber et al. 2021 (Theorem 1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..validation import check_features, check_finite, check_query_points, check_share, check_tensor
from .conditional import ConditionedEmbedding
from .distribution import support_of
from .multiclass import check_labels

BLOCK_NUMBERS = 2**24


def conformal_quantile(scores: Tensor, coverage: float, weights: Tensor | None = None) -> Tensor:
    """Q, the ⌈coverage·(n + 1)⌉-th smallest of n ``scores``; infinite if n is too small for that coverage.

    Args:
        scores: nonconformity scores, ``(n,)``.
        coverage: 1 − α.
        weights: how many times each score is there, ``(n,)``; n is then their sum.

    Returns:
        A scalar.

    Raises:
        TypeError: if ``scores`` is not a tensor of real numbers.
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
    if weights is not None:
        ordered, order = scores.sort()
        total = weights[order].cumsum(0)
        reached = total >= coverage * (float(total[-1]) + 1.0) - 1e-9
        return ordered[int(reached.int().argmax())] if bool(reached.any()) else scores.new_tensor(math.inf)
    n = len(scores)
    # Rounding error must not turn a product such as 0.9 · 20 into 19.
    rank = math.ceil(coverage * (n + 1) - 1e-9)
    return scores.sort().values[rank - 1] if rank <= n else scores.new_tensor(math.inf)


def interval_scores(interval: Tensor, y: Tensor) -> Tensor:
    """How far y is outside its interval ``(n, 2)``, negative inside: max(lo − y, y − hi), ``(n,)``.

    Args:
        interval: lower and upper ends.
        y: targets, ``(n,)``.

    Returns:
        Nonconformity scores, for :func:`conformal_quantile`.

    Raises:
        TypeError: if an argument is not a tensor of real numbers.
        ValueError: if ``interval`` is not ``(n, 2)`` and ``y`` not ``(n,)``.

    Example:
        >>> from kernel_embed.embeddings import interval_scores
        >>> interval_scores(torch.tensor([[0.0, 1.0], [0.0, 1.0]]), torch.tensor([0.25, 3.0]))
        tensor([-0.2500,  2.0000])
    """
    check_tensor(interval, "interval")
    check_tensor(y, "y")
    interval = interval if interval.is_floating_point() else interval.to(torch.get_default_dtype())
    if interval.dim() < 2 or interval.shape[-1] != 2 or interval.shape[:-1] != y.shape:
        raise ValueError(
            f"Expected interval of shape (n, 2) and y of shape (n,), got {tuple(interval.shape)} and {tuple(y.shape)}. "
            "Give one interval for each target."
        )
    check_finite(y, "y")
    if bool(interval.isnan().any()):
        raise ValueError(
            f"Expected intervals without NaN, got {int(interval.isnan().sum())} NaN. Leave those rows out."
        )
    return torch.maximum(interval[..., 0] - y, y - interval[..., 1])


def prediction_sets(
    left_out: Tensor, y: Tensor, probabilities: Tensor, coverage: float = 0.9, weights: Tensor | None = None
) -> Tensor:
    """The classes with 1 − p_c(x) ≤ Q, and always the most probable one: a mask ``(t, m)``.

    Args:
        left_out: probabilities of the classes at n left-out or held-out rows, ``(n, m)``.
        y: their class numbers, ``(n,)``.
        probabilities: at new points, ``(t, m)``.
        coverage: 1 − α; see the module docstring for what it guarantees.
        weights: how many times each row is there, ``(n,)``; 1 each by default.

    Returns:
        ``True`` for the classes in the set.

    Raises:
        TypeError: if an argument is not a tensor of numbers.
        ValueError: if the two have different numbers of classes, or ``y`` is not one class number for each row.

    Example:
        >>> p = torch.tensor([[0.9, 0.1], [0.6, 0.4], [0.2, 0.8], [0.7, 0.3]])
        >>> new = torch.tensor([[0.95, 0.05], [0.55, 0.45]])
        >>> prediction_sets(p, torch.tensor([0, 0, 1, 1]), new, coverage=0.8)
        tensor([[ True, False],
                [ True,  True]])
    """
    left_out, probabilities = check_features(left_out, "left_out"), check_features(probabilities, "probabilities")
    if probabilities.shape[-1] != left_out.shape[-1]:
        raise ValueError(
            f"Expected probabilities of {left_out.shape[-1]} classes, got {probabilities.shape[-1]}. Give those of one "
            "classifier."
        )
    y = check_labels(left_out, y, left_out.shape[-1])
    if y.dim() != 1:
        raise ValueError("Expected class numbers y, got soft labels. Give the number of each row's class.")
    scores = 1.0 - left_out.gather(-1, y.reshape(-1, 1)).squeeze(-1)
    members = 1.0 - probabilities <= conformal_quantile(scores, coverage, weights)
    return members.scatter(-1, probabilities.argmax(-1, keepdim=True), True)


@torch.no_grad()
def jackknife_plus_interval(conditioned: ConditionedEmbedding, x: Tensor, coverage: float = 0.9) -> Tensor:
    r"""Intervals for a real target that cover with probability at least 1 − 2α = 2·``coverage`` − 1: ``(t, 2)``.

    For every row i the embedding without it has a closed form, at x_i and at any x (with groups, :math:`w_i R_i` is a
    sum over the group, which is left out as a whole): with w = A⁻¹k(x),

    .. math::
        \hat F_{-i}(t \mid x) = \sum_j w_j \mathbf 1\{y_j \le t\} - w_i R_i(t) + \Big( 1 - \sum_j w_j + w_i b_i \Big)
            \bar F_{-i}(t), \qquad R_i(t) = \frac{[A^{-1} \mathbf 1\{y \le t\}]_i}{[A^{-1}]_{ii}}, \quad
            b_i = \frac{[A^{-1} \mathbf 1]_i}{[A^{-1}]_{ii}} .

    With its quantiles lo, hi at (1 ∓ coverage)/2 and :math:`s_i = \max(lo_{-i}(x_i) - y_i,\; y_i - hi_{-i}(x_i))`, the
    interval runs from the ⌊α(n + 1)⌋-th smallest of :math:`lo_{-i}(x) - s_i` to the ⌈(1 − α)(n + 1)⌉-th smallest of
    :math:`hi_{-i}(x) + s_i`. The theorem needs that kernel and ridge nλ were fixed without these rows; otherwise the
    coverage is only an empirical observation. Cost: O(n s) for each point, with s different targets.

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned for a real target.
        x: new points, ``(t, d)``.
        coverage: 1 − α.

    Returns:
        Lower and upper ends.

    Raises:
        TypeError: if the rows have weights.
        ValueError: if ``coverage`` is not between 0 and 1, or ``x`` has other columns than the data.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(60, 1, dtype=torch.float64)
        >>> y = x.squeeze(-1) + 0.1 * torch.randn(60, dtype=torch.float64)
        >>> conditioned = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel().double()).condition(x, y)
        >>> jackknife_plus_interval(conditioned, x[:3]).shape
        torch.Size([3, 2])
    """
    check_share("coverage", coverage)
    if conditioned.row_weights is not None:
        raise TypeError("Jackknife+ intervals need exchangeable rows, but these have weights.")
    x = check_query_points(x, conditioned.x)
    models = _LeftOut(conditioned)
    n, levels = conditioned.num_data, (0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage))
    scores = interval_scores(_quantiles(models.at_own_rows(), levels, models.support), models.y)
    rank = math.ceil(coverage * (n + 1) - 1e-9)
    if rank > n:
        return torch.tensor([-math.inf, math.inf]).to(models.y).repeat(len(x), 1)
    ends = []
    for rows in x.split(max(1, BLOCK_NUMBERS // models.R.numel())):
        interval = _quantiles(models.at(rows), levels, models.support)
        low, high = interval[..., 0] - scores, interval[..., 1] + scores
        ends.append(torch.stack([-(-low).kthvalue(rank, dim=-1).values, high.kthvalue(rank, dim=-1).values], dim=-1))
    return torch.cat(ends)


class _LeftOut:
    """The n leave-one-out embeddings, as distribution functions before rearrangement."""

    def __init__(self, conditioned: ConditionedEmbedding) -> None:
        self.conditioned, self.y = conditioned, conditioned.real_targets()
        self.support = support_of(self.y)
        self.G = (self.y.unsqueeze(-1) <= self.support).to(self.y)
        ones = torch.ones_like(self.G[:, :1])
        self.R, self.b = conditioned.left_out_residuals(self.G), conditioned.left_out_residuals(ones)
        rest = len(ones) - self._of_group(ones, 0)
        self.marginal = (self.G.sum(0) - self._of_group(self.G, 0)) / rest.clamp_min(1.0)

    def _of_group(self, values: Tensor, dim: int) -> Tensor:
        """The sum over the rows that are left out with each row: the row itself without groups."""
        units = self.conditioned.units
        if units is None or units.labels is None:
            return values
        return torch.zeros_like(values).index_add_(dim, units.labels, values).index_select(dim, units.labels)

    def at_own_rows(self) -> Tensor:
        """F̂_{−i}(t_j | x_i), ``(n, s)``: there Σ_j w_j 1{y_j ≤ t} without i is 1{y_i ≤ t} − R_i(t)."""
        return self.G - self.R + self.b * self.marginal

    def at(self, x: Tensor) -> Tensor:
        """F̂_{−i}(t_j | x), ``(t, n, s)``."""
        w = self.conditioned.weights(x).mT
        missing = 1.0 - w.sum(-1, keepdim=True) + self._of_group(w * self.b.squeeze(-1), -1)
        without = self._of_group(w.unsqueeze(-1) * self.R, -2)
        return (w @ self.G).unsqueeze(-2) - without + missing.unsqueeze(-1) * self.marginal


def _quantiles(F: Tensor, levels: tuple[float, float], support: Tensor) -> Tensor:
    """Quantiles of unsorted functions ``(..., s)``: after sorting, #{F < q} values precede the first ≥ q."""
    index = torch.stack([(level > F).sum(-1) for level in levels], dim=-1)
    return support[index.clamp_max(len(support) - 1)]
