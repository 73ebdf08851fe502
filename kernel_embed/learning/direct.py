r"""Fast evaluation for a few hundred rows, without modules or autograd: from the raw vector u to q and ∂q/∂u.

For a few hundred rows, autograd spends most of its time in the Python interpreter. Here the same parts are called
directly: the kernel's :mod:`~kernel_embed.kernels.evaluators`, the factorization and its
vector-Jacobian products (:mod:`kernel_embed.linalg.lapack`), and ``value_and_gradient`` of each objective.

.. math::
    \frac{\partial q}{\partial u} = \frac{\partial q}{\partial \log \theta} \, \frac1\theta \,
           \frac{\partial \theta}{\partial u}

Autograd differentiates objectives that have only ``evaluate``, from K onward, and kernels without a closed form, up to
K. Where A is not positive definite or distances lose their digits, the autograd path adds jitter and warns.
"""

from __future__ import annotations

import abc
import math
from typing import TYPE_CHECKING, Any, NamedTuple

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..embeddings import (
    BayesianMeanEmbedding,
    ConditionalEmbedding,
    ConditionedEmbedding,
    ConditionedMulticlass,
    MulticlassEmbedding,
)
from ..kernels import explicit_features
from ..kernels.evaluators import Gram, gram_evaluator
from ..kernels.features import MAX_WIDTH
from ..kernels.structure import batch_shape_of
from ..linalg import DistanceForm, Units, repeated_rows
from ..linalg.lapack import Cotangents, LapackSystem, LeafSystem
from ..linalg.quantities import QUANTITIES
from ..objectives import Objective
from ..objectives.base import check_value
from ..objectives.evidence import EmbeddingEvidence, SampleEvidence
from ..objectives.inputs import Targets
from .data import LocalProcess
from .parameters import Coordinates, ParameterVector, Vector, flatten, is_small
from .priors import PriorLoss
from .result import Evaluation, by_name

if TYPE_CHECKING:
    from .loss import Loss

LARGEST_SQUARE = 300.0**2
"""The largest ‖u‖² for which the squared exponential of each entry is finite."""

RIDGE = "raw_regularization"


class Value(NamedTuple):
    """The terms of q, each with its coefficient, and ∂q/∂u."""

    terms: list[float]
    gradient: Vector


class Direct(abc.ABC):
    """q(u) and ∂q/∂u; ``None`` if a number is out of range and the autograd path must decide."""

    is_direct: bool
    """Whether every term has analytic derivatives."""

    @abc.abstractmethod
    def _evaluate(self, u: Vector, with_gradient: bool) -> Value | None:
        """q and its gradient, wherever they can be computed."""

    def __call__(self, u: Vector, with_gradient: bool = True) -> Value | None:
        """q and its gradient."""
        if not float(u @ u) < LARGEST_SQUARE:  # NaN compares as False
            return None
        try:
            value = self._evaluate(u, with_gradient)
        except (ZeroDivisionError, OverflowError):
            if not self.is_direct:
                raise  # an error of the user's objective
            return None
        if value is None or not self.is_direct:
            return value
        if not math.isfinite(sum(value.terms) + float(value.gradient @ value.gradient)):
            return None
        return value


class DirectObjective(Direct):
    """q(u) and ∂q/∂u for a conditional embedding."""

    def __init__(
        self,
        embedding: ConditionalEmbedding,
        objective: Objective[Any],
        x: Tensor,
        y: Tensor,
        vector: ParameterVector,
        weights: Tensor | None = None,
        units: Units | None = None,
    ) -> None:
        x, y, weights = embedding.checked(x, y, weights)
        self._embedding, self._x, self._y, self._vector = embedding, x, y, vector
        self._steps = [(c, term, [QUANTITIES[name] for name in term.inputs]) for c, term in objective.terms()]
        self.is_direct = all(term.has_derivatives and term.is_direct(embedding) for _, term, _ in self._steps)
        inputs = {name for _, term, _ in self._steps for name in term.inputs} if self.is_direct else set()
        names = [name for name in vector.named if name.startswith("kernel.")]
        bound = embedding.sup_diagonal_bound
        self.evaluator = gram_evaluator(embedding.kernel, x, names, bound, "sup_diagonal" in inputs)
        self._writes = not self.is_direct or not (self.evaluator is None or self.evaluator.on_log_scale)
        self._coordinates = Coordinates(vector)
        self._Y = embedding.targets(y, x)
        self._units, w = units or Units(), None if weights is None else weights.numpy()
        self._total = len(x) if w is None else float(w.sum())  # n
        self._system = LapackSystem(self._Y.numpy(), w, self._units)
        self._form = DistanceForm(self._Y.squeeze(-1), weights) if "scores" in inputs else None
        self._data = Targets(np, self._system.Y, self._total, w)

    def _evaluate(self, u: Vector, with_gradient: bool) -> Value | None:
        evaluator = self.evaluator
        assert evaluator is not None
        if self._writes:
            self._vector.set(u)
        theta, slopes = self._coordinates(u)
        values = self._coordinates.named(theta)
        gram = evaluator(values)
        if gram is None:
            return None
        lam = float(values[RIDGE][0]) if RIDGE in values else float(self._embedding.regularization)
        ridge = self._total * lam
        answer = (self._directly if self.is_direct else self._by_autograd)(gram, ridge, with_gradient)
        if answer is None or not with_gradient:
            return None if answer is None else Value(answer.terms, np.zeros(0))
        by_name = evaluator.vjp(answer.G, answer.sup_diagonal)
        by_name[RIDGE] = np.array([ridge * answer.ridge])
        gradient = np.concatenate([by_name[name] for name in values])
        if slopes is not theta:
            factor = slopes / theta
            if not evaluator.on_log_scale:
                entries = self._coordinates.slices.get(RIDGE, slice(0))
                factor, rest = np.ones_like(u), factor
                factor[entries] = rest[entries]
            gradient = gradient * factor
        return Value(answer.terms, gradient if answer.others is None else gradient + answer.others)

    def _directly(self, gram: Gram, ridge: float, with_gradient: bool) -> _Answer | None:
        """Objectives with analytic derivatives."""
        system = self._system
        if not system.factorize(gram.K, gram.scale, ridge):
            return None
        at = Cotangents(system, self._form, np.float64(gram.sup_diagonal))
        values: list[float] = []
        for coefficient, term, quantities in self._steps:
            value, slopes = term.value_and_gradient(self._data, *[quantity.value(at) for quantity in quantities])
            values.append(coefficient * float(value if np.ndim(value) == 0 else check_value(term, value)))
            for quantity, slope in zip(quantities, slopes, strict=True):
                quantity.pull_back(at, slope if coefficient == 1.0 else coefficient * slope)
        if not with_gradient:
            return _Answer(values)
        return _Answer(values, *system.vjp(at), at.sup_slope)

    def _by_autograd(self, gram: Gram, ridge: float, with_gradient: bool) -> _Answer | None:
        """Objectives that autograd differentiates, from V, P, c or K onward."""
        if not self._system.factorize(gram.K, gram.scale, ridge):
            return None
        K = torch.from_numpy(gram.scale * gram.K).requires_grad_(with_gradient)
        eta = torch.tensor(ridge, dtype=K.dtype, device=K.device, requires_grad=with_gradient)
        kind = ConditionedMulticlass if isinstance(self._embedding, MulticlassEmbedding) else ConditionedEmbedding
        with torch.set_grad_enabled(with_gradient):
            system = LeafSystem(K, eta, self._Y, self._system)
            attached = kind(self._embedding, self._x, self._y, system, units=self._units)
            vars(attached)["Y"] = self._Y
            values = [c * check_value(term, term.evaluate(attached)) for c, term, _ in self._steps]
            terms = [value.item() for value in values]
            if not with_gradient:
                return _Answer(terms)
            parameters = self._vector.parameters  # an objective may also use λ or other ones
            G, slope, others = system.vjp([value for value in values if value.requires_grad], parameters)
        pairs = zip(parameters, others, strict=True)
        by_parameter = flatten(torch.zeros_like(raw) if other is None else other for raw, other in pairs)
        return _Answer(terms, G, slope, 0.0, by_parameter)


class _Answer(NamedTuple):
    # The terms, a matrix whose symmetric part is ∂q/∂(σ²K), ∂q/∂η, ∂q/∂α², and what else depends on u.
    terms: list[float]
    G: Any = None
    ridge: float = 0.0
    sup_diagonal: float = 0.0
    others: Vector | None = None


class DirectEvidence(Direct):
    """The evidence of a sample under one squared exponential, and its gradient in u."""

    is_direct = True

    def __init__(
        self, embedding: BayesianMeanEmbedding, evidence: SampleEvidence, coefficient: float, vector: ParameterVector
    ) -> None:
        self._evidence, self._coefficient = evidence, coefficient
        self._coordinates = Coordinates(vector)
        self._start = {
            "kernel.raw_lengthscale": embedding.kernel.lengthscale.detach().double().numpy().ravel(),
            "raw_noise": embedding.noise.detach().double().numpy().ravel(),
        }

    def _evaluate(self, u: Vector, with_gradient: bool) -> Value | None:
        theta, slopes = self._coordinates(u)
        values = self._start | self._coordinates.named(theta)
        answer = self._evidence(
            float(values["kernel.raw_lengthscale"][0]), float(values["raw_noise"][0]), with_gradient
        )
        if answer is None:
            return None
        value, by_lengthscale, by_noise = answer
        by_name = {"kernel.raw_lengthscale": by_lengthscale, "raw_noise": by_noise}
        gradient = np.array([by_name[name] for name in self._coordinates.slices]) * slopes / theta
        return Value([self._coefficient * value], self._coefficient * gradient)


def direct_objective(
    embedding: gpytorch.Module,
    objective: Objective[Any],
    x: Tensor,
    y: Tensor | None,
    vector: ParameterVector,
    weights: Tensor | None = None,
    units: Units | None = None,
) -> Direct | None:
    """The objective without modules and graph; ``None`` if the problem is large, batched, or of another kind."""
    if not is_small(x) or any(p.dtype is not torch.float64 for p in embedding.parameters()):
        return None
    if type(embedding) is BayesianMeanEmbedding and y is None:
        return _sample_evidence(embedding, objective, x, vector)
    if type(embedding) not in (ConditionalEmbedding, MulticlassEmbedding) or y is None:
        return None
    if embedding.raw_regularization.dim() > 0 or batch_shape_of(embedding.kernel):
        return None
    if any(name != RIDGE and not name.startswith("kernel.") for name in vector.named):
        return None
    with torch.no_grad():
        units = repeated_rows(x, y) if units is None else units
        direct = DirectObjective(embedding, objective, x, y, vector, weights, units)
        if direct.evaluator is None:
            return None
        # Few explicit features make the system small; the autograd path uses them. Radial kernels have none.
        limit = min(MAX_WIDTH, len(x))
        if not direct.evaluator.on_log_scale and explicit_features(embedding.kernel, x, limit=limit) is not None:
            return None
    return direct


def _sample_evidence(
    embedding: BayesianMeanEmbedding, objective: Objective[Any], x: Tensor, vector: ParameterVector
) -> DirectEvidence | None:
    (coefficient, term), *others = objective.terms()
    if (
        others
        or type(term) is not EmbeddingEvidence
        or not set(vector.named) <= {"kernel.raw_lengthscale", "raw_noise"}
    ):
        return None
    evidence = term.for_sample(embedding, x)
    return None if evidence is None else DirectEvidence(embedding, evidence, coefficient, vector)


class DirectLoss:
    """The objective with priors as a function of u, without modules and graph."""

    def __init__(self, evaluate: Direct, loss: Loss[Any], vector: ParameterVector, num_rows: int) -> None:
        self._evaluate = evaluate
        self._names = [repr(term) for _, term in loss.objective.terms()]
        has_priors = next(iter(vector.module.named_priors()), None) is not None
        self._priors = PriorLoss(vector, loss.share(num_rows)) if has_priors else None

    def __call__(self, u: Vector) -> Evaluation | None:
        """The loss at u, which the parameters already have; ``None`` if the autograd path must decide."""
        evaluation = self._evaluate(u)
        if evaluation is None:
            return None
        terms, gradient = by_name(self._names, evaluation.terms), evaluation.gradient
        if self._priors is not None:
            terms["priors"], slope = self._priors(u)
            gradient = gradient + slope
        value = sum(terms.values())
        if self._evaluate.is_direct and not math.isfinite(value):
            return None
        return Evaluation(u.copy(), value, terms, gradient)


def direct_loss(loss: Loss[Any], x: Tensor, y: Tensor | None, vector: ParameterVector) -> DirectLoss | None:
    """The loss without modules and graph; ``None`` if the problem is large or of another kind."""
    if loss.single or not isinstance(group := loss.group, LocalProcess):
        return None
    objective = direct_objective(group.module, loss.objective, x, y, vector, group.weights, group.units(x, y))
    return None if objective is None else DirectLoss(objective, loss, vector, x.shape[-2])
