"""Positive parameters (λ, σ², η), frozen copies of kernels, and parts of kernels that are initialized from data.

GPyTorch's ``RFFKernel`` without ``num_dims`` draws its frequencies at its first evaluation. Here that is a separate
step, :func:`kernel_embed.kernels.initialize_from_data`, so that no evaluation changes a kernel.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterator
from typing import TypeVar

import gpytorch
import torch
from gpytorch.constraints import Interval, Positive
from gpytorch.kernels import InducingPointKernel, Kernel, RFFKernel
from gpytorch.priors import LogNormalPrior, Prior
from torch import Tensor

from ..runtime import cpu_by_default
from ..validation import broadcast_shapes, check_dense, check_features, check_number
from .classes import FeatureKernel, evaluation_mode
from .structure import Registry, batch_shape_of, check_columns, check_kernel, nodes_of


@cpu_by_default()
def log_scaled() -> Positive:
    """A positive constraint with the exponential transform, for parameters that vary over orders of magnitude."""
    return Positive(transform=torch.exp, inv_transform=torch.log)


def log_normal_prior(mode: Tensor | float, spread: float) -> LogNormalPrior:
    """LogNormal(μ, σ) with μ = log mode + σ²: its density, and so a MAP fit without data, is highest at ``mode``."""
    if not isinstance(mode, Tensor):
        mode = torch.tensor(mode, dtype=torch.float64, device="cpu")
    location = mode.log() + spread**2
    return LogNormalPrior(location, torch.full_like(location, spread))


class NamedParameter:
    """Gets and sets the attribute ``name`` of a module, for a prior; a lambda could not be pickled."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self, module: gpytorch.Module) -> Tensor:
        """The attribute of ``module``."""
        value: Tensor = getattr(module, self.name)
        return value

    def set(self, module: gpytorch.Module, value: Tensor) -> None:
        """Set the attribute of ``module`` to ``value``."""
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
    """Register ``raw_<name>`` in the shape, dtype and device of ``like``, on a logarithmic scale by default."""
    if isinstance(like, Kernel):
        own = next(like.parameters(), None)
        shape = batch_shape_of(like)
        like = torch.zeros(shape, device=torch.get_default_device()) if own is None else own.new_zeros(shape)
    zero = torch.zeros_like(like, requires_grad=False)
    module.register_parameter(f"raw_{name}", torch.nn.Parameter(zero, requires_grad=learn))
    module.register_constraint(f"raw_{name}", constraint or log_scaled().to(zero.device))
    if prior is not None:
        parameter = NamedParameter(name)
        module.register_prior(f"{name}_prior", prior, parameter.get, parameter.set)


def positive(module: gpytorch.Module, name: str) -> Tensor:
    """The value of ``raw_<name>`` under its constraint."""
    value: Tensor = getattr(module, f"raw_{name}_constraint").transform(getattr(module, f"raw_{name}"))
    return value


def set_positive(module: gpytorch.Module, name: str, value: float | Tensor) -> None:
    """Set ``raw_<name>`` from a positive value."""
    raw = getattr(module, f"raw_{name}")
    if not isinstance(value, Tensor):
        check_number(name, value)
    value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
    if not bool((torch.isfinite(value) & (value > 0)).all()):
        raise ValueError(f"Expected a positive, finite {name}, got {value.tolist()}. Give 1.0, say.")
    # Draws of a posterior have an additional dimension.
    value = value.expand(broadcast_shapes(value.shape, raw.shape))
    module.initialize(**{f"raw_{name}": getattr(module, f"raw_{name}_constraint").inverse_transform(value)})


class PositiveParameter:
    """A descriptor for a positive parameter registered under the attribute's name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, module: gpytorch.Module | None, owner: type) -> Tensor:
        return self if module is None else positive(module, self.name)  # type: ignore[return-value]

    def __set__(self, module: gpytorch.Module, value: float | Tensor) -> None:
        set_positive(module, self.name, value)


M = TypeVar("M", bound=gpytorch.Module)


def frozen(module: M) -> M:
    """A copy of a kernel or an embedding without gradients: its parameters, buffers and modes as they are now.

    Works for every GPyTorch kernel, also for one that keeps tensors of an earlier evaluation, which PyTorch does not
    copy with their history, and for one whose parameters are not leaves, as inside ``torch.func.functional_call``.
    """
    memo: dict[int, object] = {}
    for part in module.modules():
        # An added loss term belongs to the likelihood of a model in training, not to the kernel.
        for term in getattr(part, "_added_loss_terms", {}).values():
            memo[id(term)] = None
        for tensor in _tensors(vars(part)):
            if not tensor.is_leaf:
                value, is_parameter = tensor.detach().clone(), isinstance(tensor, torch.nn.Parameter)
                memo[id(tensor)] = torch.nn.Parameter(value, requires_grad=False) if is_parameter else value
    # GPyTorch's own copy of this class shares the likelihood, so that freezing the copy would freeze the original:
    # they are copied as plain objects, without cached tensors.
    for part in reversed([part for part in module.modules() if isinstance(part, InducingPointKernel)]):
        memo[id(part)] = bare = object.__new__(type(part))
        state = {name: value for name, value in vars(part).items() if not name.startswith("_cached_kernel")}
        bare.__dict__.update(copy.deepcopy(state, memo))
    copied: M = copy.deepcopy(module, memo).requires_grad_(False)
    return copied


def _tensors(value: object) -> Iterator[Tensor]:
    """Every tensor in containers; modules inside are visited on their own."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inside in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inside)


def has_lengthscale(kernel: Kernel) -> bool:
    """Whether ``kernel`` has a lengthscale, in any of its parts."""
    return any(isinstance(part, Kernel) and part.has_lengthscale for part in kernel.modules())


@dataclasses.dataclass(frozen=True)
class Initialization:
    """How kernels of a class are initialized from data.

    Args:
        is_complete: whether a kernel can be evaluated as it is.
        complete: initializes a kernel in place from the points ``(n, d)`` that reach its ``forward``.
        otherwise: other ways to initialize it, for error messages.

    Example:
        >>> Initialization(lambda k: hasattr(k, "center"), lambda k, x: setattr(k, "center", x.mean(0))).otherwise
        ''
    """

    is_complete: Callable[[Kernel], bool]
    complete: Callable[[Kernel, Tensor], None]
    otherwise: str = ""


def _complete_base(kernel: Kernel, x: Tensor) -> None:
    """Complete κ on φ(x), with φ in evaluation mode, so that batch normalization keeps its running statistics."""
    with evaluation_mode(kernel.feature_map):
        z = kernel.features(x)
    initialize_from_data(kernel.base_kernel, z)


INITIALIZATIONS: Registry[Initialization] = Registry("initialization")
INITIALIZATIONS.register(
    RFFKernel,
    Initialization(
        is_complete=lambda kernel: hasattr(kernel, "randn_weights"),
        complete=lambda kernel, x: kernel._init_weights(x.shape[-1], kernel.num_samples),
        otherwise="give num_dims",
    ),
)
INITIALIZATIONS.register(
    FeatureKernel,
    Initialization(lambda kernel: kernel.base_kernel is None or is_initialized(kernel.base_kernel), _complete_base),
)


def initialize_from_data(kernel: Kernel, x: Tensor) -> Kernel:
    """Initialize every part of ``kernel`` that depends on data ``x`` (``(n, d)``); returns ``kernel``.

    Initialized parts stay unchanged, so that a second call has no effect.

    Args:
        kernel: any GPyTorch kernel; it is changed in place.
        x: the data.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if ``x`` is empty, not finite, or has other columns than the kernel takes.

    Example:
        >>> from gpytorch.kernels import RFFKernel, ScaleKernel
        >>> kernel = ScaleKernel(RFFKernel(num_samples=5))
        >>> initialize_from_data(kernel, torch.rand(10, 3)).base_kernel.randn_weights.shape
        torch.Size([3, 5])
    """
    check_kernel(kernel)
    if is_initialized(kernel):
        return kernel
    x = check_features(x)
    check_columns(kernel, x.shape[-1])
    with torch.no_grad():
        for node in nodes_of(kernel):
            part, rule = node.kernel, INITIALIZATIONS.find(node.kernel)
            if rule is not None and not rule.is_complete(part):
                rule.complete(part, node.select(x))
            for child in part.children() if node.composite is None else ():  # the kernels that a leaf holds
                if isinstance(child, Kernel):
                    initialize_from_data(child, node.select(x))
    return kernel


def initialize_parts(module: torch.nn.Module, x: Tensor, y: Tensor | None = None) -> None:
    """:func:`initialize_from_data` for the ``kernel`` of an embedding at ``x``, and its ``target_kernel`` at ``y``."""
    kernel, target_kernel = getattr(module, "kernel", None), getattr(module, "target_kernel", None)
    if isinstance(kernel, Kernel):
        initialize_from_data(kernel, x)
    if isinstance(target_kernel, Kernel) and isinstance(y, Tensor) and y.dim() > 0 and y.numel() > 0:
        check_dense(y, "y")
        initialize_from_data(target_kernel, y.to(x).reshape(y.shape[0], -1))


def is_initialized(kernel: Kernel) -> bool:
    """Whether every part of ``kernel`` can be evaluated as it is."""
    return not _incomplete(kernel)


def check_initialized(kernel: Kernel) -> None:
    """Raise if a part of ``kernel`` is not initialized from data."""
    if incomplete := _incomplete(kernel):
        part, rule = incomplete[-1]  # the innermost, which causes the error
        other = f", or {rule.otherwise}" if rule.otherwise else ""
        raise ValueError(
            f"{type(part).__name__} must be initialized from data before its first use. Call "
            f"kernel_embed.kernels.initialize_from_data(kernel, x) first{other}; fit does this itself for tensors."
        )


def _incomplete(kernel: Kernel) -> list[tuple[Kernel, Initialization]]:
    rules = ((module, INITIALIZATIONS.find(module)) for module in kernel.modules())
    return [(module, rule) for module, rule in rules if rule is not None and not rule.is_complete(module)]
