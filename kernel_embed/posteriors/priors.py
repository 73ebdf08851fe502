"""Which priors there are: those registered on the GPyTorch modules, and default ones for parameters without."""

from __future__ import annotations

import warnings

import gpytorch
import torch
from gpytorch.constraints import Interval
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, LogNormal, Normal, TransformedDistribution, Uniform

from ..learning.parameters import ParameterVector
from ..validation import check_finite, check_tensor
from .site import PriorSite, constrained, describe, is_exponential, user_name

DEFAULT_SPREAD = 1.5
"""Standard deviation of log θ under the default prior of a positive parameter: a factor of 4.5 to each side."""

OUTSIDE_DRAWS = 1000
TOLERATED_OUTSIDE = 0.005


class PosteriorWarning(UserWarning):
    """Something about a posterior that its user has to know.

    Example:
        >>> from kernel_embed.posteriors import PosteriorWarning
        >>> issubclass(PosteriorWarning, UserWarning)
        True
    """


def find_sites(embedding: gpytorch.Module, vector: ParameterVector) -> list[PriorSite]:
    """The priors of ``embedding``, and default ones for the parameters of ``vector`` that have none."""
    sites: list[PriorSite] = []
    owned: set[str] = set()
    for name, module, prior, closure, setter in embedding.named_priors():
        parameter = _depends_on(closure(module), vector)
        title = name.removesuffix("_prior")
        if parameter is not None and parameter not in owned:
            owned.add(parameter)
            same = torch.equal(closure(module), constrained(embedding, parameter, vector.named[parameter]))
            title = user_name(parameter) if same else title
            logarithmic = same and is_exponential(embedding, parameter)
            sites.append(
                PriorSite(title, parameter, vector.named[parameter], prior, module, closure, setter, False, logarithmic)
            )
        elif parameter is not None or any(p.requires_grad for p in _inputs(closure(module), vector)):
            sites.append(PriorSite(title, None, None, prior, module, closure, setter))
    for site in sites:
        # Values outside the support have density −∞ or NaN, which is a rejection: no need to look at each one.
        site.prior._validate_args = False
    without = [name for name in vector.named if name not in owned]
    sites += [_default_site(embedding, name, vector.named[name]) for name in without]
    _tell_of_networks(embedding, without)
    return sites


def check_support(sites: list[PriorSite], embedding: gpytorch.Module) -> None:
    """Warn of priors with mass where the constraint of their parameter forbids values, by the global generator."""
    for site in sites:
        constraint = None if site.parameter is None else embedding.constraint_for_parameter_name(site.parameter)
        if site.is_default or constraint is None or site.name != user_name(str(site.parameter)):
            continue
        try:
            draws = site.draw(OUTSIDE_DRAWS)
        except TypeError:
            continue
        forbidden = ~((draws >= constraint.lower_bound) & (draws <= constraint.upper_bound))
        share = forbidden.double().mean().item()
        if share > 1.0 - TOLERATED_OUTSIDE:
            raise ValueError(
                f"Expected a prior on {site.name} with mass inside its constraint {constraint}, got "
                f"{describe(site.prior)}, all of whose draws lie outside. Change one of them."
            )
        if share > TOLERATED_OUTSIDE:
            warnings.warn(
                f"The prior {describe(site.prior)} on {site.name} puts {100 * share:.0f} % of its mass where the "
                f"constraint {constraint} forbids values and the kernel is not valid. The posterior is that of the "
                "prior cut off there. A prior on positive numbers, such as LogNormalPrior or GammaPrior, says what is "
                "meant.",
                PosteriorWarning,
                stacklevel=3,
            )


def _inputs(value: Tensor, vector: ParameterVector) -> list[Tensor]:
    if not value.requires_grad:
        return []
    slopes = torch.autograd.grad(value.sum(), vector.parameters, allow_unused=True, retain_graph=True)
    return [p for p, slope in zip(vector.parameters, slopes, strict=True) if slope is not None]


def _depends_on(value: Tensor, vector: ParameterVector) -> str | None:
    """The one parameter that ``value`` is a function of, entry by entry; ``None`` where there is no such one."""
    inputs = _inputs(value, vector)
    if len(inputs) != 1 or inputs[0].numel() != value.numel():
        return None
    raw = inputs[0]
    weights = torch.arange(1.0, value.numel() + 1.0, dtype=value.dtype, device=value.device)
    # Weighed entries show whether the Jacobian is diagonal: the weight of each row must come back unmixed.
    (plain,) = torch.autograd.grad(value.sum(), raw, retain_graph=True)
    (weighed,) = torch.autograd.grad((value.reshape(-1) * weights).sum(), raw, retain_graph=True)
    if not torch.allclose(weighed.reshape(-1), weights * plain.reshape(-1)):
        return None
    return str(next(name for name, parameter in vector.named.items() if parameter is raw))


def _default_site(embedding: gpytorch.Module, parameter: str, raw: Tensor) -> PriorSite:
    constraint = embedding.constraint_for_parameter_name(parameter)
    owner = _owner(embedding, parameter)
    prior = default_prior(raw, constraint, in_network=not isinstance(owner, gpytorch.Module))

    def closure(module: gpytorch.Module) -> Tensor:
        return constrained(module, parameter, raw)

    def setter(module: gpytorch.Module, value: Tensor) -> None:
        raw.copy_(value if constraint is None else constraint.inverse_transform(value))

    logarithmic = is_exponential(embedding, parameter)
    return PriorSite(user_name(parameter), parameter, raw, prior, embedding, closure, setter, True, logarithmic)


def default_prior(raw: Tensor, constraint: Interval | None, in_network: bool = False) -> Distribution:
    r"""The prior of a parameter that came without one, from its constraint and its present value θ₀.

    ========================  ==================================================================================
    parameter                 prior
    ========================  ==================================================================================
    positive                  log θ ~ N(log θ₀, 1.5²): right within a factor of 4.5, two times out of three
    bounded on one side       the same for the distance from the bound
    in an interval            uniform
    without bounds            N(θ₀, 1)
    weights of a network      N(0, 1 / number of inputs), biases N(0, 1)
    ========================  ==================================================================================

    Args:
        raw: the raw parameter, whose value θ₀ comes from.
        constraint: its GPyTorch constraint, or ``None``.
        in_network: whether it is a weight of a network.

    Returns:
        A distribution of torch, over the parameter itself and not its raw form.

    Raises:
        TypeError: if ``raw`` is not a tensor of real numbers, or ``constraint`` not one of GPyTorch.
        ValueError: if ``raw`` is not finite.

    Example:
        >>> from kernel_embed.posteriors.site import describe
        >>> raw, positive = torch.zeros(2), gpytorch.constraints.Positive()
        >>> describe(default_prior(raw, positive))              # softplus(0) = log 2
        'LogNormal(loc=-0.367, scale=1.5)'
    """
    check_tensor(raw, "raw")
    check_finite(raw, "raw")
    if not (constraint is None or isinstance(constraint, Interval)):
        raise TypeError(f"Expected a constraint of gpytorch, got {constraint!r}. Pass Positive(), say, or None.")
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


def _owner(embedding: gpytorch.Module, parameter: str) -> torch.nn.Module:
    owner: torch.nn.Module = embedding.get_submodule(parameter.rpartition(".")[0])
    return owner


def _tell_of_networks(embedding: gpytorch.Module, parameters: list[str]) -> None:
    inside = [name for name in parameters if not isinstance(_owner(embedding, name), gpytorch.Module)]
    if inside:
        count = sum(embedding.get_parameter(name).numel() for name in inside)
        warnings.warn(
            f"{count} parameters have no prior and belong to a module that is not GPyTorch's ({inside[0]}"
            f"{', …' if len(inside) > 1 else ''}); they are given N(0, 1 / number of inputs). Register a prior, "
            "embedding.register_prior(name, prior, closure, setting_closure), or hold them fixed with "
            "module.requires_grad_(False).",
            PosteriorWarning,
            stacklevel=5,
        )
