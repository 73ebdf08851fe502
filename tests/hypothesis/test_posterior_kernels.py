"""Tests averaged over a posterior: the statistic of the average of Gram matrices, with the weights of the draws."""

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
from kernel_embed.hypothesis.kernel_choice import BLOCK_ENTRIES, AverageKernel, draws_of

from .data import AVERAGED, KERNELS, LENGTHSCALES, WEIGHTS, Draws, centered, loop_gram, normal, rbf

N, M = 30, 25
PARTS = KERNELS["averaged"][1]
SAMPLES = normal(0, N, 2), normal(1, M, 2) + 0.6


@pytest.fixture(scope="module")
def posterior():
    embedding = ke.BayesianMeanEmbedding(RBFKernel(lengthscale_prior=GammaPrior(2, 2)))
    steps = {"num_samples": 10, "warmup_steps": 20, "num_chains": 2, "seed": 0}
    with warnings.catch_warnings():
        # So few draws say little of the posterior; they are draws all the same, and here only their average counts.
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        return ke.sample_posterior(embedding, ke.EmbeddingEvidence(), torch.cat(SAMPLES), **steps)


def test_the_weighted_draws_of_a_posterior_reach_the_test(posterior):
    assert isinstance(posterior, HasKernelDraws)
    assert not isinstance(RBFKernel(), HasKernelDraws)
    modes = posterior.weigh_modes()
    later = posterior.reweighted(torch.arange(20, dtype=torch.float64).square())
    for weighed in (posterior, modes, later):
        draws = draws_of(ke.two_sample_test(*SAMPLES, weighed, 20, seed=0).kernel)
        assert torch.allclose(torch.cat(draws.weights), weighed.weights)
        assert sum(kernel.lengthscale.numel() for kernel in draws.kernels) == 20
    result = ke.two_sample_test(*SAMPLES, later, 20, seed=0)
    parts = list(zip(later.weights.tolist(), later.samples["kernel.lengthscale"].flatten().tolist(), strict=True))
    x, y = (sample.numpy() for sample in SAMPLES)
    expected = [loop_gram(*pair, parts).mean() for pair in ((x, x), (y, y), (x, y))]
    assert result.statistic == pytest.approx(expected[0] + expected[1] - 2 * expected[2], rel=1e-9)
    assert "(average of 20 draws)" in str(result)
    first, second = result.witness(noise=0.01)(torch.tensor([[-1.0, -1.0], [1.5, 1.5]]).double()).mean.detach()
    assert first > 0 > second
    result.plot()
    matplotlib.pyplot.close("all")


def test_every_permuted_statistic_is_averaged():
    """Against each draw by itself: the permutations are those of the seed, whatever the kernel."""
    parts = torch.stack([ke.two_sample_test(*SAMPLES, rbf(ell), 50, seed=3).null for ell in LENGTHSCALES])
    assert torch.allclose(ke.two_sample_test(*SAMPLES, AVERAGED, 50, seed=3).null, WEIGHTS @ parts, rtol=1e-9)


@pytest.mark.parametrize("ell_y", [AVERAGED, rbf(1.0)], ids=["both averaged", "one averaged"])
def test_independence_of_x_and_y_each(ell_y):
    x = SAMPLES[0]
    y = x[:, :1].square() + 0.5 * normal(1, N, 1)
    K, L = (loop_gram(a, a, p) for a, p in ((x.numpy(), PARTS), (y.numpy(), PARTS if ell_y is AVERAGED else 1.0)))
    statistic = pytest.approx(np.trace(centered(K) @ L) / N**2, rel=1e-6)
    assert ke.independence_test(x, y, AVERAGED, 60, seed=0, kernel_y=ell_y).statistic == statistic
    near = ke.independence_test(x, y, AVERAGED, kernel_y=ell_y, null="gamma")
    assert near.statistic == statistic
    mean = np.trace(centered(K)) * np.trace(centered(L)) / N**3
    variance = 2 * np.square(centered(K)).sum() * np.square(centered(L)).sum() / N**6
    assert near.pvalue == pytest.approx(gamma.sf(near.statistic, mean**2 / variance, scale=variance / mean), rel=1e-6)


def test_conditional_independence_and_bayes_factors_are_averaged_by_weight():
    x, z = SAMPLES[0], normal(2, N, 1)
    assert ke.conditional_independence_test(x, x + z, z, AVERAGED, 50, seed=0, kernel_y=AVERAGED).pvalue < 0.05

    def statistic(kernel):
        settings = {"seed": 0, "kernel_y": AVERAGED, "method": "kernel"}
        return ke.conditional_independence_test(x, x + z, z, kernel, 1, **settings).statistic

    def factor(kernel):
        return np.exp(ke.hypothesis.log_bayes_factor(*SAMPLES, kernel))

    for value in (statistic, factor):
        assert value(AVERAGED) == pytest.approx(sum(w * value(rbf(ell)) for w, ell in PARTS), rel=1e-5)


def test_an_average_in_blocks_of_rows(monkeypatch):
    kernel = AverageKernel(AVERAGED.kernel_draws()).double()
    x, y = SAMPLES
    whole = ke.gram(kernel, x, y)
    assert len(WEIGHTS) * M < BLOCK_ENTRIES
    monkeypatch.setattr("kernel_embed.hypothesis.kernel_choice.BLOCK_ENTRIES", 3 * len(WEIGHTS) * M)
    assert torch.allclose(ke.gram(kernel, x, y), whole, rtol=1e-12)
    assert torch.allclose(ke.gram(kernel, x), torch.as_tensor(loop_gram(x.numpy(), x.numpy(), PARTS)), rtol=1e-9)
    for n in (2, 3, 4, N):  # also as many rows as draws
        np.testing.assert_allclose(
            kernel(x[:n], x.flip(0)[:n], diag=True).detach(), ke.gram(kernel, x[:n], x.flip(0)[:n]).detach().diagonal()
        )
        assert ke.kernels.gram_diagonal(AVERAGED.kernels[0], x[:n]).shape == (3, n)
    assert kernel.batch_shape == torch.Size()


THREE = RBFKernel(batch_shape=torch.Size([3]))
CONTRADICTIONS = [
    (ValueError, r"the kernels have \[3\] draws, the weights \[2\] entries", Draws((THREE,), (torch.full((2,), 0.5),))),
    (ValueError, r"nonnegative and sum to 1; they sum to 3, and the smallest is 1", Draws((THREE,), (torch.ones(3),))),
    (ValueError, "nonnegative", Draws((THREE,), (torch.tensor([-1.0, 1.0, 1.0]),))),
    (TypeError, "must return gpytorch kernels", Draws((), ())),
    (TypeError, r"anything with kernel_draws\(\)\).*not BayesianMeanEmb", ke.BayesianMeanEmbedding(RBFKernel())),
]


@pytest.mark.parametrize(("error", "message", "kernel"), CONTRADICTIONS)
def test_draws_that_contradict_their_weights_are_refused(error, message, kernel):
    with pytest.raises(error, match=message):
        ke.two_sample_test(*SAMPLES, kernel)


def test_draws_come_in_batches_and_alone_and_a_stream_takes_one_kernel():
    mixed = Draws((THREE, RBFKernel()), (torch.full((3,), 0.25), torch.tensor(0.25)))
    assert ke.two_sample_test(*SAMPLES, mixed, 9)
    with pytest.raises(TypeError, match=r"must be one gpytorch.kernels.Kernel or a posterior"):
        ke.hypothesis.LinearTimeTwoSampleTest("median")
