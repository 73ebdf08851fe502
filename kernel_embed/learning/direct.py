r"""Fast evaluation for a few hundred rows, without modules or autograd: from the raw vector u to q and ∂q/∂u.

There, autograd spends most of its time in the Python interpreter. The same parts are called directly: the kernel's
evaluator, the factorization and its vector-Jacobian products, and ``value_and_gradient`` of each objective.

.. math::
    \frac{\partial q}{\partial u} = \frac{\partial q}{\partial \log \theta} \, \frac1\theta \,
           \frac{\partial \theta}{\partial u}

Autograd differentiates objectives that have only ``evaluate``, from V, P, c or K onward, and kernels without a closed
form, up to K. Where A is not positive definite or distances lose their digits, the autograd path adds jitter and warns.
"""

from __future__ import annotations

import abc
import math
from typing import Any, NamedTuple, cast

import gpytorch
import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..embeddings import (
    BayesianMeanEmbedding,
    ConditionalEmbedding,
    ConditionedEmbedding,
    ConditionedMulticlass,
    MulticlassEmbedding,
)
from ..kernels import explicit_features
from ..kernels.evaluators import Values, gram_evaluator
from ..kernels.features import MAX_WIDTH
from ..kernels.structure import batch_shape_of
from ..linalg import DenseSystem, DistanceForm, Units, factorize, repeated_rows
from ..linalg.factorization import Factorization
from ..linalg.lapack import LapackFactorization
from ..linalg.regression import QUANTITIES, Cotangents, Regression
from ..objectives import Objective
from ..objectives.base import Targets, check_value
from ..objectives.evidence import EmbeddingEvidence, SampleEvidence
from .parameters import Coordinates, ParameterVector, Vector, flatten, is_small

RIDGE = "raw_regularization"
LARGE_SQUARE = 300.0**2  # the largest ‖u‖² for which the squared exponential of each entry is finite
LARGEST = 1e130  # parameters θ from which squares are near to overflow


class Value(NamedTuple):
    """The terms of q, each with its coefficient, and ∂q/∂u."""

    terms: list[float]
    gradient: Vector


class _Answer(NamedTuple):
    terms: list[float]
    by_name: Values
    by_u: Vector | None = None  # what is added to ∂q/∂u


class Direct(abc.ABC):
    """q(u) and ∂q/∂u; ``None`` if a number is out of range and the autograd path must decide."""

    is_direct = True  # whether every term has analytic derivatives
    _on_log_scale = slice(None)  # entries with respect to whose log θ, not u, :meth:`_evaluate` differentiates

    def __init__(self, vector: ParameterVector) -> None:
        self._vector, self._coordinates = vector, Coordinates(vector)

    @abc.abstractmethod
    def _evaluate(self, u: Vector, theta: Values, with_gradient: bool) -> _Answer | None:
        """The terms of q, and its derivatives by the names of the parameters."""

    def __call__(self, u: Vector, with_gradient: bool = True) -> Value | None:
        """q and its gradient."""
        theta, slopes = self._coordinates(u)
        if not float(u @ u) < LARGE_SQUARE and not theta.max() < LARGEST:  # NaN compares as False
            return None
        try:
            answer = self._evaluate(u, {name: theta[part] for name, part in self._vector.slices.items()}, with_gradient)
        except (ZeroDivisionError, OverflowError):
            if not self.is_direct:
                raise  # an error of the user's objective
            return None
        if answer is None or not with_gradient:
            return None if answer is None else Value(answer.terms, np.zeros(0))
        gradient = np.concatenate([answer.by_name[name] for name in self._vector.slices])
        if slopes is not theta:
            part = self._on_log_scale
            gradient[part] *= slopes[part] / theta[part]
        if answer.by_u is not None:
            gradient += answer.by_u
        if self.is_direct and not math.isfinite(sum(answer.terms) + float(gradient @ gradient)):
            return None
        return Value(answer.terms, gradient)


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
        super().__init__(vector)
        x, y, weights = embedding.checked(x, y, weights)
        self._embedding, self._x, self._y, self._weights = embedding, x, y, weights
        self._units, self._targets = units or Units(), embedding.targets(y, x)
        self._steps = [(c, term, [QUANTITIES[name] for name in term.inputs]) for c, term in objective.terms()]
        self.is_direct = all(term.has_derivatives and term.is_direct(embedding) for _, term, _ in self._steps)
        inputs = {name for _, term, _ in self._steps for name in term.inputs} if self.is_direct else set()
        names = [name for name in vector.named if name.startswith("kernel.")]
        bound = embedding.sup_diagonal_bound
        self.evaluator = gram_evaluator(embedding.kernel, x, names, bound, "sup_diagonal" in inputs)
        if self.evaluator is not None and not self.evaluator.on_log_scale:
            self._on_log_scale = vector.slices.get(RIDGE, slice(0))
        self._writes = not self.is_direct or self._on_log_scale != slice(None)
        self._total = len(x) if weights is None else float(weights.sum())  # n
        self._precision = None if weights is None else weights.numpy()  # D = η over this
        # Groups of rows have blocks, in torch.
        self._lapack = LapackFactorization(len(x)) if self._units.labels is None else None
        self._form = DistanceForm(self._targets.squeeze(-1), weights) if "scores" in inputs else None
        Y = np.asfortranarray(self._targets.numpy())  # as LAPACK's solutions
        self._data = Targets(np, Y, self._total, self._precision)
        self._Y: Any = self._targets if self._lapack is None else Y

    def _evaluate(self, u: Vector, theta: Values, with_gradient: bool) -> _Answer | None:
        evaluator = self.evaluator
        assert evaluator is not None
        if self._writes:
            self._vector.set(u)
        try:
            gram = evaluator(theta)
        except NanError:  # distances that overflow: a sampler rejects the step, a line search shortens it
            return None
        if gram is None:
            return None
        ridge = self._total * float(theta[RIDGE][0] if RIDGE in theta else self._embedding.regularization)
        K = gram.K if gram.scale == 1.0 else gram.K * gram.scale
        if not self.is_direct:
            return self._by_autograd(K, ridge, with_gradient)
        system = self._factorize(K, ridge)
        if system is None:
            return None
        terms, at = self._directly(system, gram.sup_diagonal)
        if not with_gradient:
            return _Answer(terms, {})
        G, noise, _ = system.pull_back(at, self._units)
        slope = 0.0
        if noise is not None:  # dD/dη = 1/w
            slope = float(noise.sum() if self._precision is None else (np.asarray(noise) / self._precision).sum())
        by_name = evaluator.vjp(np.zeros(K.shape) if G is None else np.asarray(G), float(at.sup_diagonal or 0.0))
        by_name[RIDGE] = np.array([ridge * slope])
        return _Answer(terms, by_name)

    def _factorize(self, K: Any, ridge: float) -> Factorization | None:
        """A = K + ηW⁻¹; ``None`` if it is not positive definite."""
        noise = np.array([ridge]) if self._precision is None else ridge / self._precision
        if self._lapack is not None:
            return self._lapack if self._lapack.factorize(K, noise) else None
        try:
            factor, jitter = factorize(torch.from_numpy(K), torch.from_numpy(noise))
        except (NotPSDError, NanError):
            return None
        noise = noise if jitter is None else noise + float(jitter)
        return Factorization(torch.from_numpy(K), torch.from_numpy(noise), factor)

    def _directly(self, system: Factorization, alpha2: float) -> tuple[list[float], Cotangents]:
        """Objectives with analytic derivatives."""
        r = Regression(system, self._Y, self._units, self._form, np.float64(alpha2))
        values, at = [], Cotangents()
        in_torch = self._lapack is None
        for coefficient, term, quantities in self._steps:
            inputs: list[Any] = [quantity.value(r) for quantity in quantities]
            inputs = [np.asarray(value) for value in inputs] if in_torch else inputs
            value, slopes = term.value_and_gradient(self._data, *inputs)
            values.append(coefficient * float(value if np.ndim(value) == 0 else check_value(term, value)))
            for quantity, slope in zip(quantities, slopes, strict=True):
                slope = torch.as_tensor(slope, device="cpu") if in_torch else slope
                quantity.pull_back(r, at, slope if coefficient == 1.0 else coefficient * slope)
        return values, at

    def _by_autograd(self, K: Any, ridge: float, with_gradient: bool) -> _Answer | None:
        """Objectives that autograd differentiates, from K, η and the parameters that they use themselves."""
        evaluator, parameters = self.evaluator, self._vector.parameters
        assert evaluator is not None
        leaf = torch.as_tensor(K, device="cpu").requires_grad_(with_gradient)
        eta = leaf.new_tensor(ridge, requires_grad=with_gradient)
        kind = ConditionedMulticlass if isinstance(self._embedding, MulticlassEmbedding) else ConditionedEmbedding
        with torch.set_grad_enabled(with_gradient):
            try:
                system = DenseSystem(leaf, eta, self._weights)
            except (NotPSDError, NanError):
                return None
            attached = kind(self._embedding, self._x, self._y, system, units=self._units)
            vars(attached)["Y"] = self._targets
            values = [c * check_value(term, term.evaluate(attached)) for c, term, _ in self._steps]
        terms = [value.item() for value in values]
        if not with_gradient:
            return _Answer(terms, {})
        outputs, inputs = [value for value in values if value.requires_grad], [leaf, eta, *parameters]
        gradients = torch.autograd.grad(outputs, inputs, allow_unused=True) if outputs else (None,) * len(inputs)
        of_K, of_eta, *others = (
            torch.zeros_like(value) if gradient is None else gradient
            for value, gradient in zip(inputs, gradients, strict=True)
        )
        by_name = evaluator.vjp(of_K.numpy(), 0.0)
        by_name[RIDGE] = np.array([ridge * float(of_eta)])
        return _Answer(terms, by_name, flatten(others))


class DirectEvidence(Direct):
    """The evidence of a sample under one squared exponential, and its gradient in u."""

    def __init__(
        self, embedding: BayesianMeanEmbedding, evidence: SampleEvidence, coefficient: float, vector: ParameterVector
    ) -> None:
        super().__init__(vector)
        self._evidence, self._coefficient = evidence, coefficient
        self._start = {
            "kernel.raw_lengthscale": embedding.kernel.lengthscale.detach().double().numpy().ravel(),
            "raw_noise": embedding.noise.detach().double().numpy().ravel(),
        }

    def _evaluate(self, u: Vector, theta: Values, with_gradient: bool) -> _Answer | None:
        lengthscale, noise = (float(value[0]) for value in (self._start | theta).values())
        answer = self._evidence(lengthscale, noise, with_gradient)
        if answer is None:
            return None
        value, *slopes = (self._coefficient * number for number in answer)
        return _Answer([value], {name: np.array([slope]) for name, slope in zip(self._start, slopes, strict=True)})


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
        (coefficient, term), *others = objective.terms()
        is_known = set(vector.named) <= {"kernel.raw_lengthscale", "raw_noise"}
        is_alone = not others and type(term) is EmbeddingEvidence and is_known
        evidence = cast(EmbeddingEvidence, term).for_sample(embedding, x) if is_alone else None
        return None if evidence is None else DirectEvidence(embedding, evidence, coefficient, vector)
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
