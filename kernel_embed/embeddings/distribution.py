r"""The distribution P(Y | X = x) of a real target, for each point x.

An embedding of real targets gives a signed measure with weights :math:`v = 1/n + w - (\sum_j w_j)/n`,
:math:`w = A^{-1} \mathbf k(x)`, on the training targets: the missing or excess mass is that of the marginal
distribution. Its distribution function is linear in the data,

.. math::  \hat F(t \mid x) = \sum_j v_j \mathbf 1\{y_j \le t\}
           = \bar F(t) + \mathbf k(x)^\top A^{-1} \big( \mathbf 1\{y \le t\} - \bar F(t) \big) ,

but need not be monotone. Predictions use its *monotone rearrangement*: the values :math:`\hat F(t_1), \dots, \hat
F(t_s)` at the ordered targets, sorted and clipped to [0, 1]. Its mean squared distance over the :math:`t_j` to any
distribution function is never larger than that of the original function, and quantiles never cross.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..validation import (
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
        values: F̂(t_j) for every point x, ``(*batch, t, s)``, rearranged here: sorted and clipped to [0, 1].

    Attributes:
        support: t.
        F: the distribution functions at the support, ``(*batch, t, s)``.

    Example:
        >>> distribution = Distribution(torch.tensor([0.0, 1.0, 3.0]), torch.tensor([[0.5, 0.2, 1.0]]))
        >>> distribution.F, distribution.quantile(0.4), distribution.cdf(2.0)
        (tensor([[0.2000, 0.5000, 1.0000]]), tensor([1.]), tensor([0.5000]))
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
            TypeError: if ``t`` is not made of real numbers.
            ValueError: if ``t`` is neither a number nor a vector, or has NaN.
        """
        thresholds = self._places(t, "t")
        if thresholds.dim() > 1 or bool(thresholds.isnan().any()):
            raise ValueError(f"Expected thresholds t as a number or a vector without NaN, got {thresholds.tolist()}.")
        below = torch.searchsorted(self.support, thresholds.reshape(-1).contiguous(), right=True)
        padded = torch.cat([torch.zeros_like(self.F[..., :1]), self.F], dim=-1)
        F = padded[..., below]
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
        index = torch.searchsorted(self.F.contiguous(), levels.reshape(-1).expand(*self.F.shape[:-1], -1).contiguous())
        quantiles = self.support[index.clamp_max(len(self.support) - 1)]
        return quantiles.squeeze(-1) if levels.dim() == 0 else quantiles

    def interval(self, coverage: float = 0.9) -> Tensor:
        """The central interval, from the quantile (1 − coverage)/2 to (1 + coverage)/2: ``(*batch, t, 2)``.

        Raises:
            ValueError: if ``coverage`` is not between 0 and 1, both excluded.
        """
        check_share("coverage", coverage)
        return self.quantile(torch.tensor([0.5 * (1.0 - coverage), 0.5 * (1.0 + coverage)], dtype=torch.float64))

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
            TypeError: if ``k`` or ``seed`` is not a whole number.
            ValueError: if ``k`` is below 1, or ``seed`` is negative.
        """
        shape = (*self.F.shape[:-1], check_count("k", k))
        u = torch.rand(shape, generator=generator_of(seed), dtype=self.F.dtype).to(self.F.device)
        index = torch.searchsorted(self.F.contiguous(), u)
        return self.support[index.clamp_max(len(self.support) - 1)]

    def density(self, t: Tensor, bandwidth: float) -> Tensor:
        """The density of the distribution smoothed by a Gaussian of scale ``bandwidth``, at t ``(k,)``: (…, t, k).

        Raises:
            TypeError: if ``bandwidth`` is not a number.
            ValueError: if ``bandwidth`` is not positive and finite, or ``t`` is not finite.
        """
        width = check_number("bandwidth", bandwidth)
        check_setting("bandwidth", bandwidth, 0.0 < width < math.inf, "positive and finite, in units of the target")
        t = self._places(t, "t")
        check_finite(t, "t")
        z = (t.reshape(-1) - self.support.unsqueeze(-1)) / bandwidth
        return self.probabilities @ (torch.exp(-0.5 * z.square()) / (bandwidth * math.sqrt(2.0 * math.pi)))

    def crps(self, y: Tensor) -> Tensor:
        """∫ (F(t) − 1{y ≤ t})² dt for one outcome at each point, ``y`` of shape ``(t,)``: ``(*batch, t)``.

        Raises:
            ValueError: if there is not one finite outcome for each point.
        """
        y = self._outcomes(y).unsqueeze(-1)
        gaps, left, F = self.support.diff(), self.support[:-1], self.F[..., :-1]
        # Of a gap, the part above y counts (1 − F)², that below F²; outside the support F is 0 or 1.
        above = (self.support[1:] - torch.maximum(y, left)).clamp_min(0.0).minimum(gaps)
        inside = (above * (1.0 - F).square() + (gaps - above) * F.square()).sum(-1)
        outside = (self.support[0] - y).clamp_min(0.0) + (y - self.support[-1]).clamp_min(0.0)
        return inside + outside.squeeze(-1)

    def pit(self, y: Tensor) -> Tensor:
        """The levels F(y−), F(y) of one outcome at each point, ``y`` of shape ``(t,)``: ``(*batch, t, 2)``.

        A uniform draw between them, the probability integral transform, is uniform if predictions are calibrated.

        Raises:
            ValueError: if there is not one finite outcome for each point.
        """
        y = self._outcomes(y)
        index = torch.stack([torch.searchsorted(self.support, y, right=right) for right in (False, True)], dim=-1)
        F = torch.cat([torch.zeros_like(self.F[..., :1]), self.F[..., :-1], torch.ones_like(self.F[..., :1])], dim=-1)
        return F.expand(*F.shape[:-2], len(y), -1).gather(-1, index.expand(*F.shape[:-2], len(y), 2))

    def _outcomes(self, y: Tensor) -> Tensor:
        y = self._places(y, "y")
        if y.dim() != 1 or self.F.shape[-2] not in (1, len(y)):
            raise ValueError(
                f"Expected one outcome y for each of the {self.F.shape[-2]} points, got shape {tuple(y.shape)}."
            )
        check_finite(y, "y")
        return y

    def _places(self, values: float | Tensor, name: str) -> Tensor:
        """Numbers of the user as a tensor like the support."""
        if isinstance(values, Tensor):
            check_tensor(values, name)
            return values.to(self.support)
        return torch.tensor(check_array(values, name)).to(self.support)  # a copy: arrays of pandas may be read-only


class RealTargetPredictor:
    """P(Y | X) as a distribution, for every class that implements :meth:`distribution`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x = torch.rand(30, 1, dtype=torch.float64)
        >>> predictor = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, 2 * x.squeeze(-1))
        >>> predictor.interval(0.9, x[:3]).shape, predictor.quantile(0.5, x[:3]).shape
        (torch.Size([3, 2]), torch.Size([3]))
    """

    def distribution(self, x: Tensor) -> Distribution:
        """P(Y | X = x) of a real target, for each of the points ``x`` ``(t, d)``.

        Raises:
            TypeError: if there is no single real target, or the predictor does not hold it.
        """
        raise no_distribution(self)

    def cdf(self, t: float | Tensor, x: Tensor) -> Tensor:
        """P(Y ≤ t | X = x): ``(*batch, t)``, or ``(*batch, t, k)`` for k thresholds."""
        return self.distribution(x).cdf(t)

    def exceedance(self, t: float | Tensor, x: Tensor) -> Tensor:
        """P(Y > t | X = x), as :meth:`cdf`."""
        return self.distribution(x).exceedance(t)

    def quantile(self, q: float | Tensor, x: Tensor) -> Tensor:
        """The quantiles of Y given X = x: ``(*batch, t)``, or ``(*batch, t, k)`` for k levels. They never cross."""
        return self.distribution(x).quantile(q)

    def interval(self, coverage: float, x: Tensor) -> Tensor:
        """The central interval of this probability: ``(*batch, t, 2)``. It is the model's own; see ``conformal``."""
        return self.distribution(x).interval(coverage)

    def variance(self, x: Tensor) -> Tensor:
        """Var[Y | X = x]: ``(*batch, t)``."""
        return self.distribution(x).variance

    def density(self, t: Tensor, x: Tensor, bandwidth: float) -> Tensor:
        """The density of Y given X = x, smoothed by a Gaussian of scale ``bandwidth``: ``(*batch, t, k)``."""
        return self.distribution(x).density(t, bandwidth)

    def sample(self, k: int, x: Tensor, seed: int | None = None) -> Tensor:
        """k draws of Y given X = x: ``(*batch, t, k)``."""
        return self.distribution(x).sample(k, seed)


def no_distribution(predictor: RealTargetPredictor) -> TypeError:
    """The error if there is no real target, or the predictor does not store it."""
    return TypeError(
        f"{type(predictor).__name__} holds no real target, so it has no distribution function. For class labels use "
        "probabilities(x); otherwise use embedding.condition(x, y), which holds its targets."
    )


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
        raise ValueError(
            f"Expected quantile levels between 0 and 1, both excluded, as a number or a vector, got {q.tolist()}."
        )
