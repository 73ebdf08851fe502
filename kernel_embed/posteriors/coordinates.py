r"""The coordinates that are sampled: log θ for what is positive, whatever the module's own raw form.

GPyTorch writes positive parameters as θ = softplus(u), which is linear where θ is large: a prior over orders of
magnitude has a long right tail there, and trajectories that keep to the scale of its bulk are slow in it. In u = log θ
priors and posteriors of scales are nearly symmetric, and the same draws need far fewer gradients.
"""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import GreaterThan, Interval
from torch import Tensor


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
