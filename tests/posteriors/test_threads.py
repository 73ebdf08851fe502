"""Two calls at once, in threads: each answers as it would alone."""

from concurrent.futures import ThreadPoolExecutor

import gpytorch
import pytest
import torch
from gpytorch.kernels import InducingPointKernel, RBFKernel

import kernel_embed as ke

from ..conftest import make_problem


def draws(seed: int) -> torch.Tensor:
    x = torch.randn(20, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    embedding = ke.BayesianMeanEmbedding(RBFKernel().double())
    posterior = ke.sample_posterior(
        embedding, ke.EmbeddingEvidence(), x, num_samples=8, warmup_steps=8, num_chains=1, seed=seed
    )
    return posterior.samples["kernel.lengthscale"]


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
def test_draws_are_those_of_each_seed_alone() -> None:
    alone = [draws(seed) for seed in range(2)]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(draws, range(2)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_inducing_points_are_evaluated_by_many_threads() -> None:
    problem = make_problem()
    kernel = InducingPointKernel(RBFKernel(), problem.x[:5].clone(), gpytorch.likelihoods.GaussianLikelihood()).double()
    assert kernel.training
    expected = ke.kernels.gram(kernel, problem.x, problem.x[:7]).detach()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: ke.kernels.gram(kernel, problem.x, problem.x[:7]).detach(), range(40)))
    assert all(torch.equal(answer, expected) for answer in answers)
    assert kernel.training
