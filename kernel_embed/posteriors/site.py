r"""The coordinates that are sampled, and one prior in them: its value, its draws, its density.

A posterior is sampled in raw parameters u, which know no bounds: log θ for what is positive, whatever the module's own
raw form. GPyTorch writes positive parameters as θ = softplus(u), which is linear where θ is large: a prior over orders
of magnitude has a long right tail there, and trajectories that keep to the scale of its bulk are slow in it. In
u = log θ priors and posteriors of scales are nearly symmetric, and the same draws need far fewer gradients.

A prior registered with ``register_prior`` is a density of :math:`v = c(u)`, with c the closure it was registered with:
the lengthscale itself, or 1/ℓ² in a sparse prior, or anything else that is a function of one parameter, entry by entry.
The change of variables gives

.. math::  \log p(u) = \log p(v) + \sum_i \log \Big\lvert \frac{\partial v_i}{\partial u_i} \Big\rvert .

A closure of several parameters at once has no such Jacobian: its prior is a factor beside the priors of the parameters.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import gpytorch
import torch
from gpytorch.constraints import GreaterThan, Interval
from torch import Tensor
from torch.distributions import AffineTransform, Distribution, LogNormal, TransformedDistribution


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


def is_exponential(embedding: gpytorch.Module, parameter: str) -> bool:
    """Whether θ = b + exp(u) for this parameter, so that log ∂θ/∂u is u itself."""
    constraint: Interval | None = embedding.constraint_for_parameter_name(parameter)
    return isinstance(constraint, GreaterThan) and constraint._transform is torch.exp


def user_name(parameter: str) -> str:
    """``kernel.lengthscale`` for ``kernel.raw_lengthscale``."""
    head, _, leaf = parameter.rpartition(".")
    return f"{head}.{leaf.removeprefix('raw_')}" if head else leaf.removeprefix("raw_")


def constrained(embedding: gpytorch.Module, parameter: str, raw: Tensor) -> Tensor:
    """The value that users see of a raw one."""
    constraint: Interval | None = embedding.constraint_for_parameter_name(parameter)
    return raw if constraint is None else constraint.transform(raw)


@dataclasses.dataclass
class PriorSite:
    """One prior, and the parameter it is a density of.

    Attributes:
        name: of the value v, as users write it: ``kernel.lengthscale``.
        parameter: the name of the raw parameter u that v is a function of; ``None`` for a factor.
        raw: u itself.
        prior: the density of v.
        module: whose closure it is.
        closure: v as a function of ``module``.
        setter: writes v into ``module``.
        is_default: whether the prior is ours, for a parameter that came without one.
        on_log_scale: whether v = b + exp(u), so that log ∂v/∂u is u itself.
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
        """Whether the prior only multiplies the density, beside the one that its parameters are drawn from."""
        return self.raw is None

    def value(self) -> Tensor:
        """v at the parameters as they are."""
        return self.closure(self.module)

    def slope(self) -> Tensor:
        """∂v/∂u, entry by entry."""
        assert self.raw is not None
        (slope,) = torch.autograd.grad(self.value().sum(), self.raw)
        return slope

    def set(self, value: Tensor) -> None:
        """Write v into the module; ``ValueError`` where no parameter has that value."""
        if self.setter is None:
            raise ValueError(f"The prior on {self.name} was registered without a setting_closure.")
        try:
            with torch.no_grad():
                self.setter(self.module, value)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        if self.raw is not None and not bool(torch.isfinite(self.raw).all()):
            raise ValueError(f"No parameter gives {self.name} the value {value.tolist()}.")

    def draw(self, count: int | None = None) -> Tensor:
        """A draw of v from its prior, or ``count`` of them, by the global generator."""
        shape = self.value().shape
        many = torch.Size(() if count is None else (count,))
        try:
            with torch.no_grad():
                base = torch.Size(self.prior.batch_shape) + torch.Size(self.prior.event_shape)
                lead = shape if base.numel() == 1 else shape[: len(shape) - len(base)]
                drawn: Tensor = self.prior.sample(many + lead).reshape(many + shape)
                return drawn
        except (NotImplementedError, AttributeError) as error:
            raise TypeError(
                f"Expected a prior on {self.name} that can be sampled, got {type(self.prior).__name__}, which has no "
                "sample(). Give starting points, initial={name: values}, or use a prior such as LogNormalPrior."
            ) from error

    def describe(self) -> str:
        """The prior in words."""
        return f"{describe(self.prior)}{' (default)' if self.is_default else ''}"


def log_density(sites: list[PriorSite]) -> Tensor:
    """log p(u): Σ log p(v) over all sites, and log |∂v/∂u| over those that are not factors."""
    if not sites:
        return torch.zeros(())
    values = [site.value() for site in sites]
    log_prior: Tensor = torch.stack(
        [site.prior.log_prob(value).sum() for site, value in zip(sites, values, strict=True)]
    ).sum()
    for site in sites:
        if site.raw is not None and site.on_log_scale:
            log_prior = log_prior + site.raw.sum()
    others = [
        (value.sum(), site.raw)
        for site, value in zip(sites, values, strict=True)
        if site.raw is not None and not site.on_log_scale
    ]
    if not others:
        return log_prior
    # One pass for all: each v is a function of its own u alone.
    totals, raws = zip(*others, strict=True)
    slopes = torch.autograd.grad(totals, raws, create_graph=True)
    return log_prior + torch.cat([slope.reshape(-1) for slope in slopes]).abs().log().sum()


def describe(prior: Distribution) -> str:
    """A prior with its numbers: ``GammaPrior(concentration=1, rate=1)``."""
    if isinstance(prior, TransformedDistribution) and not isinstance(prior, LogNormal | gpytorch.priors.Prior):
        shift = prior.transforms[-1]
        if isinstance(shift, AffineTransform):
            return f"{shift.loc:.3g} {'+' if shift.scale > 0 else '-'} {describe(prior.base_dist)}"
    names = list(getattr(prior, "arg_constraints", {})) or []
    if "probs" in names or "covariance_matrix" in names:
        return type(prior).__name__
    values = [(name, getattr(prior, name, None)) for name in names]
    inside = ", ".join(f"{name}={_number(value)}" for name, value in values if isinstance(value, Tensor))
    return f"{type(prior).__name__}({inside})"


def _number(value: Tensor) -> str:
    low, high = value.min().item(), value.max().item()
    return f"{low:.3g}" if math.isclose(low, high) else f"{low:.3g}…{high:.3g}"
