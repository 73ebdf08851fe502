"""Contracts of linear systems, embeddings, and predictors of P(Y | X), exact or approximate."""

from __future__ import annotations

import abc
import copy
import math
import pickle
from collections.abc import Callable

import torch
from torch import Tensor

from ..embeddings import ConditionalEmbedding, ConditionalPredictor, MulticlassPredictor
from ..linalg import LinearSystem
from .checks import check_close, gradients, named_parameters, unchanged


class SystemContract(abc.ABC):
    """Inherit and define :meth:`make_system`, which returns a system and the matrices K and A = K + ηW⁻¹ it stands for.

    Attributes:
        tolerance: relative.
        is_factorized: whether it has diag A⁻¹, log |A| and densities.

    Example:
        >>> from kernel_embed.linalg import DenseSystem
        >>> class TestDense(SystemContract):
        ...     def make_system(self):
        ...         K = torch.eye(3, dtype=torch.float64)
        ...         return DenseSystem(K, torch.tensor(0.5, dtype=torch.float64)), K, K + 0.5 * K
    """

    tolerance = 1e-8
    is_factorized = True

    @abc.abstractmethod
    def make_system(self) -> tuple[LinearSystem, Tensor, Tensor]:
        """The system, K and A."""

    def _targets(self, A: Tensor) -> Tensor:
        return torch.randn(A.shape[-1], 2, generator=torch.Generator().manual_seed(0), dtype=A.dtype)

    def test_regression(self) -> None:
        """V = A⁻¹Y and P = KV."""
        system, K, A = self.make_system()
        Y = self._targets(A)
        V, P = system.regress(Y)
        expected = torch.linalg.solve(A, Y)
        check_close("V = A⁻¹Y", V, expected, self.tolerance)
        check_close("solve(Y)", system.solve(Y), expected, self.tolerance)
        check_close("P = KV", P, K @ expected, self.tolerance)

    def test_diagonal(self) -> None:
        """diag K."""
        system, K, _ = self.make_system()
        check_close("diag K", system.diagonal(), K.diagonal(dim1=-2, dim2=-1), self.tolerance)

    def test_inverse_diagonal_and_determinant(self) -> None:
        """diag A⁻¹, log |A| and −log N(Y; 0, A), or a TypeError with a message."""
        system, _, A = self.make_system()
        Y = self._targets(A)
        if not self.is_factorized:
            for ask in (system.inverse_diagonal, system.log_determinant):
                message = _type_error(ask)
                assert "Expected a factorized system" in message, f"{ask.__name__} must say what is missing: {message}"
            return
        inverse = torch.linalg.inv(A)
        check_close("diag A⁻¹", system.inverse_diagonal(), inverse.diagonal(dim1=-2, dim2=-1), self.tolerance)
        check_close("log |A|", system.log_determinant(), torch.logdet(A), self.tolerance)
        n, m = Y.shape
        density = 0.5 * ((Y * (inverse @ Y)).sum() + m * torch.logdet(A) + n * m * math.log(2.0 * math.pi))
        check_close("−log N(Y; 0, A)", system.negative_log_densities(Y), density, self.tolerance)


def _type_error(call: Callable[..., object], *arguments: object) -> str:
    """The message of the TypeError that ``call`` raises."""
    try:
        call(*arguments)
    except TypeError as error:
        return str(error)
    raise AssertionError(f"Expected {call.__qualname__} to raise a TypeError, but it returned a value.")


class EmbeddingContract(abc.ABC):
    """Inherit and define :meth:`make_embedding`, an embedding of targets given inputs, and where needed the data.

    Attributes:
        tolerance: relative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class TestMine(EmbeddingContract):
        ...     def make_embedding(self):
        ...         return ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double()
    """

    tolerance = 1e-8

    @abc.abstractmethod
    def make_embedding(self) -> ConditionalEmbedding:
        """The embedding, in float64 and without batch dimensions."""

    def make_data(self) -> tuple[Tensor, Tensor]:
        """x and y."""
        generator = torch.Generator().manual_seed(0)
        return torch.randn(12, 2, generator=generator, dtype=torch.float64), torch.arange(12) % 2

    def make_points(self) -> Tensor:
        """New points."""
        return torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def _mean(self, conditioned: ConditionalPredictor) -> Tensor:
        return conditioned.mean(self.make_points())

    def test_an_attached_embedding_is_live(self) -> None:
        """It holds no copy, and its mean is the conditioned one, with a gradient in the parameters."""
        embedding, data = self.make_embedding(), self.make_data()
        attached = embedding.attach(*data)
        assert attached.embedding is embedding, "attach must hold the embedding itself, not a copy."
        mean = self._mean(attached)
        check_close("the conditioned mean", self._mean(embedding.condition(*data)), mean, self.tolerance)
        slopes = gradients(mean.square().sum(), list(named_parameters(embedding).values()))
        assert bool((slopes != 0).any()), "Expected gradients in the parameters through attach, got none."

    def test_a_conditioned_embedding_is_frozen(self) -> None:
        """It and the embedding do not change each other, and its mean has no gradient in the parameters."""
        embedding = self.make_embedding()
        with unchanged("condition", embedding):
            conditioned = embedding.condition(*self.make_data())
            before = self._mean(conditioned)
        assert not before.requires_grad, "A conditioned embedding must not require gradients."
        with torch.no_grad():
            for parameter in embedding.parameters():
                parameter.add_(0.3)
        check_close("the conditioned mean after the embedding changed", self._mean(conditioned), before, 0.0)

    def test_a_conditioned_embedding_can_be_copied(self) -> None:
        """By ``copy.deepcopy`` and by pickle, with the same predictor."""
        conditioned = self.make_embedding().condition(*self.make_data())
        expected = self._mean(conditioned)
        copies = {"deepcopy": copy.deepcopy(conditioned), "pickle": pickle.loads(pickle.dumps(conditioned))}
        for how, twin in copies.items():
            check_close(f"the mean after {how}", self._mean(twin), expected, self.tolerance)


class PredictorContract(abc.ABC):
    """Inherit and define :meth:`make_predictor` and :meth:`make_points`.

    Attributes:
        holds_targets: whether the expectation of any g(Y) is available.
        tolerance: relative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class TestMine(PredictorContract):
        ...     def make_points(self):
        ...         return torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        ...     def make_predictor(self):
        ...         x = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        ...         return ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double().condition(x, x)
    """

    holds_targets = True
    tolerance = 1e-8

    @abc.abstractmethod
    def make_predictor(self) -> ConditionalPredictor:
        """A predictor without batch dimensions."""

    @abc.abstractmethod
    def make_points(self) -> Tensor:
        """New points, ``(t, d)``."""

    def test_the_mean_is_a_matrix(self) -> None:
        """``mean(x)`` has one finite row for each point."""
        x = self.make_points()
        mean = self.make_predictor().mean(x)
        assert mean.dim() == 2, f"Expected a mean of shape (t, m), got {tuple(mean.shape)}."
        assert mean.shape[0] == x.shape[0], f"Expected {x.shape[0]} rows of the mean, got {mean.shape[0]}."
        assert bool(torch.isfinite(mean).all()), "Expected a finite mean, got other values."

    def test_points_are_independent(self) -> None:
        """The prediction at a point does not depend on the other points, on gradients or on earlier predictions."""
        predictor, x = self.make_predictor(), self.make_points()
        together = predictor.mean(x)
        alone = torch.cat([predictor.mean(row[None]) for row in x])
        check_close("the mean of single points", alone, together, self.tolerance)
        with torch.no_grad():
            check_close("the mean without gradients", predictor.mean(x), together, self.tolerance)
        check_close("the mean evaluated again", predictor.mean(x), predictor.mean(x), 0.0)

    def test_expectations_are_linear_in_g(self) -> None:
        """E[a g + b h] = a E[g] + b E[h], and E of a vector is a vector; or a TypeError with a message."""
        predictor, x = self.make_predictor(), self.make_points()

        def g(y: Tensor) -> Tensor:
            return y.double().reshape(len(y), -1)[:, 0]

        if not self.holds_targets:
            assert _type_error(predictor.expectation, g, x), "Expected a message, got none."
            return
        one, two = predictor.expectation(g, x), predictor.expectation(lambda y: g(y).square(), x)
        both = predictor.expectation(lambda y: torch.stack([g(y), g(y).square()], dim=-1), x)
        check_close("E of two functions", both, torch.stack([one, two], dim=-1), self.tolerance)
        mixed = predictor.expectation(lambda y: 2.0 * g(y) - 0.5 * g(y).square(), x)
        check_close("E of a mixture of functions", mixed, 2.0 * one - 0.5 * two, self.tolerance)


class MulticlassPredictorContract(PredictorContract):
    """The same for class labels; write ``make_predictor`` and ``make_points``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class TestMine(MulticlassPredictorContract):
        ...     def make_points(self):
        ...         return torch.linspace(0, 1, 5, dtype=torch.float64).unsqueeze(-1)
        ...     def make_predictor(self):
        ...         x = torch.linspace(0, 1, 9, dtype=torch.float64).unsqueeze(-1)
        ...         embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=3).double()
        ...         return embedding.condition(x, torch.arange(9) % 3)
    """

    @abc.abstractmethod
    def make_predictor(self) -> MulticlassPredictor:
        """A predictor of classes."""

    def test_probabilities_are_probabilities(self) -> None:
        """Between 0 and 1, and 1 in all; a prediction is one of the classes, and 0 ≤ entropy ≤ log m."""
        predictor, x = self.make_predictor(), self.make_points()
        p, m = predictor.probabilities(x), predictor.num_classes
        assert p.shape == (x.shape[0], m), f"Expected probabilities of shape {(x.shape[0], m)}, got {tuple(p.shape)}."
        assert bool(((p >= 0) & (p <= 1)).all()), "Expected probabilities between 0 and 1, got others."
        check_close("the sum of the probabilities", p.sum(-1), torch.ones_like(p[:, 0]), self.tolerance)
        labels, entropy = predictor.predict(x), predictor.entropy(x)
        assert bool(((labels >= 0) & (labels < m)).all()), f"Expected classes from 0 to {m - 1}, got others."
        in_range = (entropy >= -1e-9) & (entropy <= math.log(m) + 1e-6)
        assert bool(in_range.all()), "Expected 0 ≤ entropy ≤ log m, got others."

    def test_expectations_of_classes(self) -> None:
        """Decision probabilities are the mean, eq. (5), and E[g(Y)] is the sum over classes, also of given values."""
        predictor, x = self.make_predictor(), self.make_points()
        decisions = predictor.decision_probabilities(x)
        check_close("the decision probabilities", decisions, predictor.mean(x), self.tolerance)
        values = torch.arange(predictor.num_classes, dtype=torch.float64).square()
        expected = decisions.double() @ values
        check_close("E[g(Y)] by values", predictor.expectation(values, x).double(), expected, self.tolerance)
        by_function = predictor.expectation(lambda c: c.double().square(), x)
        check_close("E[g(Y)] by a function", by_function.double(), expected, self.tolerance)
