"""Contracts of embeddings and linear systems, with comparisons that explain a failure."""

from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ..embeddings import ConditionalEmbedding, ConditionalPredictor
from ..linalg import LinearSystem

STEP = 1e-5
"""The step of central differences, whose error is about STEP² and, by rounding, 1e-16 / STEP."""


def check_close(what: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-8) -> None:
    """Raise ``AssertionError`` unless ``actual`` has the shape of ``expected`` and its values, up to ``tolerance``.

    The tolerance is relative to the largest expected value.

    Example:
        >>> check_close("the sum", torch.tensor([2.0]), torch.tensor([3.0]))
        Traceback (most recent call last):
        ...
        AssertionError: Expected the sum to agree up to 1e-08, got a largest difference of 1 at index (0,): 2 for 3.
    """
    if actual.shape != expected.shape:
        raise AssertionError(f"Expected {what} of shape {tuple(expected.shape)}, got {tuple(actual.shape)}.")
    if not bool(torch.isfinite(actual).all()):
        raise AssertionError(f"Expected {what} to be finite, got {int((~torch.isfinite(actual)).sum())} values not.")
    if actual.numel() == 0:
        return
    difference = (actual - expected).detach().abs()
    scale = max(float(expected.detach().abs().max()), 1.0)
    if float(difference.max()) <= tolerance * scale:
        return
    place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
    raise AssertionError(
        f"Expected {what} to agree up to {tolerance:g}, got a largest difference of {float(difference.max()):.3g} at "
        f"index {place}: {actual[place].item():.6g} for {expected[place].item():.6g}."
    )


def gradients(value: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """∂value/∂p for every parameter, zero for those it does not depend on."""
    if not parameters:
        return []
    slopes = torch.autograd.grad(value, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(slopes, parameters, strict=True)]


@torch.no_grad()
def differences(function: Callable[[], Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """The same by central differences of ``function``, which reads the current parameters."""
    slopes = []
    for parameter in parameters:
        slope = torch.zeros_like(parameter)
        for i in range(parameter.numel()):
            place = torch.unravel_index(torch.tensor(i), parameter.shape) if parameter.dim() else ()
            before = parameter[place].clone()
            parameter[place] = before + STEP
            ahead = function()
            parameter[place] = before - STEP
            behind = function()
            parameter[place] = before
            slope[place] = (ahead - behind) / (2.0 * STEP)
        slopes.append(slope)
    return slopes


def second_derivatives(
    function: Callable[[], Tensor], parameters: Sequence[Tensor], seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The Hessian of ``function`` times a random direction: by autograd, and by central differences of the gradient."""
    generator = torch.Generator().manual_seed(seed)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype).to(p) for p in parameters]
    slopes = torch.autograd.grad(function(), parameters, create_graph=True, allow_unused=True)
    along = sum(((g * d).sum() for g, d in zip(slopes, direction, strict=True) if g is not None), torch.zeros(()))
    ours = gradients(along, parameters) if along.requires_grad else [torch.zeros_like(p) for p in parameters]
    sides = []
    for sign in (1.0, -2.0):
        with torch.no_grad():
            for p, d in zip(parameters, direction, strict=True):
                p.add_(d, alpha=sign * STEP)
        sides.append(gradients(function(), parameters))
    with torch.no_grad():
        for p, d in zip(parameters, direction, strict=True):
            p.add_(d, alpha=STEP)
    others = [(ahead - behind) / (2.0 * STEP) for ahead, behind in zip(*sides, strict=True)]
    flat_ours, flat_others = (torch.cat([part.reshape(-1) for part in parts]) for parts in (ours, others))
    return flat_ours, flat_others


def named_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


class EmbeddingContract:
    """Inherit and define :meth:`make_embedding`, an embedding of targets given inputs, and where needed the data.

    Attributes:
        tolerance: relative.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed.testing import EmbeddingContract
        >>> class TestMine(EmbeddingContract):
        ...     def make_embedding(self):
        ...         return ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).double()
    """

    tolerance = 1e-8

    def make_embedding(self) -> ConditionalEmbedding:
        """The embedding, in float64 and without batch dimensions.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_embedding in your subclass; it returns an embedding.")

    def make_data(self) -> tuple[Tensor, Tensor]:
        """x and y."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(12, 2, generator=generator, dtype=torch.float64)
        return x, torch.arange(12) % 2

    def make_points(self) -> Tensor:
        """New points."""
        return torch.randn(5, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    def _mean(self, conditioned: ConditionalPredictor) -> Tensor:
        return conditioned.mean(self.make_points())

    def test_attached_and_conditioned_embeddings_agree(self) -> None:
        """The same numbers, from the live parameters and from their copy."""
        embedding, data = self.make_embedding(), self.make_data()
        check_close(
            "the conditioned mean",
            self._mean(embedding.condition(*data)),
            self._mean(embedding.attach(*data)),
            self.tolerance,
        )

    def test_an_attached_embedding_is_live(self) -> None:
        """Its mean has a gradient in the parameters, and it holds no copy."""
        embedding = self.make_embedding()
        bound = embedding.attach(*self.make_data())
        assert bound.embedding is embedding, "attach must hold the embedding itself, not a copy."
        slopes = gradients(self._mean(bound).square().sum(), list(named_parameters(embedding).values()))
        assert any(bool(g.abs().sum() > 0) for g in slopes), (
            "Expected gradients in the parameters through attach, got none."
        )

    def test_a_conditioned_embedding_is_frozen(self) -> None:
        """Later learning does not change it, and its mean has no gradient in the parameters."""
        embedding = self.make_embedding()
        conditioned = embedding.condition(*self.make_data())
        before = self._mean(conditioned)
        assert not before.requires_grad, "A conditioned embedding must not require gradients."
        with torch.no_grad():
            for parameter in embedding.parameters():
                parameter.add_(0.3)
        check_close("the conditioned mean after the embedding changed", self._mean(conditioned), before, 0.0)

    def test_conditioning_changes_nothing(self) -> None:
        """The embedding is the same after ``condition``."""
        embedding = self.make_embedding()
        before = copy.deepcopy(embedding.state_dict())
        self._mean(embedding.condition(*self.make_data()))
        for name, value in embedding.state_dict().items():
            assert torch.equal(value, before[name]), f"Expected condition not to change {name}."

    def test_a_conditioned_embedding_can_be_copied(self) -> None:
        """By ``copy.deepcopy`` and by pickle, with the same predictor."""
        conditioned = self.make_embedding().condition(*self.make_data())
        expected = self._mean(conditioned)
        for what, twin in (
            ("deepcopy", copy.deepcopy(conditioned)),
            ("pickle", pickle.loads(pickle.dumps(conditioned))),
        ):
            check_close(f"the mean after {what}", self._mean(twin), expected, self.tolerance)


class SystemContract:
    """Inherit and define :meth:`make_system`, which returns a system and the matrices K and A = K + ηW⁻¹ it stands for.

    Attributes:
        tolerance: relative.
        is_factorized: whether it has diag A⁻¹, log |A| and densities.

    Example:
        >>> from kernel_embed.linalg import DenseSystem
        >>> from kernel_embed.testing import SystemContract
        >>> class TestDense(SystemContract):
        ...     def make_system(self):
        ...         K = torch.eye(3, dtype=torch.float64)
        ...         return DenseSystem(K, torch.tensor(0.5, dtype=torch.float64)), K, K + 0.5 * K
    """

    tolerance = 1e-8
    is_factorized = True

    def make_system(self) -> tuple[LinearSystem, Tensor, Tensor]:
        """The system, K and A.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_system in your subclass; it returns a system with K and A.")

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
                try:
                    ask()
                except TypeError as error:
                    assert "Expected a factorized system" in str(error)  # noqa: PT017 — pytest is not imported here
                else:
                    raise AssertionError(
                        f"Expected {type(system).__name__} to reject {ask.__name__}, but it returned a value."
                    )
            return
        inverse = torch.linalg.inv(A)
        check_close("diag A⁻¹", system.inverse_diagonal(), inverse.diagonal(dim1=-2, dim2=-1), self.tolerance)
        check_close("log |A|", system.log_determinant(), torch.logdet(A), self.tolerance)
        n, m = Y.shape
        density = 0.5 * ((Y * (inverse @ Y)).sum() + m * torch.logdet(A) + n * m * math.log(2.0 * math.pi))
        check_close("−log N(Y; 0, A)", system.negative_log_densities(Y), density, self.tolerance)
