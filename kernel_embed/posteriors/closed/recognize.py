"""Which potentials have a closed form, and the one object that evaluates it."""

from __future__ import annotations

import math
import warnings
from functools import partial
from typing import Protocol

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from typing_extensions import Never

from ...embeddings import BayesianMeanEmbedding, ConditionalEmbedding, MulticlassEmbedding
from ...learning.closed import ClosedObjective, LogPriors, Parameters, closed_objective, radial_gram_of
from ...learning.closed.loss import LARGEST, kernel_lengthscale, unscaled
from ...learning.parameters import ParameterVector, Vector
from ...objectives import EmbeddingEvidence, Objective
from ..site import PriorSite
from .priors import closed_priors
from .sample import Evaluate, closed_sample

AGREEMENT = 1e-7
"""Of the closed form with the general road at the first point, relative to the size of U; else it is not used."""


class General(Protocol):
    """What is read of a potential that may have a closed form."""

    x: torch.Tensor
    y: torch.Tensor | None
    vector: ParameterVector
    sites: list[PriorSite]
    multiplier: float

    @property
    def embedding(self) -> gpytorch.Module:
        """Whose parameters u are."""

    @property
    def objective(self) -> Objective[Never]:
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
        priors: LogPriors,
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
    priors = closed_priors(potential.sites, potential.vector)
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
    if type(objective) is EmbeddingEvidence and type(embedding) is BayesianMeanEmbedding:
        return _sample(embedding, objective, potential.x, sampled)
    if type(embedding) not in (ConditionalEmbedding, MulticlassEmbedding) or "noise" in sampled:
        return None
    kernel, scale = unscaled(embedding.kernel)
    gram = radial_gram_of(kernel, potential.x)
    if gram is None or (scale is not None and scale.numel() != 1):
        return None
    _, y, _ = embedding.checked(potential.x, potential.y, None)
    found = closed_objective(objective, embedding, gram, embedding.targets(y, potential.x))
    values = {"lengthscale": kernel_lengthscale(kernel), "regularization": embedding.regularization}
    values |= {} if scale is None else {"outputscale": scale}
    held = {role: _array(value) for role, value in values.items() if role not in sampled}
    return None if found is None else (partial(_total, found), held)


def _total(objective: ClosedObjective, theta: Parameters, with_gradient: bool) -> tuple[float, Parameters] | None:
    """The sum of the terms, and its gradient."""
    answer = objective(theta, with_gradient)
    return None if answer is None else (sum(answer[0]), answer[1])


def _sample(
    embedding: BayesianMeanEmbedding, objective: EmbeddingEvidence, x: torch.Tensor, sampled: set[str]
) -> tuple[Evaluate, dict[str, Vector]] | None:
    """The same for the evidence of a sample."""
    kernel = embedding.kernel
    if type(kernel) is not RBFKernel or kernel.active_dims is not None or len(kernel.batch_shape) > 0:
        return None
    lengthscale = _array(kernel.lengthscale)
    if len(lengthscale) > 1 or objective.num_locations is not None or embedding.noise_kind is not None:
        return None
    sample = closed_sample(x, float(embedding.noise.detach()))
    held = {} if "lengthscale" in sampled else {"lengthscale": lengthscale}
    return None if sample is None or not sampled <= {"lengthscale", "noise"} else (sample, held)


def _array(value: torch.Tensor) -> Vector:
    array: Vector = value.detach().double().reshape(-1).numpy().copy()
    return array
