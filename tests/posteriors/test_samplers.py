"""Samplers against quadrature and known distributions, their errors, and their warnings."""

from __future__ import annotations

import dataclasses
import math
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import gpytorch
import numpy as np
import pyro.infer
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NotPSDError

import kernel_embed as ke
from kernel_embed.posteriors import NUTS, SMC, SVI, Draws, Laplace, Nutpie, Plan, Sampler
from kernel_embed.posteriors.draws import modes, n_eff
from kernel_embed.posteriors.nuts import Chain, correlate
from kernel_embed.posteriors.potential import Potential
from kernel_embed.posteriors.smc import log_evidence
from kernel_embed.posteriors.transitions import State, Trajectory

from .test_potential import Flat

X = torch.as_tensor(np.random.RandomState(0).randn(4, 1))
WEIGHTS, CENTRES, WIDTH = (0.3, 0.7), (-1.5, 1.5), 0.15


class TwoModes(Flat):
    """Two narrow hills in log ℓ with weights 0.3 and 0.7; where ``forbidden`` says so it does not exist."""

    def __init__(self, forbidden=lambda t: False, interrupt_after=None, width=WIDTH):
        self.forbidden, self.left, self.width = forbidden, interrupt_after, width

    def evaluate(self, conditioned):
        if self.left is not None:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        t = conditioned.embedding.kernel.lengthscale.log().squeeze()
        if self.forbidden(t.item()):
            raise NotPSDError("no")
        logs = [math.log(w) - 0.5 * ((t - c) / self.width) ** 2 for w, c in zip(WEIGHTS, CENTRES, strict=True)]
        return -torch.logsumexp(torch.stack(logs), dim=0)


def embedding(prior=None):
    kernel = RBFKernel(lengthscale_prior=prior or LogNormalPrior(0.0, 1.5))
    return ke.BayesianMeanEmbedding(kernel)


def sample(objective, **settings):
    settings = {"num_samples": 60, "warmup_steps": 60, "num_chains": 4, "seed": 0, "progress": False, **settings}
    return ke.sample_posterior(embedding(settings.pop("prior", None)), objective, X, **settings)


def log_lengthscale(posterior):
    return posterior.samples["kernel.lengthscale"].log().flatten()


def exact_share_of_the_upper_mode(width=WIDTH):
    """Quadrature over log ℓ of the prior N(0, 1.5²) times the two hills."""
    t = np.linspace(-6, 6, 20001)
    hills = sum(w * np.exp(-0.5 * ((t - c) / width) ** 2) for w, c in zip(WEIGHTS, CENTRES, strict=True))
    density = hills * np.exp(-0.5 * (t / 1.5) ** 2)
    return np.trapezoid(density * (t > 0), t) / np.trapezoid(density, t), np.trapezoid(density, t)


def test_nuts_draws_the_prior_where_data_say_nothing():
    """log ℓ ~ N(0.5, 0.4²): mean and sd within four standard errors of the effective draws."""
    posterior = sample(Flat(), prior=LogNormalPrior(0.5, 0.4), num_samples=150, num_chains=2)
    t, n = log_lengthscale(posterior), posterior.summary()["kernel.lengthscale"]["n_eff"].item()
    assert abs(t.mean().item() - 0.5) < 4 * 0.4 / math.sqrt(n)
    assert abs(t.std().item() - 0.4) < 4 * 0.4 / math.sqrt(n)
    assert posterior.summary()["kernel.lengthscale"]["r_hat"].item() < 1.1


@pytest.mark.filterwarnings("ignore:.*diverged")
def test_chains_in_two_modes_give_a_warning_and_are_weighted():
    start = {"kernel.lengthscale": torch.tensor(CENTRES * 2).exp()}
    with pytest.warns(ke.posteriors.PosteriorWarning, match="do not move between them"):
        posterior = sample(TwoModes(width=0.04), initial=start)  # 700 nats between them: NUTS cannot cross
    assert posterior.summary()["kernel.lengthscale"]["r_hat"].item() > 1.5
    assert modes(posterior.draws.u) == [[0, 2], [1, 3]]
    share, _ = exact_share_of_the_upper_mode(0.04)
    upper = log_lengthscale(posterior) > 0
    assert posterior.weights[upper].sum().item() == pytest.approx(0.5)
    assert posterior.weigh_modes().weights[upper].sum().item() == pytest.approx(share, abs=0.04)


def test_bridge_agrees_with_quadrature():
    potential = Potential(embedding(), TwoModes(), X, None)
    generator = np.random.RandomState(0)
    t = CENTRES[1] + WIDTH * generator.randn(200) * 0.99
    u = torch.stack(
        [torch.from_numpy(potential.unconstrained({"kernel.lengthscale": torch.tensor(math.exp(v))})) for v in t]
    )
    log_density = torch.tensor([-potential.value(point.numpy()) for point in u])
    share, total = exact_share_of_the_upper_mode()
    exact = math.log(share * total / (1.5 * math.sqrt(2 * math.pi)))
    assert log_evidence(potential, u, log_density) == pytest.approx(exact, abs=0.1)


def test_smc_gets_the_weights_and_the_evidence_right():
    posterior = sample(TwoModes(), sampler=SMC(num_moves=3), num_samples=100, num_chains=2)
    share, total = exact_share_of_the_upper_mode()
    assert (log_lengthscale(posterior) > 0).double().mean().item() == pytest.approx(share, abs=0.2)
    assert posterior.log_evidence == pytest.approx(math.log(total / (1.5 * math.sqrt(2 * math.pi))), abs=0.3)


@pytest.mark.parametrize("sampler", [Laplace(), SVI(num_steps=250)], ids=repr)
def test_laplace_and_svi_are_exact_for_a_gaussian(sampler):
    log_scale = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(0.5, 0.4), lengthscale_constraint=log_scale)
    settings = {"num_samples": 500, "num_chains": 2, "seed": 0, "sampler": sampler}
    posterior = ke.sample_posterior(ke.BayesianMeanEmbedding(kernel), Flat(), X, **settings)
    assert log_lengthscale(posterior).mean().item() == pytest.approx(0.5, abs=0.08)
    assert log_lengthscale(posterior).std().item() == pytest.approx(0.4, abs=0.08)
    if posterior.method == "laplace":
        assert posterior.log_evidence == pytest.approx(0.0, abs=1e-3)


def test_failed_factorisations_are_rejections():
    """Half of the lower hill does not exist: chains go on, and no draw lies there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        posterior = sample(TwoModes(forbidden=lambda t: -1.5 < t < 0.0))
    t = log_lengthscale(posterior)
    assert not ((t > -1.5) & (t < 0.0)).any()
    assert posterior.draws.num_rejected > 0


def test_interruption_returns_the_draws_so_far():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ke.posteriors.PosteriorWarning)
        posterior = sample(TwoModes(interrupt_after=600), warmup_steps=10, num_samples=10_000, num_chains=2)
    assert posterior.interrupted
    assert 4 <= posterior.num_samples < 10_000
    assert posterior.samples["kernel.lengthscale"].shape[0] == 2 * posterior.num_samples
    with pytest.raises(KeyboardInterrupt):
        sample(TwoModes(interrupt_after=50), warmup_steps=500)


def test_a_prior_with_mass_outside_the_constraint_gives_a_warning():
    with pytest.warns(ke.posteriors.PosteriorWarning, match="of its mass outside the"):
        posterior = sample(Flat(), prior=gpytorch.priors.NormalPrior(0.5, 1.0), num_samples=8, warmup_steps=8)
    assert (posterior.samples["kernel.lengthscale"] > 0).all()
    with pytest.raises(ValueError, match="lie outside its constraint"):
        sample(Flat(), prior=gpytorch.priors.NormalPrior(-9.0, 0.1))


def test_a_prior_under_which_nothing_is_valid_is_an_error():
    with pytest.raises(ValueError, match="at none of 200 draws does K factorize"):
        sample(TwoModes(forbidden=lambda t: abs(t + 0.367) > 1e-3))


def test_a_prior_that_cannot_be_sampled_needs_starting_points():
    class OnlyDensity(LogNormalPrior):
        def sample(self, shape=()):
            raise NotImplementedError

    with pytest.raises(TypeError, match="Give starting points"):
        sample(Flat(), prior=OnlyDensity(0.0, 1.0))
    posterior = sample(Flat(), prior=OnlyDensity(0.0, 1.0), initial="current", num_samples=5, warmup_steps=5)
    assert posterior.num_samples == 5


BAD_SETTINGS = [
    (ValueError, "num_samples of at least 1", {"num_samples": 0}),
    (TypeError, "whole number", {"num_samples": 2.5}),
    (ValueError, "num_chains of at least 1", {"num_chains": 0}),
    (ValueError, "warmup_steps of at least 0", {"warmup_steps": -1}),
    (ValueError, "temperature must be positive and finite", {"temperature": 0.0}),
    (ValueError, "initial must be 'prior'", {"initial": "mode"}),
    (ValueError, "names among kernel.lengthscale", {"initial": {"lengthscale": torch.tensor(1.0)}}),
    (ValueError, "not inside the constraints", {"initial": {"kernel.lengthscale": torch.tensor(-1.0)}}),
    (TypeError, "must be an Objective", {"objective": lambda embedding, x: 0.0}),
    (TypeError, r"must be a Sampler, such as NUTS\(\) or SMC\(\)", {"sampler": "smc"}),
    (TypeError, r"must be a Sampler, such as NUTS\(\) or SMC\(\)", {"sampler": NUTS}),
]


@pytest.mark.parametrize(("error", "message", "settings"), BAD_SETTINGS)
def test_bad_input(error, message, settings):
    with pytest.raises(error, match=message):
        sample(**{"objective": Flat(), **settings})


@pytest.mark.parametrize("kernel", [RBFKernel, RQKernel, PeriodicKernel, lambda: LinearKernel() + MaternKernel(0.5)])
def test_chains_that_start_anywhere_in_the_prior_end_without_an_error(kernel):
    y = torch.arange(15) % 3
    x = torch.as_tensor(np.random.RandomState(0).randn(15, 2)) + y[:, None]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws, and of digits lost at odd scales
        posterior = ke.sample_posterior(
            ke.MulticlassEmbedding(kernel().double(), 3), ke.ConditionalEvidence(), x, y, num_samples=2, warmup_steps=2,
            num_chains=2, seed=0, sampler=NUTS(parallel=False, max_tree_depth=4), progress=False,
        )  # fmt: skip
        p = posterior.probabilities(x)
    assert all(torch.isfinite(draws).all() for draws in posterior.samples.values())
    assert ((p >= 0) & (p <= 1)).all()


# --- trajectories of NUTS ---------------------------------------------------------------------------------------------


START = np.array([0.5, 1.0])


class Density:
    """U of a skewed and correlated pair: u₀ ~ log of a gamma(3), u₁ | u₀ ~ N(2 u₀, 0.5²)."""

    def value_and_gradient(self, u):
        a, b = u
        off = 4.0 * (b - 2.0 * a)
        return math.exp(a) - 3.0 * a + off**2 / 8.0, np.array([math.exp(a) - 3.0 - 2.0 * off, off])

    def __call__(self, z):
        a, b = z["u"]
        return a.exp() - 3.0 * a + 2.0 * (b - 2.0 * a) ** 2


# log of a gamma(3): digamma and trigamma at 3.
MEAN, SD = 0.9227843350984671, math.sqrt(0.3949340668482264)


def chain(warmup_steps=200, seed=0, **options):
    plan = Plan([START], 0, warmup_steps, [seed], bar=None)
    return Chain(NUTS(random_walk=False, settle=False, **options), plan, Density(), 0)


def run(num_samples=800, warmup_steps=200, seed=0, **options):
    own = chain(warmup_steps, seed, **options)
    for _ in range(warmup_steps + num_samples):
        own.step()
    return torch.from_numpy(np.array(own.draws)[:, :2])


@pytest.mark.parametrize("options", [{}, {"full_mass": False}, {"use_multinomial_sampling": False}], ids=str)
def test_known_moments(options):
    """Mean and sd within four standard errors of the effective draws; the seed is fixed."""
    draws = run(**options)
    for column, mean, sd in zip(draws.T, (MEAN, 2 * MEAN), (SD, math.sqrt(4 * SD**2 + 0.25)), strict=True):
        error = sd / math.sqrt(n_eff(column[None]).item())
        assert abs(column.mean().item() - mean) < 4 * error
        assert abs(column.std().item() - sd) < 4 * error


def test_pyros_own_tree_draws_the_same():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        kernel = pyro.infer.NUTS(potential_fn=Density(), full_mass=True)
        mcmc = pyro.infer.MCMC(
            kernel, 200, warmup_steps=100, disable_progbar=True, initial_params={"u": torch.from_numpy(START)}
        )
        mcmc.run()
    for a, b in zip(run().T, mcmc.get_samples()["u"].T, strict=True):
        errors = [v.std().item() / math.sqrt(n_eff(v[None]).item()) for v in (a, b)]
        assert abs(a.mean() - b.mean()).item() < 4 * math.hypot(*errors)


def test_a_step_goes_back_to_where_it_came_from():
    """Leapfrog steps are reversible, and their error in H falls with the square of the step."""
    density, u, r = Density(), np.array([0.3, 1.0]), np.array([0.7, -0.4])
    value, slope = density.value_and_gradient(u)
    energy, errors = value + 0.5 * float(r @ r), []
    for step in (0.1, 0.05):
        trajectory = Trajectory(density.value_and_gradient, np.ones(2), step, 5, np.random.default_rng(0))
        here = trajectory._leapfrog(State(u, r, value, slope, slope, energy), step).last
        trajectory.start = trajectory.level = 0.0
        back = trajectory._leapfrog(here, -step).last
        np.testing.assert_allclose(back.u, u, atol=1e-12)
        np.testing.assert_allclose(back.r, r, atol=1e-12)
        errors.append(abs(here.energy - energy))
    assert 5.0 < errors[0] / errors[1] < 11.0  # of one step: the third power


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_place_without_density_ends_the_trajectory_and_is_never_chosen(bad):
    def evaluate(u):
        return (0.5 * float(u @ u), u) if u[0] < 0.5 else (bad, np.zeros(1))

    trajectory = Trajectory(evaluate, np.ones(1), 0.4, 6, np.random.default_rng(0))
    u, value, slope = np.zeros(1), 0.0, np.zeros(1)
    diverged = 0
    for _ in range(300):
        (u, _, value, slope, *_), _, _, diverging = trajectory.draw(u, value, slope)
        assert u[0] < 0.5
        diverged += diverging
    assert diverged > 0


def test_the_mass_matrix_is_dense_where_parameters_correlate():
    own = chain(150)
    assert not own.adapted()[1]
    for _ in range(150):
        own.step()
    assert own.adapted()[1]
    assert not correlate(torch.eye(3), 1000)
    assert not correlate(torch.tensor([[1.0, 0.9], [0.9, 1.0]]), 4)  # too few draws to say


# --- samplers as values -----------------------------------------------------------------------------------------------


FOUR, X12 = (torch.as_tensor(np.random.RandomState(0).randn(n, 1)) for n in (4, 12))


def one_mode():
    return ke.BayesianMeanEmbedding(RBFKernel(lengthscale_prior=LogNormalPrior(0.5, 0.4)))


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
        return ke.sample_posterior(one_mode(), ke.EmbeddingEvidence(), FOUR, **settings).draws.u

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
        return ke.sample_posterior(one_mode(), ke.EmbeddingEvidence(), X12, **settings).draws.u

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
        ke.sample_posterior(one_mode(), ke.EmbeddingEvidence(), X12, sampler=sampler, **settings)
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
        ke.sample_posterior(one_mode(), Flat(), FOUR, sampler=Nutpie())


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


def test_more_particles_than_draws():
    settings = {"num_samples": 5, "num_chains": 2, "seed": 0}
    posterior = ke.sample_posterior(one_mode(), Flat(), FOUR, sampler=SMC(num_moves=1, num_particles=20), **settings)
    assert posterior.samples["kernel.lengthscale"].shape == (10, 1, 1)
    assert posterior.num_evaluations > 2 * 20
    with pytest.raises(ValueError, match="num_particles of at least num_samples=5, got 3"):
        ke.sample_posterior(one_mode(), Flat(), FOUR, sampler=SMC(num_particles=3), **settings)


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
        one_mode(), Flat(), FOUR, num_samples=300, warmup_steps=50, num_chains=2, seed=0, sampler=Metropolis()
    )
    assert type(posterior) is ke.posteriors.MeanPosterior
    assert posterior.method == "metropolis"
    t = posterior.samples["kernel.lengthscale"].log()
    n = posterior.summary()["kernel.lengthscale"]["n_eff"].item()
    assert abs(t.mean().item() - 0.5) < 4 * 0.4 / n**0.5
    assert posterior.mean(FOUR).shape == (4,)
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
        ke.sample_posterior(one_mode(), Flat(), FOUR, num_chains=2, sampler=Broken(answer))
