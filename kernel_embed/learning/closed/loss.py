r"""The loss of ``fit`` in closed form: from the raw vector u to its value, its terms and its gradient.

.. math::  \theta = \theta_0 + e^u \;\text{or}\; \theta_0 + \operatorname{softplus}(u), \qquad
           \frac{\partial q}{\partial u} = \frac{\partial q}{\partial \log \theta} \, \frac1\theta \,
           \frac{\partial \theta}{\partial u} .
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import Kernel, ScaleKernel
from torch import Tensor

from ...embeddings import ConditionalEmbedding, MulticlassEmbedding
from ...objectives import Objective
from ..parameters import ParameterVector, Vector
from .gram import radial_gram_of
from .objective import ClosedObjective, Parameters, closed_objective
from .priors import LogPriors

MOST_ROWS = 512
"""Beyond them the matrices take all the time, and the general road keeps fewer of them."""
LARGEST = 300.0
"""Of a logarithm: the square of its exponential is still a number."""
AGREEMENT = 1e-9
"""Of the closed form with the general road where both are first asked, relative to the size of the loss."""
LINEAR_FROM = 20.0
"""Where torch takes softplus(u) for u."""

ROLES = {"raw_lengthscale": "lengthscale", "raw_outputscale": "outputscale", "raw_regularization": "regularization"}


class Place(NamedTuple):
    """Where in u a role stands, and how θ follows from it."""

    role: str
    entries: slice
    lower: float
    exponential: bool

    def theta(self, u: Vector) -> tuple[Vector, Vector]:
        """θ and ∂θ/∂u."""
        u = u[self.entries]
        if self.exponential:
            slope = np.exp(u)
            return self.lower + slope, slope
        small = np.exp(np.minimum(u, LINEAR_FROM))
        return self.lower + np.where(u > LINEAR_FROM, u, np.log1p(small)), small / (1.0 + small)


class Known(NamedTuple):
    """A value, its terms and its gradient in u."""

    value: float
    terms: list[float]
    gradient: Vector


class ClosedLoss:
    """The objective with priors as a function of u, once the general road has agreed.

    Args:
        find: the pieces; called once, after the first evaluation has shown that the data are right.
    """

    def __init__(self, find: Callable[[], Pieces | None]) -> None:
        self._find = find
        self._pieces: Pieces | None = None
        self._num_judged = 0

    def __call__(self, u: Vector) -> Known | None:
        """The loss at u; ``None`` where the general road must decide, as it does until :meth:`judge` has agreed."""
        return None if self._pieces is None else self._pieces(u)

    def judge(self, u: Vector, value: float) -> None:
        """Compare with the ``value`` of the general road, at the second point: many a search has only one."""
        self._num_judged += 1
        if self._num_judged != 2:
            return
        pieces = self._find()
        found = None if pieces is None else pieces(u)
        if found is not None and abs(found.value - value) <= AGREEMENT * (1.0 + abs(value)):
            self._pieces = pieces


class Pieces(NamedTuple):
    """The objective, the parameters and the priors of one loss."""

    objective: ClosedObjective
    places: list[Place]
    held: Parameters
    priors: LogPriors | None
    share: float
    """Of the priors in the loss."""

    def __call__(self, u: Vector) -> Known | None:
        """The loss at u; ``None`` where a number is out of the ordinary."""
        if not np.abs(u).max() < LARGEST:  # NaN compares as False
            return None
        found = {place.role: place.theta(u) for place in self.places}
        try:
            answer = self.objective({**self.held, **{role: theta for role, (theta, _) in found.items()}})
        except (ZeroDivisionError, OverflowError, FloatingPointError):
            return None
        if answer is None:
            return None
        values, slopes = answer
        theta = np.concatenate([one for one, _ in found.values()])
        gradient = np.concatenate([slopes[place.role] for place in self.places])
        if self.priors is not None:
            logarithms = np.log(theta)
            values = [*values, -self.share * self.priors.value(logarithms, theta)]
            gradient -= self.share * self.priors.slope(logarithms, theta)
        gradient *= np.concatenate([slope for _, slope in found.values()]) / theta
        value = sum(values)
        return Known(value, values, gradient) if math.isfinite(value + float(gradient.sum())) else None


def closed_loss(
    embedding: gpytorch.Module,
    objective: Objective[Any],
    x: Tensor,
    y: Tensor | None,
    vector: ParameterVector,
    num_data: float,
) -> Pieces | None:
    """The closed form of the loss of ``fit`` on all rows; ``None`` where a piece of it has none."""
    if type(embedding) not in (ConditionalEmbedding, MulticlassEmbedding) or y is None:
        return None
    if x.dtype is not torch.float64 or x.device.type != "cpu" or x.dim() != 2 or len(x) > MOST_ROWS:
        return None
    kernel, scale = unscaled(embedding.kernel)
    if scale is not None and scale.numel() != 1:
        return None
    places = _places(vector)
    gram = None if places is None else radial_gram_of(kernel, x)
    if places is None or gram is None:
        return None
    priors = _priors(vector, places)
    if priors is None:
        return None
    _, y, _ = embedding.checked(x, y, None)
    found = closed_objective(objective, embedding, gram, embedding.targets(y, x))
    learned = {place.role for place in places}
    held = {"lengthscale": kernel_lengthscale(kernel), "regularization": embedding.regularization}
    held |= {} if scale is None else {"outputscale": scale}
    values = {role: _array(value) for role, value in held.items() if role not in learned}
    share = 1.0 / num_data if objective.per_datum else 1.0
    return None if found is None else Pieces(found, places, values, priors[0], share)


def unscaled(kernel: Kernel) -> tuple[Kernel, Tensor | None]:
    """The kernel inside a ``ScaleKernel``, and its outputscale; the kernel itself where it has none."""
    if type(kernel) is ScaleKernel and kernel.active_dims is None:
        return kernel.base_kernel, kernel.outputscale
    return kernel, None


def kernel_lengthscale(kernel: Kernel) -> Tensor:
    """ℓ, one for each that is learned: of columns, where numbers share theirs."""
    lengthscale: Tensor = getattr(kernel, "column_lengthscale", kernel.lengthscale)
    return lengthscale


def _places(vector: ParameterVector) -> list[Place] | None:
    """Where in u each role stands; ``None`` for parameters without a role, two of one, or another transform."""
    places: list[Place] = []
    start = 0
    for name, raw in vector.named.items():
        role = ROLES.get(name.rpartition(".")[2])
        constraint = vector.module.constraint_for_parameter_name(name)
        if role is None or any(role == place.role for place in places) or not isinstance(constraint, GreaterThan):
            return None
        transform, entries = constraint._transform, slice(start, start + raw.numel())
        softplus = isinstance(transform, torch.nn.Softplus) and (transform.beta, transform.threshold) == (
            1,
            LINEAR_FROM,
        )
        if constraint.lower_bound.numel() != 1 or not (softplus or transform is torch.exp):
            return None
        places.append(Place(role, entries, float(constraint.lower_bound), not softplus))
        start += raw.numel()
    return places


def _priors(vector: ParameterVector, places: list[Place]) -> tuple[LogPriors | None] | None:
    """log p(θ) for all entries, in a tuple, with ``None`` where there are no priors; ``None`` where one is unknown."""
    found: dict[str, LogPriors] = {}
    registered = list(vector.module.named_priors())
    for _, owner, prior, closure, _ in registered:
        name = _parameter_of(vector, owner, closure)
        part = None if name is None else LogPriors.of(prior, vector.named[name])
        if name is None or part is None or name in found:
            return None
        found[name] = part.without_jacobian()
    if not registered:
        return (None,)
    return (LogPriors.joined([found.get(name, LogPriors.none(raw.numel())) for name, raw in vector.named.items()]),)


@torch.no_grad()
def _parameter_of(vector: ParameterVector, owner: Any, closure: Callable[[Any], Tensor]) -> str | None:
    """The parameter whose θ the ``closure`` of a prior returns, seen at two points; ``None`` where it is another."""
    for name, raw in vector.named.items():
        constraint, before = vector.module.constraint_for_parameter_name(name), raw.clone()
        try:
            same = []
            for step in (0.0, 0.37):
                raw.copy_(before + step)
                theta, value = constraint.transform(raw), closure(owner)
                same.append(value.shape == theta.shape and torch.equal(value, theta))
        finally:
            raw.copy_(before)
        if all(same):
            return str(name)
    return None


def _array(value: Tensor) -> Vector:
    array: Vector = value.detach().double().reshape(-1).numpy().copy()
    return array
