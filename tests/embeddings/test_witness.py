"""The witness function, its band, and the posterior of MMD²."""

import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel

from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.embeddings.witness import Witness
from kernel_embed.kernels.smoothed import DiscreteMeasure

from ..bayesian_kernels import rbf


@pytest.fixture
def samples(x):
    return x, 1.5 * x[:13] + 0.7


def test_posterior_of_the_difference(samples):
    x, y = samples
    embedding = BayesianMeanEmbedding(rbf(0.7), noise=0.05)
    witness = Witness(embedding, x, y)
    query = torch.randn(6, 2, dtype=torch.float64)
    p, q = embedding.condition(x)(query), embedding.condition(y)(query)
    torch.testing.assert_close(witness(query).mean, p.mean - q.mean)
    torch.testing.assert_close(witness(query).covariance_matrix, p.covariance_matrix + q.covariance_matrix)
    lower, upper = witness.band(query, 0.8)
    deviation = witness(query).variance.sqrt()
    torch.testing.assert_close(upper - lower, 2 * 1.2815515655446004 * deviation)
    torch.testing.assert_close(0.5 * (upper + lower), witness(query).mean)


def test_squared_distance_is_the_norm_of_draws(samples):
    x, y = samples
    kernel = rbf(0.7)
    measure = DiscreteMeasure(torch.randn(5, 2, dtype=torch.float64))
    embedding = BayesianMeanEmbedding(kernel, noise=0.05, measure=measure)
    witness = Witness(embedding, x, y)
    posterior = witness.squared_distance()
    # a draw of the witness at the atoms determines it: ‖f‖² = fᵀ K_uu⁻¹ f
    at_atoms = witness(measure.atoms)
    K = kernel(measure.atoms).to_dense()
    root = torch.linalg.cholesky(at_atoms.covariance_matrix + 1e-14 * torch.eye(5, dtype=torch.float64))
    draws = at_atoms.mean + torch.randn(200_000, 5, dtype=torch.float64) @ root.mT
    norms = (draws * torch.linalg.solve(K, draws.mT).mT).sum(-1)
    assert posterior.mean.item() == pytest.approx(norms.mean().item(), rel=0.02)
    assert posterior.variance.item() == pytest.approx(norms.var().item(), rel=0.05)
    own = posterior.sample(200_000, seed=0)
    assert own.mean().item() == pytest.approx(posterior.mean.item(), rel=0.02)
    assert own.var().item() == pytest.approx(posterior.variance.item(), rel=0.05)
    lower, upper = posterior.interval(0.8)
    torch.testing.assert_close(lower, norms.quantile(0.1), rtol=0.05, atol=1e-3)
    torch.testing.assert_close(upper, norms.quantile(0.9), rtol=0.05, atol=1e-3)


def test_the_distance_grows_with_the_difference(samples):
    x, _ = samples
    embedding = BayesianMeanEmbedding(rbf(0.7), noise=0.01, measure=DiscreteMeasure.from_sample(x))
    means = [Witness(embedding, x, x + shift).squared_distance().mean.item() for shift in (0.0, 0.5, 1.5)]
    assert means == sorted(means)
    # of two equal samples the posteriors are equal but independent: what is left is their uncertainty
    equal = Witness(embedding, x, x).squared_distance()
    assert equal.between_means.item() == pytest.approx(0.0, abs=1e-12)
    assert equal.mean.item() == pytest.approx((equal._G * equal._S).sum().item())


def test_an_infinite_measure_is_replaced_and_named(samples):
    posterior = Witness(BayesianMeanEmbedding(rbf(0.7)), *samples).squared_distance(num_atoms=12)
    assert repr(posterior) == "SquaredDistancePosterior(discrete measure with 12 atoms)"
    assert posterior.mean > 0


def test_both_samples_share_their_atoms(samples):
    witness = Witness(BayesianMeanEmbedding(PeriodicKernel().double()), *samples)
    torch.testing.assert_close(witness.first.covariance.measure.atoms, witness.second.covariance.measure.atoms)


def test_draws_are_one_more_batch_dimension(samples):
    kernel = RBFKernel(batch_shape=torch.Size([2])).double()
    kernel.lengthscale = torch.tensor([0.4, 0.9]).double()[:, None, None]
    witness = Witness(BayesianMeanEmbedding(kernel), *samples)
    query = torch.randn(4, 2, dtype=torch.float64)
    assert witness(query).mean.shape == (2, 4)
    together = witness.squared_distance()
    assert together.sample(7).shape == (7, 2)
    alone = Witness(BayesianMeanEmbedding(rbf(kernel.lengthscale[1].item())), *samples).squared_distance()
    torch.testing.assert_close(together.mean[1], alone.mean)
    torch.testing.assert_close(together.variance[1], alone.variance)


def test_samples_of_different_width(samples):
    x, y = samples
    with pytest.raises(ValueError, match=r"one width, got 2 columns in x and 1 in y"):
        Witness(BayesianMeanEmbedding(rbf(0.7)), x, y[:, :1])
