"""What a sampler must satisfy, on a posterior of one parameter that is known by quadrature."""

from __future__ import annotations

from typing import ClassVar

import gpytorch
import numpy as np
import torch

from ..embeddings import BayesianMeanEmbedding
from ..objectives import EmbeddingEvidence
from ..posteriors import MeanPosterior, Sampler, sample_posterior


class SamplerContract:
    """Inherit and write :meth:`make_sampler`. Its posterior is sampled once per class and shared by the tests.

    Attributes:
        num_samples: draws of each of two chains.
        warmup_steps: before them.
        accuracy: of the mean and the deviation of log ℓ, in posterior standard deviations.

    Example:
        >>> import kernel_embed as ke
        >>> from kernel_embed.testing import SamplerContract
        >>> class TestMine(SamplerContract):
        ...     def make_sampler(self):
        ...         return ke.NUTS()
    """

    num_samples = 150
    warmup_steps = 100
    accuracy = 0.4

    def make_sampler(self) -> Sampler:
        """The sampler.

        Raises:
            TypeError: if the subclass does not write it.
        """
        raise TypeError("Expected a method make_sampler that returns a sampler, got none. Write it.")

    _posterior: ClassVar[MeanPosterior | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._posterior = None

    def _shared(self) -> MeanPosterior:
        kind = type(self)
        if kind._posterior is None:
            kind._posterior = self._sample()
        return kind._posterior

    def _sample(self, seed: int = 0, num_samples: int | None = None) -> MeanPosterior:
        x = torch.randn(25, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        kernel = gpytorch.kernels.RBFKernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 2.0))
        return sample_posterior(
            BayesianMeanEmbedding(kernel),
            EmbeddingEvidence(),
            x,
            num_samples=self.num_samples if num_samples is None else num_samples,
            warmup_steps=self.warmup_steps if num_samples is None else num_samples,
            num_chains=2,
            seed=seed,
            sampler=self.make_sampler(),
            progress=False,
        )

    def test_draws_have_their_shapes(self) -> None:
        """(chains, draws, parameters) and a log density for each."""
        posterior = self._shared()
        shape = (2, self.num_samples, 1)
        assert posterior.draws.u.shape == shape, (
            f"Expected draws of shape {shape}, got {tuple(posterior.draws.u.shape)}."
        )
        density = posterior.draws.log_density
        assert density.shape == shape[:2], f"Expected log densities of shape {shape[:2]}, got {tuple(density.shape)}."
        assert bool(torch.isfinite(posterior.draws.u).all()), "Expected finite draws, got others."

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
        one, again, other = (self._sample(seed, num_samples=10) for seed in (1, 1, 2))
        assert torch.equal(torch.get_rng_state(), before), "The sampler changed the global generator."
        assert torch.equal(one.draws.u, again.draws.u), "Expected the same draws from the same seed, got others."
        assert not torch.equal(one.draws.u, other.draws.u), "Expected other draws from another seed, got the same."
