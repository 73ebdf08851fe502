"""One positive number beside the kernel's own: λ, or σ². Registered, read and set in one way."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from .default import log_scaled


class NamedParameter:
    """Gets and sets the attribute ``name`` of a module, for a prior; a lambda would keep the module from pickling."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, module: gpytorch.Module) -> Tensor:
        value: Tensor = getattr(module, self.name)
        return value

    def set(self, module: gpytorch.Module, value: Tensor) -> None:
        setattr(module, self.name, value)


def register_positive(
    module: gpytorch.Module,
    name: str,
    kernel: Kernel,
    prior: Prior | None,
    constraint: Interval | None,
    *,
    learn: bool = True,
) -> None:
    """Register ``raw_<name>`` of the kernel's batch shape, learned on a logarithmic scale by default, with a prior."""
    like = next(kernel.parameters(), None)
    zero = torch.zeros(kernel.batch_shape) if like is None else like.new_zeros(kernel.batch_shape)
    module.register_parameter(f"raw_{name}", torch.nn.Parameter(zero, requires_grad=learn))
    module.register_constraint(f"raw_{name}", constraint or log_scaled())
    if prior is not None:
        parameter = NamedParameter(name)
        module.register_prior(f"{name}_prior", prior, parameter.get, parameter.set)


def positive(module: gpytorch.Module, name: str) -> Tensor:
    """The value of ``raw_<name>`` under its constraint."""
    value: Tensor = getattr(module, f"raw_{name}_constraint").transform(getattr(module, f"raw_{name}"))
    return value


def set_positive(module: gpytorch.Module, name: str, value: float | Tensor) -> None:
    """Set ``raw_<name>`` so that it has this value."""
    raw = getattr(module, f"raw_{name}")
    value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
    if not bool((torch.isfinite(value) & (value > 0)).all()):
        raise ValueError(f"Expected a positive, finite {name}, got {value.tolist()}.")
    # Draws of a posterior come with one more dimension.
    value = value.expand(torch.broadcast_shapes(value.shape, raw.shape))
    module.initialize(**{f"raw_{name}": getattr(module, f"raw_{name}_constraint").inverse_transform(value)})
