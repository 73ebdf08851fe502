r"""The coordinates that are sampled, and the priors in them: those registered on GPyTorch modules, and default ones.

A posterior is sampled in unbounded raw parameters u, with u = log θ for every positive θ in place of GPyTorch's
softplus: there the posteriors of scales are nearly symmetric, and trajectories short.

A prior registered with ``register_prior`` is a density of :math:`v = c(u)`, with c the closure it was registered with:
the lengthscale itself, 1/ℓ² in a sparse prior, or any other elementwise function of one parameter. The change of
variables gives

.. math::  \log p(u) = \log p(v) + \sum_i \log \Big\lvert \frac{\partial v_i}{\partial u_i} \Big\rvert .

A closure of several parameters has no such Jacobian: its prior is a factor in addition to the priors of the parameters.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Interval
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, LogNormal, TransformedDistribution

from ..learning.parameters import ParameterVector, Vector, constrained, is_in_network, user_name
from ..learning.priors import LogPriors, default_prior, inputs_of, is_theta, single_input


class PosteriorWarning(UserWarning):
    """A problem with the draws of a posterior.

    Example:
        >>> import warnings
        >>> warnings.simplefilter("ignore", PosteriorWarning)
    """


def on_log_scale(embedding: gpytorch.Module) -> None:
    """Rewrite every θ = b + softplus(u) of ``embedding`` as θ = b + exp(u), in place and with the same values."""
    for name, raw in embedding.named_parameters():
        constraint: Interval | None = embedding.constraint_for_parameter_name(name)
        if not isinstance(constraint, GreaterThan) or not isinstance(constraint._transform, torch.nn.Softplus):
            continue
        owner, _, leaf = name.rpartition(".")
        value = constraint.transform(raw.detach())
        logarithmic = GreaterThan(constraint.lower_bound, transform=torch.exp, inv_transform=torch.log).to(raw)
        embedding.get_submodule(owner).register_constraint(leaf, logarithmic)
        with torch.no_grad():
            raw.copy_(logarithmic.inverse_transform(value))


@dataclasses.dataclass
class PriorSite:
    """A prior of v = ``closure(module)``, and the parameter u = ``raw`` that v is a function of.

    ``parameter`` and ``raw`` are ``None`` for a factor, which only multiplies the density. With ``on_log_scale``,
    v = b + exp(u), so that log ∂v/∂u is u itself.
    """

    name: str
    parameter: str | None
    raw: Tensor | None
    prior: Distribution
    module: gpytorch.Module
    closure: Callable[[gpytorch.Module], Tensor]
    setter: Callable[[gpytorch.Module, Tensor], None] | None
    is_default: bool = False
    on_log_scale: bool = False

    @property
    def is_factor(self) -> bool:
        """Whether nothing is drawn from the prior."""
        return self.raw is None

    def value(self) -> Tensor:
        """v at the current parameters."""
        return self.closure(self.module)

    def set(self, value: Tensor) -> None:
        """Write v into the module; ``ValueError`` if no parameter has that value."""
        if self.setter is None:
            raise ValueError(f"The prior on {self.name} has no setting_closure. Pass one to register_prior.")
        try:
            with torch.no_grad():
                self.setter(self.module, value)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        if self.raw is not None and not bool(torch.isfinite(self.raw).all()):
            raise ValueError(f"No parameter gives {self.name} the value {value.tolist()}.")

    def draw(self, *count: int) -> Tensor:
        """A draw of v from its prior, or ``count`` of them, with the global generator."""
        shape = self.value().shape
        base = torch.Size(self.prior.batch_shape) + torch.Size(self.prior.event_shape)
        lead = shape if base.numel() == 1 else shape[: len(shape) - len(base)]
        try:
            with torch.no_grad():
                value: Tensor = self.prior.sample(torch.Size(count) + lead).reshape(torch.Size(count) + shape)
            return value
        except (NotImplementedError, AttributeError) as error:
            raise TypeError(
                f"The prior {type(self.prior).__name__} on {self.name} has no sample(). Give starting points, "
                "initial={name: values}, or use a prior such as LogNormalPrior."
            ) from error

    def describe(self) -> str:
        """The prior in words."""
        return f"{describe(self.prior)}{' (default)' if self.is_default else ''}"


def prior_draw(sites: list[PriorSite], vector: ParameterVector, current: Vector) -> Vector | None:
    """One draw from the prior with the global generator; ``None`` if it violates a constraint."""
    vector.set(current)
    try:
        for site in sites:
            if not site.is_factor:
                site.set(site.draw())
    except ValueError:
        return None
    point = vector.get()
    return point if np.isfinite(point).all() else None


def log_density(sites: list[PriorSite]) -> Tensor:
    """log p(u): Σ log p(v) over all sites, and log |∂v/∂u| over those that are not factors."""
    log_prior, others = torch.zeros((), device="cpu"), []
    for site in sites:
        value = site.value()
        log_prior = log_prior + site.prior.log_prob(value).sum()
        if site.raw is not None and site.on_log_scale:
            log_prior = log_prior + site.raw.sum()
        elif site.raw is not None:
            others.append((value.sum(), site.raw))
    if not others:
        return log_prior
    # One backward pass for all: each v is a function of its own u alone.
    totals, raws = zip(*others, strict=True)
    slopes = torch.autograd.grad(totals, raws, create_graph=True)
    return log_prior + torch.cat([slope.reshape(-1) for slope in slopes]).abs().log().sum()


def log_priors(sites: list[PriorSite], vector: ParameterVector) -> LogPriors | None:
    """log p(u) in closed form, if every u is log θ with a prior of a registered family."""
    by_parameter = {site.parameter: site for site in sites}
    if None in by_parameter or len(by_parameter) != len(sites) or set(by_parameter) != set(vector.named):
        return None
    parts = []
    for name, raw in vector.named.items():
        constraint = vector.module.constraint_for_parameter_name(name)
        part = LogPriors.of(by_parameter[name].prior, raw) if by_parameter[name].on_log_scale else None
        if part is None or bool(constraint.lower_bound.any()):
            return None
        parts.append(part)
    return LogPriors.joined(parts)


def describe(prior: Distribution) -> str:
    """A prior with its numbers: ``GammaPrior(concentration=1, rate=1)``."""
    if isinstance(prior, TransformedDistribution) and not isinstance(prior, LogNormal | gpytorch.priors.Prior):
        shift = prior.transforms[-1]
        if isinstance(shift, AffineTransform):
            return f"{shift.loc:.3g} {'+' if shift.scale > 0 else '-'} {describe(prior.base_dist)}"
    names = list(getattr(prior, "arg_constraints", {}))
    if "probs" in names or "covariance_matrix" in names:
        return type(prior).__name__
    values = [(name, getattr(prior, name, None)) for name in names]
    inside = ", ".join(f"{name}={_number(value)}" for name, value in values if isinstance(value, Tensor))
    return f"{type(prior).__name__}({inside})"


def _number(value: Tensor) -> str:
    low, high = value.min().item(), value.max().item()
    return f"{low:.3g}" if math.isclose(low, high) else f"{low:.3g}…{high:.3g}"


def find_sites(embedding: gpytorch.Module, vector: ParameterVector) -> list[PriorSite]:
    """The priors of ``embedding``, and default ones for the parameters of ``vector`` that have none."""
    sites: list[PriorSite] = []
    owned: set[str | None] = {None}
    for name, module, prior, closure, setter in embedding.named_priors():
        value = closure(module)
        inputs = inputs_of(value, vector)
        parameter, title = single_input(value, inputs), name.removesuffix("_prior")
        # Values outside the support have density −∞ or NaN, which is a rejection: torch need not validate each one.
        prior._validate_args = False
        if parameter is None or parameter in owned:
            if inputs:
                sites.append(PriorSite(title, None, None, prior, module, closure, setter))
            continue
        owned.add(parameter)
        site = PriorSite(title, parameter, inputs[parameter], prior, module, closure, setter)
        if is_theta(value, vector, parameter):
            site.name, site.on_log_scale = user_name(parameter), _is_exponential(embedding, parameter)
        sites.append(site)
    without = [name for name in vector.named if name not in owned]
    weights = [vector.named[name] for name in without if is_in_network(embedding, name)]
    if weights:
        warnings.warn(
            f"{sum(map(torch.numel, weights))} parameters of a module that is not GPyTorch's have no prior; they get "
            "N(0, 1 / number of inputs). Register a prior, embedding.register_prior(name, prior, closure, "
            "setting_closure), or fix them with module.requires_grad_(False).",
            PosteriorWarning,
            stacklevel=5,
        )
    return sites + [_default_site(embedding, name, vector.named[name]) for name in without]


def _is_exponential(embedding: gpytorch.Module, parameter: str) -> bool:
    """Whether θ = b + exp(u) for this parameter."""
    constraint: Interval | None = embedding.constraint_for_parameter_name(parameter)
    return isinstance(constraint, GreaterThan) and constraint._transform is torch.exp


def _default_site(embedding: gpytorch.Module, parameter: str, raw: Tensor) -> PriorSite:
    constraint = embedding.constraint_for_parameter_name(parameter)
    prior = default_prior(raw, constraint, in_network=is_in_network(embedding, parameter))

    def closure(module: gpytorch.Module) -> Tensor:
        return constrained(module, parameter, raw)

    def setter(module: gpytorch.Module, value: Tensor) -> None:
        raw.copy_(value if constraint is None else constraint.inverse_transform(value))

    logarithmic = _is_exponential(embedding, parameter)
    return PriorSite(user_name(parameter), parameter, raw, prior, embedding, closure, setter, True, logarithmic)
