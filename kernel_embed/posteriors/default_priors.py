"""Priors of parameters without a registered one."""

from __future__ import annotations

import torch
from gpytorch.constraints import Interval
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, LogNormal, Normal, TransformedDistribution, Uniform

from ..validation import check_finite, check_tensor

DEFAULT_SPREAD = 1.5
"""Standard deviation of log θ under the default prior of a positive parameter: a factor of 4.5 to each side."""


def default_prior(raw: Tensor, constraint: Interval | None, in_network: bool = False) -> Distribution:
    r"""The prior of a parameter without a registered one, from its constraint and its current value θ₀.

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
        >>> from kernel_embed.posteriors.priors import describe
        >>> raw, positive = torch.zeros(2), gpytorch.constraints.Positive()
        >>> describe(default_prior(raw, positive))              # softplus(0) = log 2
        'LogNormal(loc=-0.367, scale=1.5)'
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
