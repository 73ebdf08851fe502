"""Samplers are values: their options, seeds, and samplers of the user's own."""

from __future__ import annotations

import copy
import dataclasses
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors import NUTS, SMC, SVI, Draws, Laplace, Nutpie, Plan, Sampler
from kernel_embed.posteriors.potential import Potential

from .test_potential import Flat

X, X12 = (torch.as_tensor(np.random.RandomState(0).randn(n, 1)) for n in (4, 12))


def embedding():
    return ke.BayesianMeanEmbedding(RBFKernel(lengthscale_prior=LogNormalPrior(0.5, 0.4)))


@pytest.mark.parametrize(
    "sampler", [NUTS(max_tree_depth=4), SMC(num_moves=3), SVI(num_steps=9), Laplace(max_evaluations=7)], ids=repr
)
def test_a_sampler_is_a_value(sampler):
    assert sampler == copy.copy(sampler) == eval(repr(sampler))
    assert hash(sampler) == hash(copy.copy(sampler))
    assert sampler != type(sampler)()
    assert sampler.name == type(sampler).__name__.lower()
    with pytest.raises(dataclasses.FrozenInstanceError):
        sampler.anything = 1


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
@pytest.mark.parametrize(
    "sampler",
    [NUTS(), NUTS(random_walk=False, full_mass=True), SMC(num_moves=1), SVI(num_steps=5), Laplace(), Nutpie()],
    ids=repr,
)
def test_one_seed_one_result_and_the_host_is_left_alone(sampler):
    if isinstance(sampler, Nutpie):
        pytest.importorskip("nutpie")

    def draws(seed):
        settings = {"num_samples": 6, "warmup_steps": 8, "num_chains": 2, "seed": seed, "sampler": sampler}
        return ke.sample_posterior(embedding(), ke.EmbeddingEvidence(), X, **settings).draws.u

    torch.manual_seed(5)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    first, second, other = (draws(seed) for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
def test_two_threads_draw_what_each_seed_draws_alone():
    def draws(seed):
        settings = {"num_samples": 8, "warmup_steps": 8, "num_chains": 1, "seed": seed}
        return ke.sample_posterior(embedding(), ke.EmbeddingEvidence(), X12, **settings).draws.u

    alone = [draws(seed) for seed in range(2)]
    torch.manual_seed(1)
    before = torch.get_rng_state()
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(draws, range(2)))
    assert all(torch.equal(a, b) for a, b in zip(alone, together, strict=True))
    assert torch.equal(torch.get_rng_state(), before)


def test_nutpie_draws_from_the_same_posterior_as_pyro():
    pytest.importorskip("nutpie")
    settings = {"num_samples": 300, "warmup_steps": 200, "num_chains": 2, "seed": 0, "initial": "current"}
    nutpie, pyro = (
        ke.sample_posterior(embedding(), ke.EmbeddingEvidence(), X12, sampler=sampler, **settings)
        for sampler in (Nutpie(full_mass=True), NUTS())
    )
    assert nutpie.method == "nutpie"
    draws, others = (p.samples["kernel.lengthscale"].log().flatten() for p in (nutpie, pyro))
    assert len(draws) == 600
    # Standard errors of about 0.03 each: five of them, with these seeds fixed.
    assert abs(draws.mean() - others.mean()) < 0.15
    assert 0.7 < draws.std() / others.std() < 1.4
    assert nutpie.summary()["kernel.lengthscale"]["r_hat"].max() < 1.05
    assert nutpie.draws.num_evaluations > 600


def test_the_extra_is_named_if_nutpie_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "nutpie", None)
    with pytest.raises(ModuleNotFoundError, match=r"kernel-embed\[nutpie\]"):
        ke.sample_posterior(embedding(), Flat(), X, sampler=Nutpie())


def test_a_class_of_samplers_may_name_itself():
    class Mine(Laplace):
        name = "a first look"

    posterior = ke.sample_posterior(embedding(), Flat(), X, num_samples=2, num_chains=1, seed=0, sampler=Mine())
    assert posterior.method == Mine().name == "a first look"


BAD_OPTIONS = [
    (NUTS, {"target_accept_prob": 1.0}, "target_accept_prob between 0 and 1, got 1.0"),
    (NUTS, {"max_tree_depth": 0}, "max_tree_depth of at least 1, got 0"),
    (NUTS, {"step_size": 0.0}, "step_size above 0"),
    (Nutpie, {"target_accept_prob": 0.0}, "target_accept_prob between 0 and 1"),
    (Nutpie, {"max_tree_depth": 0}, "max_tree_depth of at least 1"),
    (SMC, {"num_moves": 0}, "num_moves of at least 1"),
    (SVI, {"num_steps": 0}, "num_steps of at least 1"),
    (SVI, {"learning_rate": -1.0}, "learning_rate above 0"),
    (Laplace, {"max_evaluations": 0}, "max_evaluations of at least 1"),
]


@pytest.mark.parametrize(("sampler", "options", "message"), BAD_OPTIONS)
def test_options_are_checked_where_they_are_written(sampler, options, message):
    with pytest.raises(ValueError, match=f"Expected {message}"):
        sampler(**options)


def test_nuts_decides_what_is_left_open():
    potential = Potential(embedding(), Flat(), X, None)
    start = potential.vector.get()
    plan = Plan([start], num_samples=10, warmup_steps=5, seeds=[0], bar=None)
    decided = NUTS(random_walk=False).decided(potential, plan._replace(from_prior=True))
    assert decided == NUTS(random_walk=False, settle=True, parallel=False)
    assert not NUTS().decided(potential, plan).settle


def test_more_particles_than_draws():
    settings = {"num_samples": 5, "num_chains": 2, "seed": 0}
    posterior = ke.sample_posterior(embedding(), Flat(), X, sampler=SMC(num_moves=1, num_particles=20), **settings)
    assert posterior.samples["kernel.lengthscale"].shape == (10, 1, 1)
    assert posterior.num_evaluations > 2 * 20
    with pytest.raises(ValueError, match="num_particles of at least num_samples=5, got 3"):
        ke.sample_posterior(embedding(), Flat(), X, sampler=SMC(num_particles=3), **settings)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metropolis(Sampler):
    """A random walk of one's own, with an option."""

    uses_warmup = True
    scale: float = 0.8

    def sample(self, potential, plan):
        chains = []
        for start, seed in zip(plan.starts, plan.seeds, strict=True):
            generator, here, energy, chain = np.random.default_rng(seed), start, potential.value(start), []
            for _ in range(plan.warmup_steps + plan.num_samples):
                there = here + self.scale * generator.standard_normal(len(here))
                proposed = potential.value(there)
                if np.log(generator.uniform()) < energy - proposed:
                    here, energy = there, proposed
                chain.append((here, -energy))
                plan.bar.update()
            chains.append(chain[plan.warmup_steps :])
        u = torch.as_tensor(np.array([[point for point, _ in chain] for chain in chains]))
        return Draws(u, torch.tensor([[v for _, v in chain] for chain in chains]))


@pytest.mark.filterwarnings("ignore::kernel_embed.posteriors.PosteriorWarning")
def test_a_sampler_of_ones_own():
    """log ℓ ~ N(0.5, 0.4²), within four standard errors of the effective draws; every question is answered."""
    posterior = ke.sample_posterior(
        embedding(), Flat(), X, num_samples=300, warmup_steps=50, num_chains=2, seed=0, sampler=Metropolis()
    )
    assert type(posterior) is ke.posteriors.MeanPosterior
    assert posterior.method == "metropolis"
    t = posterior.samples["kernel.lengthscale"].log()
    n = posterior.summary()["kernel.lengthscale"]["n_eff"].item()
    assert abs(t.mean().item() - 0.5) < 4 * 0.4 / n**0.5
    assert posterior.mean(X).shape == (4,)
    assert posterior.num_evaluations > 700


class Broken(Sampler):
    """A sampler whose author forgot something."""

    def __init__(self, answer):
        object.__setattr__(self, "answer", answer)

    def sample(self, potential, plan):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "error", "message"),
    [
        (None, TypeError, "must return Draws, not NoneType"),
        (Draws(torch.zeros(2, 5), torch.zeros(2, 5)), ValueError, r"num_samples, 1\)"),
        (Draws(torch.zeros(2, 5, 1), torch.zeros(2, 4)), ValueError, "log_density"),
    ],
)
def test_draws_of_the_wrong_shape_are_named(answer, error, message):
    with pytest.raises(error, match=message):
        ke.sample_posterior(embedding(), Flat(), X, num_chains=2, sampler=Broken(answer))
