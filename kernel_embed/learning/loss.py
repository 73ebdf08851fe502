"""What ``fit`` minimizes: the objective with the registered priors, through autograd or directly."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..linalg import single_precision
from ..objectives import Objective
from ..objectives.base import B, B_co, Embedding, attach
from .direct import Direct, direct_objective
from .parameters import Coordinates, ParameterVector, Vector
from .priors import LogPriors, parameter_priors, prior_loss

T = TypeVar("T")
Terms = dict[str, float]


@runtime_checkable
class ProcessGroup(Protocol[B_co]):
    """An embedding that several processes learn together, each with its share of the rows."""

    module: gpytorch.Module
    """The embedding itself, whose parameters are learned."""

    leads: bool
    """True on the one process that writes checkpoints."""

    def attach(self, x: Tensor, y: Tensor | None = None) -> B_co:
        """The embedding with the rows of all processes, differentiable in its parameters."""
        ...  # pragma: no cover

    def total_rows(self, num_rows: int) -> float:
        """The rows of all processes together."""
        ...  # pragma: no cover

    def reduce_gradients(self) -> None:
        """Make the gradients of the parameters those of all rows."""
        ...  # pragma: no cover

    def from_leader(self, value: T) -> T:
        """``value`` as the leader has it."""
        ...  # pragma: no cover


def by_leader(together: ProcessGroup[B], read: Callable[[], T]) -> T:
    """What ``read`` returns or raises, on one process for all."""
    outcomes: list[T | ValueError] = []
    if together.leads:
        try:
            outcomes.append(read())
        except ValueError as error:
            outcomes.append(error)
    (outcome,) = together.from_leader(outcomes)
    if isinstance(outcome, ValueError):
        raise outcome
    return outcome


class LocalProcess(Generic[B]):
    """An embedding learned by one process, which has all rows."""

    leads = True

    def __init__(self, embedding: Embedding[B], weights: Tensor | None = None) -> None:
        self.module: gpytorch.Module = embedding
        self._embedding, self._weights = embedding, weights

    @property
    def has_weights(self) -> bool:
        """Whether rows are weighted."""
        return self._weights is not None

    def attach(self, x: Tensor, y: Tensor | None = None) -> B:
        """The embedding with its data."""
        if self._weights is not None and len(self._weights) != x.shape[-2]:
            raise ValueError(
                f"Weights need all {len(self._weights)} rows at once, got a mini-batch of {x.shape[-2]}. Learn with "
                "full batches, or repeat rows instead of weighting them."
            )
        return attach(self._embedding, x, y, self._weights)

    def total_rows(self, num_rows: int) -> float:
        """Their number, or the sum of their weights."""
        return num_rows if self._weights is None else float(self._weights.sum())

    def reduce_gradients(self) -> None:
        """Nothing to do."""

    def from_leader(self, value: T) -> T:
        """``value``."""
        return value


@dataclasses.dataclass(frozen=True)
class Loss(Generic[B]):
    """The objective with priors, as a function of rows.

    Args:
        embedding: whose parameters it depends on.
        objective: without priors.
        num_data: n over all rows and processes, where it is known; priors need it.
        single: factorize in single precision.
    """

    embedding: ProcessGroup[B]
    objective: Objective[B]
    num_data: float | None
    single: bool = False

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Terms]:
        """The loss on these rows, and its terms."""
        joined = self.embedding.attach(x, y)
        values = [(repr(term), c * term.evaluate(joined).sum()) for c, term in self.objective.terms()]
        prior = prior_loss(self.embedding.module)
        if prior is not None:
            # A prior belongs to all n data: a mini-batch, mean or sum, carries its share of it.
            values.append(("priors", prior * self._share(joined.num_data)))
        total = sum((value for _, value in values), start=x.new_zeros(()))
        names, numbers = zip(*((name, value.item()) for name, value in values), strict=True)
        return total, _by_name(names, numbers)

    def backpropagate(self, x: Tensor, y: Tensor | None) -> tuple[float, Terms]:
        """The loss as a number and its terms; a finite one adds its gradient, over all rows, to the parameters'."""
        with single_precision(self.single):
            loss, terms = self(x, y)
        if torch.isfinite(loss):
            loss.backward()
            self.embedding.reduce_gradients()
        return loss.item(), terms

    def direct(self, x: Tensor, y: Tensor | None, vector: ParameterVector) -> DirectLoss | None:
        """The loss without modules and graph; ``None`` where the problem is large or of another kind."""
        process = self.embedding
        if self.single or not isinstance(process, LocalProcess) or process.has_weights:
            return None
        objective = direct_objective(process.module, self.objective, x, y, vector)
        return None if objective is None else DirectLoss(objective, self.objective, vector, self._share(x.shape[-2]))

    def _share(self, num_rows: int) -> float:
        if self.num_data is None:
            raise ValueError(
                "Registered priors are weighted by n, but the dataset of the loader has no length. Give the dataset a "
                "__len__, or remove the priors."
            )
        return 1.0 / self.num_data if self.objective.per_datum else num_rows / self.num_data


def _by_name(names: Sequence[str], values: Sequence[float]) -> Terms:
    """Values by name; those with the same name are added."""
    terms: Terms = {}
    for name, value in zip(names, values, strict=True):
        terms[name] = terms.get(name, 0.0) + value
    return terms


class DirectValue(NamedTuple):
    """The loss, its terms and its gradient in u."""

    value: float
    terms: Terms
    gradient: Vector


class DirectLoss:
    """The objective with priors as a function of u, without modules and graph.

    Args:
        evaluate: the objective without priors.
        objective: the same, for the names of its terms.
        vector: the parameters.
        share: the weight of the priors.
    """

    def __init__(self, evaluate: Direct, objective: Objective[B], vector: ParameterVector, share: float) -> None:
        self._evaluate, self._vector, self._share = evaluate, vector, share
        self._names = [repr(term) for _, term in objective.terms()]
        self._has_priors = next(iter(vector.module.named_priors()), None) is not None
        self._priors: LogPriors | None = parameter_priors(vector) if self._has_priors else None
        self._coordinates = Coordinates(vector)

    def __call__(self, u: Vector) -> DirectValue | None:
        """The loss at u, which the parameters already have; ``None`` where the autograd path must decide."""
        evaluation = self._evaluate(u)
        if evaluation is None:
            return None
        terms, gradient = _by_name(self._names, evaluation.terms), evaluation.gradient
        if self._has_priors:
            value, slope = self._prior(u)
            terms["priors"] = self._share * value
            gradient = gradient + self._share * slope
        value = sum(terms.values())
        return None if self._evaluate.is_direct and not math.isfinite(value) else DirectValue(value, terms, gradient)

    def _prior(self, u: Vector) -> tuple[float, Vector]:
        """−log p(θ(u)) and its gradient."""
        if self._priors is not None:
            theta, slope = self._coordinates(u)
            value, derivative = self._priors.value_and_derivative(np.log(theta), theta)
            return -value, -derivative * slope / theta
        parameters = self._vector.parameters
        loss = prior_loss(self._vector.module)
        assert loss is not None
        if not loss.requires_grad:
            return loss.item(), np.zeros(len(u))
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        pieces = [
            np.zeros(raw.numel()) if gradient is None else gradient.reshape(-1).numpy()
            for raw, gradient in zip(parameters, gradients, strict=True)
        ]
        return loss.item(), np.concatenate(pieces)
