"""The free parameters of an embedding as one vector, with their bounds, at a moment, and the priors as a loss."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.errors import NanError
from numpy.typing import NDArray
from torch import Tensor

from ..kernels.structure import COMPOSITES, Composite
from ..objectives import Objective
from ..objectives.base import B

Vector = NDArray[np.float64]
Bounds = list[tuple[float | None, float | None]]


class ParameterVector:
    """A view of parameters as a flat float64 vector in their raw, unconstrained form."""

    def __init__(self, module: gpytorch.Module, excluded: Iterable[str] = ()) -> None:
        excluded = set(excluded)
        self.module = module
        self.named = {
            name: parameter
            for name, parameter in module.named_parameters()
            if parameter.requires_grad and name not in excluded
        }

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters themselves."""
        return list(self.named.values())

    def get(self) -> Vector:
        """The values as they are."""
        return _flatten(parameter.detach() for parameter in self.parameters)

    def set(self, vector: Vector) -> None:
        """Write values back into the parameters."""
        start = 0
        with torch.no_grad():
            for parameter in self.parameters:
                piece = vector[start : start + parameter.numel()]
                parameter.copy_(torch.as_tensor(piece, device="cpu").view_as(parameter))
                start += parameter.numel()

    def project(self) -> None:
        """Move every entry back inside its bounds, for optimizers that know of none."""
        with torch.no_grad():
            for name, parameter in self.named.items():
                constraint = self.module.constraint_for_parameter_name(name)
                if constraint is not None and not constraint.enforced:
                    parameter.copy_(parameter.clamp(constraint.lower_bound, constraint.upper_bound))

    def gradient(self) -> Vector:
        """The accumulated gradients; zero where a parameter had none."""
        return _flatten(p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters)

    def clear_gradient(self) -> None:
        """Forget the gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def bounds(self) -> Bounds:
        """Bounds of each entry: those of constraints without a transform, which only the optimizer can enforce."""
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


def _flatten(tensors: Iterable[Tensor]) -> Vector:
    pieces = [tensor.reshape(-1).double().cpu() for tensor in tensors]
    return torch.cat(pieces).numpy() if pieces else np.empty(0)


def _finite(bound: float) -> float | None:
    return bound if math.isfinite(bound) else None


def unidentified(embedding: gpytorch.Module, objective: Objective[B]) -> tuple[str, ...]:
    """The names of parameters that ``objective`` cannot choose, and which ``fit`` therefore holds fixed.

    A target kernel is the ruler by which objectives measure the distance of targets. A score cannot choose its own
    ruler: with a long enough lengthscale all targets are equal and any prediction is perfect. So it is held, always.

    Risks and the Rademacher complexity depend on λ and the outputscale σ_f² of a lone scaled kernel only through
    λ/σ_f²: left free, the pair is a flat valley. A prior on the outputscale, or a λ that is itself held fixed, lifts
    this.
    """
    rulers = [name for name, p in embedding.named_parameters() if name.startswith("target_kernel.") and p.requires_grad]
    return (*rulers, *_unidentified_scale(embedding, objective))


def _unidentified_scale(embedding: gpytorch.Module, objective: Objective[B]) -> tuple[str, ...]:
    kernel: Kernel = getattr(embedding, "kernel", None)
    is_scaled = COMPOSITES.find(kernel) is Composite.SCALE
    if objective.identifies_scale or not is_scaled or not hasattr(embedding, "regularization"):
        return ()
    if not embedding.raw_regularization.requires_grad:
        return ()
    if "outputscale_prior" in kernel._priors:
        return ()
    return ("kernel.raw_outputscale",) if kernel.raw_outputscale.requires_grad else ()


def prior_loss(module: gpytorch.Module) -> Tensor | None:
    """−Σ log p(θ) over all registered priors, or ``None`` when there is none.

    Raises ``NanError`` outside the support of a prior, which a line search meets where a positive θ underflows to 0.
    """
    total = None
    for name, owner, prior, closure, _ in module.named_priors():
        value = closure(owner)
        try:
            loss = -prior.log_prob(value).sum()
        except ValueError as error:  # by which distributions tell of values outside their support
            raise NanError(
                f"Expected values in the support of {name}, {type(prior).__name__}, got "
                f"{float(value.detach().min()):.3g} to {float(value.detach().max()):.3g}. Set the parameter inside it, "
                "or give a prior that holds it."
            ) from error
        total = loss if total is None else total + loss
    return total
