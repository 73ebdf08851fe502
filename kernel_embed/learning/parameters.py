"""The free parameters of an embedding as one vector, with bounds, snapshots, and parameters that are not identified."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import ScaleKernel
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import Distribution

from ..kernels.structure import COMPOSITES
from ..objectives import Objective

Vector = NDArray[np.float64]
Bounds = list[tuple[float | None, float | None]]

MOST_ROWS = 512  # beyond these, matrix operations take all the time, and the autograd path keeps fewer of them
LARGEST_EXPONENT = 300.0  # the exponential of a larger number is as good as infinite, and its square overflows
LINEAR_FROM = 20.0  # the value of u from which torch replaces softplus(u) by u


def is_small(x: Tensor) -> bool:
    """Whether ``x`` is float64 on the CPU, with so few rows that the Python interpreter takes most of the time."""
    return x.dtype is torch.float64 and x.device.type == "cpu" and x.dim() == 2 and 0 < len(x) <= MOST_ROWS


class ParameterVector:
    """A view of the learned parameters as a flat float64 vector in their raw, unconstrained form.

    ``slices`` has the entries of each parameter, ``lowest`` default lower bounds against degenerate points.
    """

    def __init__(self, module: gpytorch.Module, excluded: Iterable[str] = ()) -> None:
        excluded = set(excluded)
        self.module = module
        self.named = {n: p for n, p in module.named_parameters() if p.requires_grad and n not in excluded}
        ends = np.cumsum([0, *(p.numel() for p in self.named.values())]).tolist()
        self.slices = {name: slice(*pair) for name, pair in zip(self.named, itertools.pairwise(ends), strict=True)}
        self.lowest: Vector | None = None

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters themselves."""
        return list(self.named.values())

    def get(self) -> Vector:
        """The current values."""
        return flatten(parameter.detach() for parameter in self.parameters)

    def set(self, vector: Vector) -> None:
        """Write values back into the parameters."""
        for parameter, entries in zip(self.named.values(), self.slices.values(), strict=True):
            raw = parameter.detach()
            if raw.device.type == "cpu" and raw.is_contiguous():
                raw.numpy().reshape(-1)[:] = vector[entries]  # three times as fast as a copy by torch
            else:
                raw.copy_(torch.as_tensor(vector[entries], device="cpu").view_as(raw))

    def project(self) -> None:
        """Move every entry back inside its bounds, for optimizers without bounds."""
        with torch.no_grad():
            for name, parameter in self.named.items():
                constraint = self.module.constraint_for_parameter_name(name)
                if constraint is not None and not constraint.enforced:
                    parameter.copy_(parameter.clamp(constraint.lower_bound, constraint.upper_bound))
        if self.lowest is not None and bool(((point := self.get()) < self.lowest).any()):
            self.set(np.maximum(point, self.lowest))

    def gradient(self) -> Vector:
        """The accumulated gradients; zero where a parameter had none."""
        return flatten(p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters)

    def clear_gradient(self) -> None:
        """Clear the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def bounds(self) -> Bounds:
        """Bounds of each entry: default ones, and those of constraints that only the optimizer can enforce."""
        lowest = [-math.inf] * sum(p.numel() for p in self.parameters) if self.lowest is None else self.lowest.tolist()
        both = zip(self.constraint_bounds(), lowest, strict=True)
        return [(_finite(max(least, -math.inf if a is None else a)), b) for (a, b), least in both]

    def constraint_bounds(self) -> Bounds:
        """Bounds of each entry from constraints without a transform."""
        bounds: Bounds = []
        for name, parameter in self.named.items():
            constraint = self.module.constraint_for_parameter_name(name)
            if constraint is None or constraint.enforced:
                bounds += [(None, None)] * parameter.numel()
                continue
            lower = constraint.lower_bound.expand(parameter.shape).flatten().tolist()
            upper = constraint.upper_bound.expand(parameter.shape).flatten().tolist()
            bounds += [(_finite(a), _finite(b)) for a, b in zip(lower, upper, strict=True)]
        return bounds


class Coordinates:
    """θ(u) and ∂θ/∂u, entry by entry, by the constraints of the parameters."""

    def __init__(self, vector: ParameterVector) -> None:
        rules = [
            (vector.slices[name], _transform(vector.module.constraint_for_parameter_name(name), raw.shape))
            for name, raw in vector.named.items()
        ]
        same = len({id(rule) for _, rule in rules}) == 1
        self._rules = [(slice(None), rules[0][1])] if same else rules

    def __call__(self, u: Vector) -> tuple[Vector, Vector]:
        """θ and ∂θ/∂u."""
        if len(self._rules) == 1:
            return self._rules[0][1](u)
        parts = [rule(u[entries]) for entries, rule in self._rules]
        return np.concatenate([theta for theta, _ in parts]), np.concatenate([slope for _, slope in parts])


Transform = Callable[[Vector], tuple[Vector, Vector]]  # from u to θ and ∂θ/∂u


def _exponential(u: Vector) -> tuple[Vector, Vector]:
    theta = np.exp(np.minimum(u, LARGEST_EXPONENT))
    return theta, theta


def _softplus(u: Vector) -> tuple[Vector, Vector]:
    small = np.exp(np.minimum(u, LINEAR_FROM))
    return np.where(u > LINEAR_FROM, u, np.log1p(small)), small / (1.0 + small)


TRANSFORMS: dict[object, Transform] = {
    torch.exp: _exponential,
    torch.nn.functional.softplus: _softplus,
    torch.nn.Softplus: _softplus,
}
"""Transforms of GPyTorch's constraints with a closed form; autograd differentiates others."""


def _identity(u: Vector) -> tuple[Vector, Vector]:
    return u, np.ones_like(u)


def _transform(constraint: Interval | None, shape: torch.Size) -> Transform:
    """θ as a function of u under ``constraint``."""
    if constraint is None or not constraint.enforced:
        return _identity
    transform = constraint._transform
    rule = TRANSFORMS.get(transform if not isinstance(transform, torch.nn.Module) else type(transform))
    if isinstance(transform, torch.nn.Softplus) and (transform.beta, transform.threshold) != (1, LINEAR_FROM):
        rule = None

    def by_autograd(u: Vector) -> tuple[Vector, Vector]:
        with torch.enable_grad():
            raw = torch.from_numpy(u.copy()).reshape(shape).requires_grad_()
            theta = constraint.transform(raw)
            (slope,) = torch.autograd.grad(theta.sum(), raw)
        return theta.detach().reshape(-1).numpy(), slope.reshape(-1).numpy()

    if rule is None or not isinstance(constraint, GreaterThan) or constraint.lower_bound.numel() != 1:
        return by_autograd
    lower = float(constraint.lower_bound)

    def shifted(u: Vector) -> tuple[Vector, Vector]:
        theta, slope = rule(u)
        return lower + theta, slope

    return rule if lower == 0.0 else shifted


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """Parameters and buffers (the running statistics of batch normalization) at one moment."""

    point: Vector
    buffers: Mapping[str, Tensor]

    @classmethod
    def take(cls, vector: ParameterVector, point: Vector | None = None) -> Snapshot:
        """Copies of the buffers, and of the parameters or of ``point``."""
        buffers = {name: buffer.detach().clone() for name, buffer in vector.module.named_buffers()}
        return cls(vector.get() if point is None else point.copy(), buffers)

    def restore(self, vector: ParameterVector) -> None:
        """Put parameters and buffers back."""
        vector.set(self.point)
        with torch.no_grad():
            for name, buffer in vector.module.named_buffers():
                if name in self.buffers:
                    buffer.copy_(self.buffers[name])


def move_priors(module: gpytorch.Module, device: torch.device) -> None:
    """Move what ``module.to(device)`` leaves behind: tensors of priors that are not buffers, as in their bases."""
    for _, _, prior, _, _ in module.named_priors():
        part: Distribution | None = prior
        while part is not None:
            own = vars(part)
            own.update({name: value.to(device) for name, value in own.items() if isinstance(value, Tensor)})
            part = own.get("base_dist")


def flatten(tensors: Iterable[Tensor]) -> Vector:
    """All entries as one vector."""
    pieces = [tensor.reshape(-1).cpu().double() for tensor in tensors]
    return torch.cat(pieces).numpy() if pieces else np.empty(0)


def constrained(module: gpytorch.Module, parameter: str, raw: Tensor) -> Tensor:
    """The value θ of a raw parameter."""
    constraint: Interval | None = module.constraint_for_parameter_name(parameter)
    return raw if constraint is None else constraint.transform(raw)


def user_name(parameter: str) -> str:
    """``kernel.lengthscale`` for ``kernel.raw_lengthscale``."""
    head, dot, leaf = parameter.rpartition(".")
    return f"{head}{dot}{leaf.removeprefix('raw_')}"


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def is_in_network(embedding: gpytorch.Module, parameter: str) -> bool:
    """Whether a parameter is a weight of a module that is not GPyTorch's."""
    return not isinstance(embedding.get_submodule(parameter.rpartition(".")[0]), gpytorch.Module)


def unidentified(embedding: gpytorch.Module, objective: Objective[Any]) -> tuple[str, ...]:
    """The names of parameters that ``objective`` cannot identify, and which ``fit`` therefore holds fixed.

    The target kernel is never learned: with a long enough lengthscale all targets would be equal and any prediction
    perfect. Risks and the Rademacher complexity depend on λ and the outputscale σ_f² of a lone scaled kernel only
    through λ/σ_f²; a prior on the outputscale, or a fixed λ, identifies it.
    """
    fixed = [name for name, p in embedding.named_parameters() if name.startswith("target_kernel.") and p.requires_grad]
    kernel: Any = getattr(embedding, "kernel", None)
    ridge = getattr(embedding, "raw_regularization", None)
    if not objective.identifies_scale and ridge is not None and ridge.requires_grad:
        is_scaled = COMPOSITES.find(kernel) is ScaleKernel and "outputscale_prior" not in kernel._priors
        if is_scaled and kernel.raw_outputscale.requires_grad:
            fixed.append("kernel.raw_outputscale")
    return tuple(fixed)
