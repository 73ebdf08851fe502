"""Tests averaged over a posterior: the statistic of the average of Gram matrices, with the weights of the draws."""

from __future__ import annotations

import itertools
import warnings

import matplotlib
import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import GammaPrior
from scipy.stats import gamma

import kernel_embed as ke
from kernel_embed.hypothesis import HasKernelDraws
from kernel_embed.hypothesis.average_kernel import BLOCK_ENTRIES, AverageKernel, draws_of
from kernel_embed.posteriors import KernelDraws

from .data import rbf

N, M = 30, 25


def posterior_of(pooled, num_chains=1, num_samples=20):
    embedding = ke.BayesianMeanEmbedding(RBFKernel(lengthscale_prior=GammaPrior(2, 2)))
    steps = {"num_samples": num_samples, "warmup_steps": 20, "num_chains": num_chains, "seed": 0}
    with warnings.catch_warnings():
        # So few draws say little of the posterior; they are draws all the same, and here only their average counts.
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        return ke.sample_posterior(embedding, ke.EmbeddingEvidence(), pooled, **steps)


@pytest.fixture(scope="module")
def samples():
    generator = torch.Generator().manual_seed(0)
    x, y = (torch.randn(n, 2, generator=generator, dtype=torch.float64) for n in (N, M))
    return x, y + 0.6


@pytest.fixture(scope="module")
def posterior(samples):
    return posterior_of(torch.cat(samples))


@pytest.fixture(scope="module")
def weighed(posterior):
    """The same draws, the later ones ever more likely."""
    return posterior.reweighted(torch.arange(len(posterior.weights), dtype=torch.float64).square())


@pytest.fixture(scope="module", params=["posterior", "weighed"])
def either(request):
    return request.getfixturevalue(request.param)


def average_gram(posterior, a, b=None):
    """Σ_s w_s exp(−‖a − b‖²/2ℓ_s²), one draw after another."""
    b = a if b is None else b
    lengthscales = posterior.samples["kernel.lengthscale"].flatten()
    squares = torch.cdist(a, b).square()
    return sum(w * torch.exp(-0.5 * squares / ell**2) for w, ell in zip(posterior.weights, lengthscales, strict=True))


def centered(K):
    H = np.eye(len(K)) - 1 / len(K)
    return H @ K @ H


def test_a_posterior_has_kernel_draws(posterior, weighed):
    assert isinstance(posterior, HasKernelDraws)
    assert not isinstance(RBFKernel(), HasKernelDraws)
    draws = weighed.kernel_draws()
    assert torch.cat(draws.weights).equal(weighed.weights)
    assert sum(kernel.lengthscale.numel() for kernel in draws.kernels) == len(weighed.weights)


@pytest.mark.parametrize("statistic", ["biased", "unbiased"])
def test_two_samples(samples, either, statistic):
    x, y = samples
    Kx, Ky, Kxy = (average_gram(either, *pair).numpy() for pair in ((x,), (y,), samples))
    if statistic == "biased":
        expected = Kx.mean() + Ky.mean() - 2 * Kxy.mean()
    else:
        expected = (Kx.sum() - N) / (N * (N - 1)) + (Ky.sum() - M) / (M * (M - 1)) - 2 * Kxy.mean()
    result = ke.two_sample_test(x, y, either, 100, seed=0, statistic=statistic)
    assert result.statistic == pytest.approx(expected, rel=1e-9)
    assert 0 < result.pvalue < 0.05
    assert "(average of 20 draws)" in str(result)
    again = ke.two_sample_test(x, y, either.kernel_draws().kernels[0], 100, seed=0, statistic=statistic)
    assert (again.statistic == pytest.approx(expected, rel=1e-9)) == (float(either.weights.std()) < 1e-12)


def test_every_permuted_statistic_is_averaged(samples, weighed):
    """Against each draw by itself: the permutations are those of the seed, whatever the kernel."""
    parts = []
    for lengthscale in weighed.samples["kernel.lengthscale"].flatten():
        parts.append(ke.two_sample_test(*samples, rbf(lengthscale), 50, seed=3).null)
    together = ke.two_sample_test(*samples, weighed, 50, seed=3)
    assert torch.allclose(together.null, weighed.weights @ torch.stack(parts), rtol=1e-9)


def test_k_samples(samples, either):
    x, y = samples
    three = (x, y[:12], y[12:])
    pooled = torch.cat(three)
    K, start, expected = average_gram(either, pooled).numpy(), 0, 0.0
    for sample in three:
        weights = -np.full(len(pooled), 1 / len(pooled))
        weights[start : start + len(sample)] += 1 / len(sample)
        expected += len(sample) * weights @ K @ weights
        start += len(sample)
    assert ke.k_sample_test(*three, kernel=either, seed=0).statistic == pytest.approx(expected, rel=1e-9)


def test_gamma_has_the_moments_of_the_average_kernel(samples, either):
    K = average_gram(either, torch.cat(samples)).numpy()
    eigenvalues = np.linalg.eigvalsh(centered(K)) / len(K)
    factor = 1 / N + 1 / M
    mean, variance = factor * eigenvalues.sum(), 2 * factor**2 * np.square(eigenvalues).sum()
    result = ke.two_sample_test(*samples, either, null="gamma")
    expected = gamma.sf(result.statistic, mean**2 / variance, scale=variance / mean)
    assert result.pvalue == pytest.approx(expected, rel=1e-6)


def test_linear_time(samples, either):
    x, y = (sample[:24] for sample in samples)
    Kx, Ky, Kxy = (average_gram(either, *pair).numpy() for pair in ((x,), (y,), (x, y)))
    i = np.arange(0, 24, 2)
    h = Kx[i, i + 1] + Ky[i, i + 1] - Kxy[i, i + 1] - Kxy[i + 1, i]
    whole = ke.two_sample_test(x, y, either, 10_000, seed=0, statistic="linear")
    assert whole.statistic == pytest.approx(h.mean(), rel=1e-9)
    signs = np.array(list(itertools.product((-1, 1), repeat=len(h))))
    exact = np.mean(signs @ h >= h.sum() - 1e-12)  # of all 2^12 ways to flip them
    assert whole.pvalue == pytest.approx(exact, abs=5 * np.sqrt(exact * (1 - exact) / 10_000))
    stream = ke.hypothesis.LinearTimeTwoSampleTest(either)
    for part in range(0, 24, 7):
        stream.update(x[part : part + 7], y[part : part + 7])
    assert stream.result().statistic == pytest.approx(h.mean(), rel=1e-9)


def test_independence_of_x_and_y_each(samples, weighed):
    x = samples[0]
    y = x[:, :1].square() + 0.5 * torch.randn(N, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    of_y = posterior_of(y, num_samples=10)
    K, L = average_gram(weighed, x).numpy(), average_gram(of_y, y).numpy()
    L1 = torch.exp(-0.5 * torch.cdist(y, y).square()).numpy()
    for kernel_y, Ky in ((of_y, L), (rbf(1.0), L1)):
        result = ke.independence_test(x, y, weighed, 60, seed=0, kernel_y=kernel_y)
        assert result.statistic == pytest.approx(np.trace(centered(K) @ Ky) / N**2, rel=1e-6)
    near = ke.independence_test(x, y, weighed, kernel_y=of_y, null="gamma")
    assert near.statistic == pytest.approx(np.trace(centered(K) @ L) / N**2, rel=1e-9)
    mean = np.trace(centered(K)) * np.trace(centered(L)) / N**3
    variance = 2 * np.square(centered(K)).sum() * np.square(centered(L)).sum() / N**6
    assert near.pvalue == pytest.approx(gamma.sf(near.statistic, mean**2 / variance, scale=variance / mean), rel=1e-6)


def test_conditional_independence_by_both_methods(samples, weighed):
    x = samples[0]
    z = torch.randn(N, 1, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    residuals = ke.conditional_independence_test(x, x + z, z, weighed, 50, seed=0, kernel_y=weighed)
    assert residuals.pvalue < 0.05
    by_kernel = ke.conditional_independence_test(x, x + z, z, weighed, 50, seed=0, kernel_y=weighed, method="kernel")
    total = 0.0
    for w, ell in zip(weighed.weights, weighed.samples["kernel.lengthscale"].flatten(), strict=True):
        one = ke.conditional_independence_test(x, x + z, z, rbf(ell), 1, seed=0, kernel_y=weighed, method="kernel")
        total += float(w) * one.statistic
    assert by_kernel.statistic == pytest.approx(total, rel=1e-6)


def test_bayes_factors_are_averaged_by_weight(samples, weighed):
    expected = 0.0
    for w, ell in zip(weighed.weights.tolist(), weighed.samples["kernel.lengthscale"].flatten(), strict=True):
        expected += w * np.exp(ke.hypothesis.log_bayes_factor(*samples, rbf(ell)))
    assert ke.hypothesis.log_bayes_factor(*samples, weighed) == pytest.approx(np.log(expected), rel=1e-5)


def test_weights_of_modes_reach_the_test(samples):
    posterior = posterior_of(torch.cat(samples), num_chains=2, num_samples=10)
    modes = posterior.weigh_modes()
    result = ke.two_sample_test(*samples, modes, 20, seed=0)
    drawn = torch.cat(draws_of(result.kernel).weights)
    assert torch.allclose(drawn, modes.weights)


def test_where_the_samples_differ(samples, weighed):
    result = ke.two_sample_test(*samples, weighed, 20, seed=0)
    grid = torch.tensor([[-1.0, -1.0], [1.5, 1.5]], dtype=torch.float64)
    first, second = result.witness(noise=0.01)(grid).mean.detach()
    assert first > 0 > second
    result.plot()
    matplotlib.pyplot.close("all")


def test_an_average_in_blocks_of_rows(samples, weighed, monkeypatch):
    kernel = AverageKernel(weighed.kernel_draws()).double()
    x, y = samples
    whole = ke.gram(kernel, x, y)
    assert len(weighed.weights) * M < BLOCK_ENTRIES
    monkeypatch.setattr("kernel_embed.hypothesis.average_kernel.BLOCK_ENTRIES", 3 * len(weighed.weights) * M)
    assert torch.allclose(ke.gram(kernel, x, y), whole, rtol=1e-12)
    assert torch.allclose(ke.gram(kernel, x), average_gram(weighed, x), rtol=1e-9)
    assert torch.allclose(kernel(x, diag=True), torch.ones(N, dtype=torch.float64))
    assert kernel.batch_shape == torch.Size()


def test_draws_that_contradict_their_weights(samples):
    class Own:
        def __init__(self, *draws):
            self.draws = draws

        def kernel_draws(self):
            return KernelDraws(*self.draws)

    batch = RBFKernel(batch_shape=torch.Size([3]))
    assert ke.two_sample_test(*samples, Own((batch, RBFKernel()), (torch.full((3,), 0.25), torch.tensor(0.25))), 9)
    with pytest.raises(ValueError, match=r"the kernels have \[3\] draws, the weights \[2\] entries"):
        ke.two_sample_test(*samples, Own((batch,), (torch.full((2,), 0.5),)))
    with pytest.raises(ValueError, match=r"nonnegative and sum to 1; they sum to 3, and the smallest is 1"):
        ke.two_sample_test(*samples, Own((batch,), (torch.ones(3),)))
    with pytest.raises(ValueError, match="nonnegative"):
        ke.two_sample_test(*samples, Own((batch,), (torch.tensor([-1.0, 1.0, 1.0]),)))
    with pytest.raises(TypeError, match="must return gpytorch kernels"):
        ke.two_sample_test(*samples, Own((), ()))
    with pytest.raises(TypeError, match=r"a posterior \(anything with kernel_draws\(\)\).*not BayesianMeanEmbedding"):
        ke.two_sample_test(*samples, ke.BayesianMeanEmbedding(RBFKernel()))
    with pytest.raises(TypeError, match=r"must be one gpytorch.kernels.Kernel or a posterior"):
        ke.hypothesis.LinearTimeTwoSampleTest("median")
