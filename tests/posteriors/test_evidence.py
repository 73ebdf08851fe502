"""The evidence means ∫ exp(−U) du to every sampler: against quadrature over the lengthscale, prior by prior."""

import math
import warnings

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.kernels import RBFKernel
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior
from scipy import stats

import kernel_embed as ke
from kernel_embed.posteriors import SMC, SVI, Draws, Laplace
from kernel_embed.posteriors.draws import (
    energy_information,
    n_eff,
    n_eff_tail,
    problems,
    r_hat,
    rank_r_hat,
    summarize,
)
from kernel_embed.posteriors.smc import log_evidence

from .test_potential import Flat

X = torch.as_tensor(np.random.RandomState(0).randn(4, 1))
CENTER, WIDTH = 0.6, 0.25


class Hill(Flat):
    """A likelihood that is a narrow hill in log ℓ."""

    def evaluate(self, conditioned):
        return 0.5 * ((conditioned.embedding.kernel.lengthscale.log().squeeze() - CENTER) / WIDTH) ** 2


class Nowhere(Flat):
    """A likelihood that is 0 everywhere."""

    def evaluate(self, conditioned):
        return math.inf + 0.0 * conditioned.x.sum()


def inverse_square(kernel, prior):
    kernel.register_prior(
        "inverse_square_prior",
        prior,
        lambda module: module.lengthscale.pow(-2),
        lambda module, value: module._set_lengthscale(value.rsqrt()),
    )
    return kernel


def lognormal(t):
    return stats.norm(0.0, 0.8).pdf(t)


CASES = {
    "plain": (lambda: RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 0.8)), lognormal),
    "closure": (
        lambda: inverse_square(RBFKernel(), GammaPrior(2.0, 3.0)),
        lambda t: stats.gamma(2.0, scale=1 / 3.0).pdf(np.exp(-2 * t)) * 2 * np.exp(-2 * t),
    ),
    "factor": (
        lambda: inverse_square(RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 0.8)), GammaPrior(2.0, 9.0)),
        lambda t: lognormal(t) * stats.gamma(2.0, scale=1 / 9.0).pdf(np.exp(-2 * t)),
    ),
    "cut off": (
        lambda: RBFKernel(lengthscale_prior=NormalPrior(-0.5, 1.2), lengthscale_constraint=GreaterThan(0.1)),
        lambda t: stats.norm(-0.5, 1.2).pdf(np.exp(t)) * np.exp(t) * (np.exp(t) > 0.1),
    ),
}


def quadrature(prior):
    """log ∫ of the hill times the prior, a density of t = log ℓ."""
    t = np.linspace(-4, 5, 40001)
    return math.log(np.trapezoid(np.exp(-0.5 * ((t - CENTER) / WIDTH) ** 2) * prior(t), t))


def sample(kernel, sampler, objective=None, **settings):
    settings = {"num_chains": 2, "num_samples": 200, "seed": 0, "progress": False, **settings}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        embedding = ke.BayesianMeanEmbedding(kernel)
        return ke.sample_posterior(embedding, objective or Hill(), X, sampler=sampler, **settings)


@pytest.mark.parametrize("case", CASES)
def test_every_sampler_agrees_with_quadrature(case):
    make, prior = CASES[case]
    exact = quadrature(prior)
    tempered = sample(make(), SMC(num_moves=3))
    assert tempered.log_evidence == pytest.approx(exact, abs=0.15)
    assert sample(make(), Laplace(), num_samples=5).log_evidence == pytest.approx(exact, abs=0.03)
    u, log_density = tempered.draws.u.flatten(0, 1), tempered.draws.log_density.flatten()
    assert log_evidence(tempered.potential, u, log_density) == pytest.approx(exact, abs=0.1)


def test_particles_follow_a_prior_that_is_a_factor():
    """Where the data say nothing the draws are those of both priors."""
    make, prior = CASES["factor"]
    t = np.linspace(-4, 5, 40001)
    mean = np.trapezoid(t * prior(t), t) / np.trapezoid(prior(t), t)
    posterior = sample(make(), SMC(num_moves=3), Flat())
    assert posterior.samples["kernel.lengthscale"].log().mean().item() == pytest.approx(mean, abs=0.06)
    assert posterior.log_evidence == pytest.approx(math.log(np.trapezoid(prior(t), t)), abs=0.15)


@pytest.mark.parametrize("sampler", [Laplace(), SVI(num_steps=5)], ids=repr)
def test_draws_of_an_approximation_have_no_modes_to_weigh(sampler, tmp_path):
    posterior = sample(CASES["plain"][0](), sampler, ke.EmbeddingEvidence(), num_samples=10)
    posterior.save(tmp_path / "draws.npz")
    embedding = ke.BayesianMeanEmbedding(CASES["plain"][0]())
    for each in (posterior, ke.load_posterior(tmp_path / "draws.npz", embedding, ke.EmbeddingEvidence())):
        with pytest.raises(ValueError, match=f"draws of {sampler.name}.* Sample with NUTS"):
            each.weigh_modes()


@pytest.mark.parametrize("objective", [Nowhere(), ke.EmbeddingEvidence()], ids=["nowhere", "outlier"])
def test_particles_without_a_likelihood_are_an_error(objective):
    x = torch.cat([X, torch.full((1, 1), 1e300, dtype=torch.float64)])
    embedding = ke.BayesianMeanEmbedding(RBFKernel())
    with pytest.raises(ValueError, match="cannot be evaluated at any of 20 draws from the prior"):
        ke.sample_posterior(embedding, objective, x, num_samples=20, num_chains=1, seed=0, sampler=SMC())


def test_likelihoods_that_no_step_can_follow_are_an_error():
    embedding = ke.BayesianMeanEmbedding(RBFKernel())
    with pytest.raises(ValueError, match=r"Particles cannot follow .* log likelihoods are .* apart at β = 0"):
        ke.sample_posterior(
            embedding, ke.EmbeddingEvidence(), 1e30 * X, num_samples=20, num_chains=1, seed=0, sampler=SMC()
        )


def test_a_prior_whose_draws_cannot_be_set_is_an_error():
    kernel = RBFKernel()
    kernel.register_prior("size_prior", GammaPrior(2.0, 3.0), lambda module: module.lengthscale.square())
    with pytest.raises(ValueError, match="Only 0 of 2000 draws"):
        sample(kernel, SMC())


# --- diagnostics ------------------------------------------------------------------------------------------------------


def chains(kind, num_chains=4, num_samples=101):
    generator = np.random.default_rng(0)
    noise = generator.standard_normal((num_chains, num_samples))
    if kind == "random walk":
        return noise.cumsum(1)
    if kind == "antithetic":
        noise[:, 1::2] = -0.9 * noise[:, :-1:2] if num_samples % 2 else -0.9 * noise[:, ::2]
        return noise
    if kind == "apart":
        return noise + np.arange(num_chains)[:, None]
    if kind == "ties":
        return noise.round()
    return noise if kind == "independent" else np.tan(noise)


@pytest.mark.parametrize("kind", ["independent", "random walk", "antithetic", "apart", "ties", "heavy tails"])
@pytest.mark.parametrize("shape", [(4, 101), (1, 60), (3, 8)])
def test_they_are_arvizs(kind, shape):
    arviz = pytest.importorskip("arviz")
    draws = chains(kind, *shape)
    tensor = torch.from_numpy(draws)
    assert n_eff(tensor).item() == pytest.approx(float(arviz.ess(draws, method="bulk")), rel=1e-9)
    assert n_eff_tail(tensor).item() == pytest.approx(float(arviz.ess(draws, method="tail")), rel=1e-9)
    if shape[0] > 1:
        assert rank_r_hat(tensor).item() == pytest.approx(float(arviz.rhat(draws, method="rank")), rel=1e-9)
    np.testing.assert_allclose(energy_information(tensor).numpy(), arviz.bfmi(draws), rtol=1e-9)


def test_every_entry_is_its_own():
    draws = torch.from_numpy(np.stack([chains("random walk"), chains("independent")], axis=-1)).unsqueeze(2)
    assert n_eff(draws).shape == (1, 2)
    assert n_eff(draws)[0, 1] == n_eff(draws[:, :, 0, 1])


def draws(u, **fields):
    zeros = torch.zeros(u.shape[:2])
    return Draws(u, zeros, **fields)


def warnings_of(draws, max_depth=10):
    return " ".join(problems(draws, {"a": draws.u}, max_depth))


def test_good_chains_are_quiet_and_bad_ones_name_the_remedy():
    u = torch.from_numpy(chains("independent", 2, 200)).unsqueeze(-1)
    energy, depth = torch.from_numpy(chains("independent", 2, 200)), torch.full((2, 200), 3)
    assert warnings_of(draws(u, energy=energy, depth=depth)) == ""
    still = u.clone()
    still[1] = 0.0
    assert "Chains that never moved: 1, of 2" in warnings_of(draws(still))
    slow = torch.from_numpy(chains("random walk", 2, 200))
    assert "E-BFMI" in warnings_of(draws(u, energy=slow, depth=depth))
    assert "max_tree_depth=3" in warnings_of(draws(u, energy=energy, depth=depth), max_depth=3)


def test_the_summary_says_how_trajectories_went():
    u = torch.from_numpy(chains("independent", 2, 50)).unsqueeze(-1)
    found = draws(u, energy=torch.from_numpy(chains("independent", 2, 50)), depth=torch.full((2, 50), 3))
    summary = summarize({"a": u}, torch.full((100,), 0.01, dtype=torch.float64), found)
    assert (summary.num_divergences, summary.tree_depth) == (0, 3)
    assert summary.e_bfmi.shape == (2,)
    assert "0 divergences, tree depth up to 3, E-BFMI" in str(summary)
    assert summary["a"]["n_eff_tail"].shape == (1,)
    assert "divergences" not in str(summarize({"a": u}, torch.full((100,), 0.01, dtype=torch.float64), draws(u)))


def test_r_hat_of_chains_that_never_move():
    still = torch.zeros(2, 10, 1)
    assert r_hat(still).item() == 1.0
    still[1] = 1.0
    assert r_hat(still).item() == math.inf
