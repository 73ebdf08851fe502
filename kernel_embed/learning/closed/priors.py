r"""Log-normal and gamma densities as functions of :math:`v = \log \theta`, for all parameters at once.

.. math::
    \theta \sim \operatorname{LogNormal}(\mu, \sigma) &: \quad \log p(\theta) + v = -\tfrac12 (v - \mu)^2 / \sigma^2 -
        \log \sigma - \tfrac12 \log 2\pi \\
    \theta \sim \operatorname{Gamma}(a, r) &: \quad \log p(\theta) + v = a \log r - \log \Gamma(a) + a v - r e^v

:math:`\log p(\theta) + v` is the density of v itself, with the Jacobian of :math:`\theta = e^v`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Gamma, LogNormal

from ..parameters import Vector


class LogPriors(NamedTuple):
    """The coefficients of :math:`\\sum_i c_i + b_i v_i - \\tfrac12 q_i v_i^2 - r_i e^{v_i}`.

    Example:
        >>> priors = LogPriors.of(torch.distributions.Gamma(torch.tensor([2.0]), torch.tensor([3.0])), torch.zeros(1))
        >>> v = np.array([0.5])
        >>> expected = torch.distributions.Gamma(2.0, 3.0).log_prob(torch.tensor(0.5).exp()).item() + 0.5
        >>> abs(priors.value(v, np.exp(v)) - expected) < 1e-5
        True
    """

    constant: float
    linear: Vector
    quadratic: Vector
    rate: Vector

    @classmethod
    def of(cls, prior: Distribution, like: Tensor) -> LogPriors | None:
        """The density of v where θ ~ ``prior`` has as many entries as ``like``; ``None`` for another prior."""
        if not _is_plain(prior) or getattr(prior, "_transform", None) is not None:
            return None
        count, zeros = like.numel(), np.zeros(like.numel())
        if isinstance(prior, LogNormal):
            mu, precision = (_entries(value, like) for value in (prior.loc, prior.scale**-2.0))
            total = float((0.5 * np.log(precision) - 0.5 * precision * mu**2).sum())
            return cls(total - 0.5 * count * math.log(2 * math.pi), precision * mu, precision, zeros)
        assert isinstance(prior, Gamma)
        a, r = (_entries(value, like) for value in (prior.concentration, prior.rate))
        log_gamma = torch.lgamma(torch.from_numpy(a)).numpy()
        return cls(float((a * np.log(r) - log_gamma).sum()), a, zeros, r)

    @classmethod
    def none(cls, count: int) -> LogPriors:
        """No density, of ``count`` entries."""
        zeros = np.zeros(count)
        return cls(0.0, zeros, zeros, zeros)

    @classmethod
    def joined(cls, parts: list[LogPriors]) -> LogPriors:
        """Independent ones, one after another."""
        constants, *others = zip(*parts, strict=True)
        return cls(float(sum(constants)), *(np.concatenate(pieces) for pieces in others))

    def without_jacobian(self) -> LogPriors:
        """log p(θ) itself, as a function of v."""
        return self._replace(linear=self.linear - 1.0)

    def value(self, v: Vector, theta: Vector) -> float:
        """The sum, with θ = e^v."""
        return self.constant + float((self.linear - 0.5 * self.quadratic * v) @ v - self.rate @ theta)

    def slope(self, v: Vector, theta: Vector) -> Vector:
        """Its derivative in v."""
        answer: Vector = self.linear - self.quadratic * v - self.rate * theta
        return answer


def _is_plain(prior: Distribution) -> bool:
    """Whether it is one of the two, and not something made of them."""
    return isinstance(prior, LogNormal | Gamma) and type(prior).__name__.removesuffix("Prior") in ("LogNormal", "Gamma")


def _entries(value: Tensor, like: Tensor) -> Vector:
    entries: Vector = value.detach().double().expand(like.shape).reshape(-1).numpy().copy()
    return entries
