"""Positive parameters: λ, σ², η. Registered, read and set in one way."""

from __future__ import annotations

from typing import overload

import gpytorch
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..validation import broadcast_shapes, check_number
from .structure import batch_shape_of


def log_scaled() -> Positive:
    """A positive constraint by the exponential, which moves over orders of magnitude with equal effort."""
    return Positive(transform=torch.exp, inv_transform=torch.log)


class NamedParameter:
    """Gets and sets the attribute ``name`` of a module, for a prior; a lambda would keep the module from pickling."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, module: gpytorch.Module) -> Tensor:
        """The value."""
        value: Tensor = getattr(module, self.name)
        return value

    def set(self, module: gpytorch.Module, value: Tensor) -> None:
        """Set the value."""
        setattr(module, self.name, value)


def register_positive(
    module: gpytorch.Module,
    name: str,
    like: Kernel | Tensor,
    prior: Prior | None,
    constraint: Interval | None = None,
    *,
    learn: bool = True,
) -> None:
    """Register ``raw_<name>``, learned on a logarithmic scale by default, with a prior.

    Its shape, dtype and device are those of the tensor ``like``, or the batch shape of the kernel ``like`` with the
    dtype and device of its parameters.
    """
    if isinstance(like, Kernel):
        own = next(like.parameters(), None)
        shape = batch_shape_of(like)
        like = torch.zeros(shape, device=torch.get_default_device()) if own is None else own.new_zeros(shape)
    zero = torch.zeros_like(like, requires_grad=False)
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
    if not isinstance(value, Tensor):
        check_number(name, value)
    value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
    if not bool((torch.isfinite(value) & (value > 0)).all()):
        raise ValueError(f"Expected a positive, finite {name}, got {value.tolist()}. Give another start.")
    # Draws of a posterior come with one more dimension.
    value = value.expand(broadcast_shapes(value.shape, raw.shape))
    module.initialize(**{f"raw_{name}": getattr(module, f"raw_{name}_constraint").inverse_transform(value)})


class PositiveParameter:
    """An attribute of a module that is the positive parameter registered under its name.

    Example:
        >>> class Ridge(gpytorch.Module):
        ...     size = PositiveParameter()
        ...     def __init__(self):
        ...         super().__init__()
        ...         register_positive(self, "size", torch.zeros(()), prior=None)
        >>> ridge = Ridge()
        >>> ridge.size = 2.0
        >>> round(ridge.size.item(), 6), round(ridge.raw_size.item(), 6)
        (2.0, 0.693147)
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, module: None, owner: type) -> PositiveParameter: ...

    @overload
    def __get__(self, module: gpytorch.Module, owner: type) -> Tensor: ...

    def __get__(self, module: gpytorch.Module | None, owner: type) -> Tensor | PositiveParameter:
        return self if module is None else positive(module, self.name)

    def __set__(self, module: gpytorch.Module, value: float | Tensor) -> None:
        set_positive(module, self.name, value)
