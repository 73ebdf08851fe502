"""Samplers against quadrature and known distributions, their errors, and their warnings."""

import math
import warnings

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel
from gpytorch.priors import LogNormalPrior
from linear_operator.utils.errors import NotPSDError

import kernel_embed as ke
from kernel_embed.posteriors import NUTS, SMC, SVI, Laplace
from kernel_embed.posteriors.draws import modes
from kernel_embed.posteriors.potential import Potential
from kernel_embed.posteriors.smc import log_evidence

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


def test_processes_give_the_same_draws():
    settings = {"num_samples": 6, "warmup_steps": 4, "num_chains": 2}
    alone, together = (sample(Flat(), sampler=NUTS(parallel=p), **settings) for p in (False, True))
    assert torch.equal(alone.draws.u, together.draws.u)
    assert torch.equal(alone.draws.log_density, together.draws.log_density)


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
