"""Which potentials have a closed form, and the one object that evaluates it."""

from __future__ import annotations

import math
import warnings
from typing import Protocol

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel

from ...embeddings import BayesianMeanEmbedding, ConditionalEmbedding, MulticlassEmbedding
from ...learning.parameters import ParameterVector, Vector
from ...objectives import ConditionalEvidence, EmbeddingEvidence
from ..site import Site
from .labels import Evaluate, closed_labels
from .priors import ClosedPriors
from .sample import closed_sample

LARGEST = 300.0
"""Of a logarithm: the square of its exponential is still a number."""

AGREEMENT = 1e-7
"""Of the closed form with the general road at the first point, relative to the size of U; else it is not used."""


class General(Protocol):
    """What is read of a potential that may have a closed form."""

    x: torch.Tensor
    y: torch.Tensor | None
    vector: ParameterVector
    sites: list[Site]
    multiplier: float

    @property
    def embedding(self) -> gpytorch.Module:
        """Whose parameters u are."""

    @property
    def objective(self) -> object:
        """q."""

    def general(self, u: Vector) -> tuple[float, Vector]:
        """U(u) and ∂U/∂u, by the embedding and its objective."""


class ClosedForm:
    """U(u) and ∂U/∂u without a graph.

    Args:
        evaluate: q and ∂q/∂log θ.
        priors: of u.
        roles: the role of every parameter, in the order of u.
        held: values of roles that are not sampled.
        multiplier: c, the factor of q.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        priors: ClosedPriors,
        roles: dict[str, slice],
        held: dict[str, Vector],
        multiplier: float,
    ) -> None:
        self.evaluate, self.priors, self.roles, self.held, self.multiplier = evaluate, priors, roles, held, multiplier
        self.nothing = np.zeros(0)

    def __call__(self, u: Vector, with_gradient: bool = True) -> tuple[float, Vector] | None:
        """U and its gradient; ``None`` where the general road must decide."""
        # Beyond it e^u or its square overflows; NaN compares as False.
        if not np.abs(u).max() < LARGEST:
            return None
        theta = np.exp(u)
        values = {**self.held, **{role: theta[place] for role, place in self.roles.items()}}
        try:
            answer = self.evaluate(values, with_gradient)
        except (ZeroDivisionError, OverflowError):  # ℓ^D beyond what a double holds
            return None
        if answer is None:
            return None
        value = self.multiplier * answer[0] - self.priors.value(u, theta)
        if not with_gradient:
            return (value, self.nothing) if math.isfinite(value) else None
        slopes = -self.priors.slope(u, theta)
        for role, place in self.roles.items():
            slopes[place] += self.multiplier * answer[1][role]
        return (value, slopes) if math.isfinite(value + float(slopes.sum())) else None


def closed_form(potential: General) -> ClosedForm | None:
    """The closed form of ``potential`` where every piece of it has one, and it agrees with the general road."""
    if potential.x.dtype is not torch.float64 or potential.x.device.type != "cpu" or potential.x.dim() != 2:
        return None
    priors = ClosedPriors.of(potential.sites, potential.vector)
    places = _places(potential)
    pieces = None if priors is None or places is None else _pieces(potential, set(places))
    if priors is None or places is None or pieces is None:
        return None
    evaluate, held = pieces
    found = ClosedForm(evaluate, priors, places, held, potential.multiplier)
    u = potential.vector.get()
    closed, general = found(u), potential.general(u)
    if closed is None or not math.isfinite(general[0]):
        return found
    if abs(closed[0] - general[0]) <= AGREEMENT * (1.0 + abs(general[0])):
        return found
    # Not a NumericalWarning, which samplers keep quiet: this one is said once, before the first step.
    warnings.warn(
        f"The closed form of the posterior gives U = {closed[0]:.12g} where it starts and the general formulas "
        f"{general[0]:.12g}, so that the general ones are used, which are slower. K + nλI is close to singular there: "
        "a larger regularization or noise, shorter lengthscales or rows without duplicates keep its digits.",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


ROLES = {"raw_lengthscale": "lengthscale", "raw_outputscale": "outputscale", "raw_noise": "noise"}
ROLES |= {"raw_regularization": "regularization"}


def _places(potential: General) -> dict[str, slice] | None:
    """Where in u each role stands; ``None`` for parameters without a role, or two of one."""
    places: dict[str, slice] = {}
    start = 0
    for name, raw in potential.vector.named.items():
        role = ROLES.get(name.rpartition(".")[2])
        if role is None or role in places:
            return None
        places[role] = slice(start, start + raw.numel())
        start += raw.numel()
    return places


def _pieces(potential: General, sampled: set[str]) -> tuple[Evaluate, dict[str, Vector]] | None:
    """q, and the values of what is not sampled."""
    embedding, objective = potential.embedding, potential.objective
    kernel, scale = embedding.kernel, None
    if type(kernel) is ScaleKernel and kernel.active_dims is None:
        kernel, scale = kernel.base_kernel, kernel.outputscale
    if not _is_simple(kernel) or (scale is not None and scale.numel() != 1):
        return None
    held = {} if "lengthscale" in sampled else {"lengthscale": _array(kernel.lengthscale)}
    if type(objective) is ConditionalEvidence and type(embedding) in (ConditionalEmbedding, MulticlassEmbedding):
        if scale is not None and "outputscale" not in sampled:
            held["outputscale"] = _array(scale)
        if "regularization" not in sampled:
            held["regularization"] = _array(embedding.regularization)
        _, y, _ = embedding.checked(potential.x, potential.y, None)
        Y = embedding.targets(y, potential.x)
        labels = None if "noise" in sampled else closed_labels(kernel, potential.x, Y)
        return None if labels is None else (labels, held)
    if type(objective) is not EmbeddingEvidence or type(embedding) is not BayesianMeanEmbedding:
        return None
    simple = type(kernel) is RBFKernel and kernel.lengthscale.numel() == 1 and scale is None
    if not simple or objective.num_locations is not None or embedding.noise_kind is not None:
        return None
    sample = closed_sample(potential.x, float(embedding.noise.detach()))
    return None if sample is None or not sampled <= {"lengthscale", "noise"} else (sample, held)


def _is_simple(kernel: Kernel) -> bool:
    """Whether it is a squared exponential or Matérn kernel on all columns, without a batch."""
    known = type(kernel) in (RBFKernel, MaternKernel)
    return known and kernel.active_dims is None and len(kernel.batch_shape) == 0


def _array(value: torch.Tensor) -> Vector:
    array: Vector = value.detach().double().reshape(-1).numpy().copy()
    return array
