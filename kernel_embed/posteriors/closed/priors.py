r"""Log-normal and gamma priors of :math:`\theta = e^u`, with their Jacobian, for all parameters at once.

.. math::
    \theta \sim \operatorname{LogNormal}(\mu, \sigma) &: \quad \log p(u) = -\tfrac12 (u - \mu)^2 / \sigma^2 -
        \log \sigma - \tfrac12 \log 2\pi \\
    \theta \sim \operatorname{Gamma}(a, r) &: \quad \log p(u) = a \log r - \log \Gamma(a) + a u - r e^u
"""

from __future__ import annotations

import math
from typing import NamedTuple

import gpytorch
import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Gamma, LogNormal

from ...learning.parameters import ParameterVector, Vector
from ..site import Site


class ClosedPriors(NamedTuple):
    """The coefficients of :math:`\\log p(u) = \\sum_i c_i + b_i u_i - \\tfrac12 q_i u_i^2 - r_i e^{u_i}`."""

    constant: float
    linear: Vector
    quadratic: Vector
    rate: Vector

    @classmethod
    def of(cls, sites: list[Site], vector: ParameterVector) -> ClosedPriors | None:
        """The priors of ``sites``, one for each entry of ``vector``; ``None`` where one has no closed form."""
        by_parameter = {site.parameter: site for site in sites}
        if None in by_parameter or len(by_parameter) != len(sites) or set(by_parameter) != set(vector.named):
            return None
        pieces = [_coefficients(vector.module, name, by_parameter[name], raw) for name, raw in vector.named.items()]
        if any(piece is None for piece in pieces):
            return None
        constants, *others = zip(*(piece for piece in pieces if piece is not None), strict=True)
        return cls(float(sum(constants)), *(np.concatenate(parts) for parts in others))

    def value(self, u: Vector, theta: Vector) -> float:
        """log p(u), with θ = e^u."""
        return self.constant + float((self.linear - 0.5 * self.quadratic * u) @ u - self.rate @ theta)

    def slope(self, u: Vector, theta: Vector) -> Vector:
        """∂ log p / ∂u."""
        answer: Vector = self.linear - self.quadratic * u - self.rate * theta
        return answer


def _coefficients(
    module: gpytorch.Module, name: str, site: Site, raw: Tensor
) -> tuple[float, Vector, Vector, Vector] | None:
    prior = site.prior
    if not site.on_log_scale or getattr(prior, "_transform", None) is not None or not _is_plain(prior):
        return None
    if bool(module.constraint_for_parameter_name(name).lower_bound.any()):
        return None
    count, zeros = raw.numel(), np.zeros(raw.numel())
    if isinstance(prior, LogNormal):
        mu, precision = (_entries(value, raw) for value in (prior.loc, prior.scale**-2.0))
        constant = float((0.5 * np.log(precision) - 0.5 * precision * mu**2).sum()) - 0.5 * count * math.log(
            2 * math.pi
        )
        return constant, precision * mu, precision, zeros
    assert isinstance(prior, Gamma)
    a, r = (_entries(value, raw) for value in (prior.concentration, prior.rate))
    log_gamma = torch.lgamma(torch.from_numpy(a)).numpy()
    return float((a * np.log(r) - log_gamma).sum()), a, zeros, r


def _is_plain(prior: Distribution) -> bool:
    """Whether it is one of the two, and not something made of them."""
    return isinstance(prior, LogNormal | Gamma) and type(prior).__name__.removesuffix("Prior") in ("LogNormal", "Gamma")


def _entries(value: Tensor, raw: Tensor) -> Vector:
    entries: Vector = value.detach().double().expand(raw.shape).reshape(-1).numpy().copy()
    return entries
