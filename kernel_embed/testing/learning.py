"""Contracts of objectives, optimizers and samplers."""

from __future__ import annotations

import abc
import functools
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, MulticlassEmbedding
from ..learning import FitResult, Optimizer, fit
from ..objectives import EmbeddingEvidence, LeaveOneOutRisk, Objective, RademacherComplexity
from ..posteriors import MeanPosterior, Sampler, sample_posterior
from . import checks


class ObjectiveContract(abc.ABC):
    """Inherit and define :meth:`make_objective`; for other than class labels also the embedding and the data.

    Attributes:
        tolerance: of the gradient against differences, relative.

    Example:
        >>> import kernel_embed as ke
        >>> class TestRisk(ObjectiveContract):
        ...     def make_objective(self):
        ...         return ke.LeaveOneOutRisk()
        >>> TestRisk().test_gradient_is_that_of_differences()
    """

    tolerance = 1e-5

    @abc.abstractmethod
    def make_objective(self) -> Objective[Any]:
        """The objective."""

    def make_embedding(self) -> gpytorch.Module:
        """The embedding: a multiclass embedding with an ARD Matérn kernel by default."""
        kernel = gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=2)
        kernel.lengthscale = torch.tensor([0.7, 1.2])
        return MulticlassEmbedding(kernel, num_classes=3, regularization=0.02).double()

    def make_data(self) -> tuple[Tensor, Tensor | None]:
        """x and y; ``None`` for an embedding without targets."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(15, 2, generator=generator, dtype=torch.float64)
        return x, torch.arange(15) % 3

    def _loss(self, objective: Objective[Any], embedding: gpytorch.Module) -> Tensor:
        x, y = self.make_data()
        return objective(embedding, x) if y is None else objective(embedding, x, y)

    def test_it_is_a_finite_number(self) -> None:
        """A scalar for an embedding without batch dimensions, which it does not change, and the same again."""
        objective, embedding = self.make_objective(), self.make_embedding()
        with checks.unchanged(repr(objective), embedding):
            value = self._loss(objective, embedding)
        assert value.shape == (), f"Expected a scalar from {objective!r}, got shape {tuple(value.shape)}."
        assert bool(torch.isfinite(value)), f"Expected a finite value from {objective!r}, got {value.item()}."
        checks.check_close(f"{objective!r} evaluated again", self._loss(objective, embedding), value, 0.0)

    def test_gradient_is_that_of_differences(self) -> None:
        """For every parameter of the embedding."""
        objective, embedding = self.make_objective(), self.make_embedding()
        named = checks.named_parameters(embedding)
        ours = checks.gradients(self._loss(objective, embedding), list(named.values()))
        others = checks.differences(lambda: self._loss(objective, embedding), list(named.values()))
        checks.check_gradients(f"the gradient of {objective!r}", named, ours, others, self.tolerance)

    def test_second_derivatives_are_those_of_differences(self) -> None:
        """For a random direction in the parameters; an objective without second derivatives must raise."""
        objective, embedding = self.make_objective(), self.make_embedding()
        parameters = list(checks.named_parameters(embedding).values())
        try:
            ours, others = checks.second_derivatives(lambda: self._loss(objective, embedding), parameters)
        except NotImplementedError:
            return
        except RuntimeError as error:
            if "once_differentiable" not in str(error):
                raise
            return
        checks.check_close(f"the second derivatives of {objective!r}", ours, others, 10.0 * self.tolerance)

    def test_objectives_add_and_scale(self) -> None:
        """(2a + a)(·) = 3 a(·), as a value and in its terms."""
        objective, embedding = self.make_objective(), self.make_embedding()
        three, total = 3.0 * self._loss(objective, embedding), self._loss(2.0 * objective + objective, embedding)
        checks.check_close(f"2 * {objective!r} + {objective!r}", total, three)
        assert repr(objective), "Expected an objective with a repr, got an empty one."


class OptimizerContract(abc.ABC):
    """Inherit and define :meth:`make_optimizer`; it learns a lengthscale and λ on forty points.

    Example:
        >>> import kernel_embed as ke
        >>> class TestMine(OptimizerContract):
        ...     def make_optimizer(self):
        ...         return ke.LBFGS(num_restarts=1)
    """

    @abc.abstractmethod
    def make_optimizer(self) -> Optimizer:
        """The optimizer to test."""

    def _fit(self, seed: int = 0) -> tuple[FitResult, MulticlassEmbedding]:
        x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        y: Tensor = (torch.sin(9.0 * x.squeeze(-1)) > 0).long()
        embedding = MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        objective = LeaveOneOutRisk(0.01) + RademacherComplexity("4e/n")
        return fit(embedding, objective, x, y, optimizer=self.make_optimizer(), seed=seed), embedding

    def test_it_lowers_the_objective(self) -> None:
        """Below the first value that it recorded; the result is the lowest one, and says how the search ended."""
        result, _ = self._fit()
        assert result.history, "Expected at least one record, got none. Call problem.record(...)."
        values = [record["value"] for record in result.history]
        assert result.value == min(values), f"Expected the lowest value {min(values):.6g}, got {result.value:.6g}."
        assert result.value < values[0], f"Expected less than the first value {values[0]:.6g}, got {result.value:.6g}."
        assert isinstance(result.converged, bool), f"Expected converged to be a bool, got {type(result.converged)}."
        assert result.message, "Expected a message of how the search ended, got none."

    def test_a_seed_is_honored(self) -> None:
        """The same seed gives the same parameters."""
        (_, one), (_, two) = self._fit(seed=3), self._fit(seed=3)
        for (name, a), b in zip(one.named_parameters(), two.parameters(), strict=True):
            assert torch.equal(a, b), f"Expected the same {name} from the same seed, got {a.tolist()} and {b.tolist()}."


class SamplerContract(abc.ABC):
    """Inherit and write :meth:`make_sampler`. Its posterior is sampled once per class and shared by the tests.

    Attributes:
        num_samples: draws of each of two chains.
        warmup_steps: before them.
        accuracy: of the mean and the deviation of log ℓ, in posterior standard deviations.

    Example:
        >>> import kernel_embed as ke
        >>> class TestMine(SamplerContract):
        ...     def make_sampler(self):
        ...         return ke.NUTS()
    """

    num_samples = 150
    warmup_steps = 100
    accuracy = 0.4

    @abc.abstractmethod
    def make_sampler(self) -> Sampler:
        """The sampler."""

    @classmethod
    @functools.cache
    def _shared(cls) -> MeanPosterior:
        return cls()._sample(0, cls.num_samples, cls.warmup_steps)

    def _sample(self, seed: int, num_samples: int, warmup_steps: int) -> MeanPosterior:
        x = torch.randn(25, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 2.0))
        settings: dict[str, Any] = {"num_samples": num_samples, "warmup_steps": warmup_steps, "num_chains": 2}
        settings |= {"seed": seed, "sampler": self.make_sampler(), "progress": False}
        posterior: MeanPosterior = sample_posterior(BayesianMeanEmbedding(kernel), EmbeddingEvidence(), x, **settings)
        return posterior

    def test_draws_have_their_shapes(self) -> None:
        """(chains, draws, parameters) and a log density for each."""
        posterior = self._shared()
        shape = (2, self.num_samples, 1)
        u, density = posterior.draws.u, posterior.draws.log_density
        assert u.shape == shape, f"Expected draws of shape {shape}, got {tuple(u.shape)}."
        assert density.shape == shape[:2], f"Expected log densities of shape {shape[:2]}, got {tuple(density.shape)}."
        assert bool(torch.isfinite(u).all()), "Expected finite draws, got others."

    def test_draws_are_of_the_posterior(self) -> None:
        """Mean and standard deviation of log ℓ against quadrature."""
        posterior = self._shared()
        grid = np.linspace(-4.0, 3.0, 400)
        heights = np.array([-posterior.potential.value(np.array([u])) for u in grid])
        weights = np.exp(heights - heights.max())
        weights /= weights.sum()
        mean = float(weights @ grid)
        deviation = float(np.sqrt(weights @ (grid - mean) ** 2))
        u = posterior.draws.u.flatten()
        off = abs(float(u.mean()) - mean) / deviation
        assert off < self.accuracy, f"Expected a mean of log ℓ near {mean:.3f}, got one {off:.2f} deviations away."
        ratio = float(u.std()) / deviation
        assert abs(ratio - 1.0) < self.accuracy, f"Expected a deviation of {deviation:.3f}, got {ratio:.2f} times it."

    def test_a_seed_is_honored_and_the_hosts_random_numbers_are_left_alone(self) -> None:
        """The same seed gives the same draws, another one others."""
        torch.manual_seed(5)
        before = torch.get_rng_state()
        one, again, other = (self._sample(seed, 10, 10) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before), "The sampler changed the global generator."
        assert torch.equal(one.draws.u, again.draws.u), "Expected the same draws from the same seed, got others."
        assert not torch.equal(one.draws.u, other.draws.u), "Expected other draws from another seed, got the same."
