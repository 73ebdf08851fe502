r"""Priors of the parameters: their log density and its derivative, in closed form where the family is registered.

.. math::
    \theta \sim \operatorname{LogNormal}(\mu, \sigma) &: \quad \log p(\theta) + v = -\tfrac12 (v - \mu)^2 / \sigma^2 -
        \log \sigma - \tfrac12 \log 2\pi \\
    \theta \sim \operatorname{Gamma}(a, r) &: \quad \log p(\theta) + v = a \log r - \log \Gamma(a) + a v - r e^v

with :math:`v = \log \theta`: :math:`\log p(\theta) + v` is the density of v itself, with the Jacobian of
:math:`\theta = e^v`. Other priors are differentiated by autograd.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import Interval
from linear_operator.utils.errors import NanError
from torch import Tensor
from torch.distributions import (
    AffineTransform,
    Distribution,
    Gamma,
    LogNormal,
    Normal,
    TransformedDistribution,
    Uniform,
)

from ..validation import check_finite, check_tensor
from .parameters import Coordinates, ParameterVector, Vector, constrained, flatten


class LogPriors(NamedTuple):
    """The coefficients of :math:`\\sum_i c_i + b_i v_i - \\tfrac12 q_i v_i^2 - r_i e^{v_i}`."""

    constant: float
    linear: Vector
    quadratic: Vector
    rate: Vector

    @classmethod
    def of(cls, prior: Distribution, like: Tensor) -> LogPriors | None:
        """The density of v for θ ~ ``prior`` with the shape of ``like``; ``None`` for a family without a rule."""
        rule = FAMILIES.get(type(prior))
        return None if rule is None or getattr(prior, "_transform", None) is not None else rule(prior, like)

    @classmethod
    def joined(cls, parts: list[LogPriors]) -> LogPriors:
        """Independent ones, one after another."""
        constants, *others = zip(*parts, strict=True)
        return cls(float(sum(constants)), *(np.concatenate(pieces) for pieces in others))

    def value_and_derivative(self, v: Vector, theta: Vector) -> tuple[float, Vector]:
        """The sum, with θ = e^v, and its derivative in v."""
        curved, linear = self.quadratic * v, self.linear - self.rate * theta
        value = self.constant + float((self.linear - 0.5 * curved) @ v - self.rate @ theta)
        return value, linear - curved


def _log_normal(prior: Any, like: Tensor) -> LogPriors:
    mu, precision = (_entries(value, like) for value in (prior.loc, prior.scale**-2.0))
    total = float((0.5 * np.log(precision) - 0.5 * precision * mu**2).sum())
    constant = total - 0.5 * like.numel() * math.log(2 * math.pi)
    return LogPriors(constant, precision * mu, precision, np.zeros_like(mu))


def _gamma(prior: Any, like: Tensor) -> LogPriors:
    a, r = (_entries(value, like) for value in (prior.concentration, prior.rate))
    log_gamma = torch.lgamma(torch.from_numpy(a)).numpy()
    return LogPriors(float((a * np.log(r) - log_gamma).sum()), a, np.zeros_like(a), r)


FAMILIES: dict[type[Distribution], Callable[[Any, Tensor], LogPriors]] = {
    LogNormal: _log_normal,
    gpytorch.priors.LogNormalPrior: _log_normal,
    Gamma: _gamma,
    gpytorch.priors.GammaPrior: _gamma,
}
"""Families of priors with a closed form, by exact type; other families are left to autograd."""


def _entries(value: Tensor, like: Tensor) -> Vector:
    entries: Vector = value.detach().cpu().double().expand(like.shape).reshape(-1).numpy().copy()
    return entries


def inputs_of(value: Tensor, vector: ParameterVector) -> dict[str, Tensor]:
    """The parameters on which ``value``, the argument of a prior's density, depends."""
    if not value.requires_grad:
        return {}
    slopes = torch.autograd.grad(value.sum(), vector.parameters, allow_unused=True, retain_graph=True)
    return {name: p for (name, p), slope in zip(vector.named.items(), slopes, strict=True) if slope is not None}


def single_input(value: Tensor, inputs: dict[str, Tensor]) -> str | None:
    """The one parameter that ``value`` is an elementwise function of; ``None`` if there is no such parameter."""
    if len(inputs) != 1:
        return None
    ((name, raw),) = inputs.items()
    if raw.numel() != value.numel():
        return None
    weights = torch.arange(1.0, value.numel() + 1.0, dtype=value.dtype, device=value.device)
    # The Jacobian is diagonal if the weight of each entry comes back unmixed.
    (plain,) = torch.autograd.grad(value.sum(), raw, retain_graph=True)
    (weighted,) = torch.autograd.grad((value.reshape(-1) * weights).sum(), raw, retain_graph=True)
    return name if torch.allclose(weighted.reshape(-1), weights * plain.reshape(-1)) else None


def is_theta(value: Tensor, vector: ParameterVector, name: str) -> bool:
    """Whether ``value`` is the parameter θ itself: it has its value and slope, which 1/θ² at θ = 1 has not."""
    theta, raw = constrained(vector.module, name, vector.named[name]), vector.named[name]
    slopes = [torch.autograd.grad(v.sum(), raw, retain_graph=True)[0] for v in (value, theta)]
    return torch.equal(value, theta) and torch.allclose(*slopes)


def parameter_priors(vector: ParameterVector) -> LogPriors | None:
    """log p(θ) of all registered priors; ``None`` if one has no closed form here, or is not a density of θ itself."""
    parts: dict[str, LogPriors] = {}
    for _, owner, prior, closure, _ in vector.module.named_priors():
        value = closure(owner)
        name = single_input(value, inputs_of(value, vector))
        part = None if name is None else LogPriors.of(prior, vector.named[name])
        if name is None or part is None or name in parts or not is_theta(value, vector, name):
            return None
        parts[name] = part._replace(linear=part.linear - 1.0)  # log p(θ) itself
    zeros = {name: np.zeros(raw.numel()) for name, raw in vector.named.items()}
    return LogPriors.joined([parts.get(name, LogPriors(0.0, z, z, z)) for name, z in zeros.items()])


def prior_loss(module: gpytorch.Module) -> Tensor:
    """−Σ log p(θ) over all registered priors; ``NanError`` outside a support, as where a positive θ underflows to 0."""
    losses: list[Tensor] = []
    for name, owner, prior, closure, _ in module.named_priors():
        value = closure(owner)
        try:
            losses.append(-prior.log_prob(value).sum())
        except ValueError as error:  # how distributions report values outside their support
            raise NanError(
                f"{name}, a {type(prior).__name__}, does not allow values from {float(value.detach().min()):.3g} to "
                f"{float(value.detach().max()):.3g}. Set the parameter inside its support, or use another prior."
            ) from error
    return sum(losses[1:], start=losses[0])


class PriorLoss:
    """−Σ log p(θ(u)) and its gradient in u: in closed form where every family is registered."""

    def __init__(self, vector: ParameterVector) -> None:
        self._vector, self._closed, self._coordinates = vector, parameter_priors(vector), Coordinates(vector)

    def __call__(self, u: Vector) -> tuple[float, Vector]:
        """Value and gradient at u, which the parameters already have."""
        if self._closed is not None:
            theta, slope = self._coordinates(u)
            value, derivative = self._closed.value_and_derivative(np.log(theta), theta)
            return -value, -derivative * slope / theta
        loss, parameters = prior_loss(self._vector.module), self._vector.parameters
        if not loss.requires_grad:
            return loss.item(), np.zeros(len(u))
        return loss.item(), flatten(torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True))


DEFAULT_SPREAD = 1.5  # standard deviation of log θ under the default prior: a factor of 4.5 to each side


def default_prior(raw: Tensor, constraint: Interval | None, in_network: bool = False) -> Distribution:
    """The prior of a parameter without a registered one, from its constraint and its current value θ₀.

    ========================  ==================================================================================
    parameter                 prior
    ========================  ==================================================================================
    positive                  log θ ~ N(log θ₀, 1.5²): within a factor of 4.5, two times out of three
    bounded on one side       the same for the distance from the bound
    in an interval            uniform
    without bounds            N(θ₀, 1)
    weights of a network      N(0, 1 / number of inputs), biases N(0, 1)
    ========================  ==================================================================================

    Args:
        raw: the raw parameter, which θ₀ is computed from.
        constraint: its GPyTorch constraint, or ``None``.
        in_network: whether it is a weight of a network.

    Returns:
        A torch distribution of θ, not of the raw parameter.

    Raises:
        TypeError: if ``raw`` is not a tensor of real numbers, or ``constraint`` is not a GPyTorch constraint.
        ValueError: if ``raw`` is not finite.

    Example:
        >>> import gpytorch
        >>> default_prior(torch.zeros(2), gpytorch.constraints.Positive()).loc          # softplus(0) = log 2
        tensor([-0.3665, -0.3665])
    """
    check_tensor(raw, "raw")
    check_finite(raw, "raw")
    if not (constraint is None or isinstance(constraint, Interval)):
        raise TypeError(f"The constraint must be one of gpytorch, such as Positive(), or None, not {constraint!r}.")
    raw = raw.detach()
    if constraint is None:
        if not in_network:
            return Normal(raw.clone(), torch.ones_like(raw))
        inputs = raw[0].numel() if raw.dim() > 1 else 1
        return Normal(torch.zeros_like(raw), torch.full_like(raw, inputs**-0.5))
    value = constraint.transform(raw)
    lower, upper = (bound.to(raw).expand(raw.shape) for bound in (constraint.lower_bound, constraint.upper_bound))
    has_lower, has_upper = bool(torch.isfinite(lower).all()), bool(torch.isfinite(upper).all())
    if has_lower and has_upper:
        return Uniform(lower, upper)
    distance = (value - lower if has_lower else upper - value).clamp_min(torch.finfo(raw.dtype).tiny)
    prior = LogNormal(distance.log(), torch.full_like(raw, DEFAULT_SPREAD))
    if has_lower and not bool(lower.any()):
        return prior
    bound, sign = (lower, 1.0) if has_lower else (upper, -1.0)
    return TransformedDistribution(prior, AffineTransform(float(bound.flatten()[0]), sign))
