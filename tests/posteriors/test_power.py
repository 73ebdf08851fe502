"""The power of a density: against its own formulas, by every sampler, and the rule that chooses it."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import PeriodicKernel, RBFKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors import Potential, choose_power
from kernel_embed.posteriors.gibbs import leave_one_out_score

POWER = 5.0


@pytest.fixture(scope="module")
def data():
    generator = torch.Generator().manual_seed(3)
    x = torch.rand(24, 1, dtype=torch.float64, generator=generator)
    return x, (torch.sin(7 * x[:, 0]) + 0.3 * torch.randn(24, generator=generator) > 0).long()


def sharp(data, objective=None, **settings):
    settings = {"num_chains": 1, "seed": 0, "sampler": ke.Laplace(), "initial": "current", **settings}
    return ke.sample_posterior(an_embedding(), objective or ke.LeaveOneOutRisk(), *data, **settings)


def an_embedding(kernel=RBFKernel):
    priors = [LogNormalPrior(*torch.tensor(numbers, dtype=torch.float64)) for numbers in ((-1.0, 0.7), (-4.0, 0.8))]
    return ke.MulticlassEmbedding(kernel(lengthscale_prior=priors[0]), 2, regularization_prior=priors[1]).double()


@pytest.mark.parametrize("kernel", [RBFKernel, PeriodicKernel], ids=["closed form", "through modules"])
def test_the_potential_is_multiplied(data, kernel):
    objective = ke.LeaveOneOutRisk()
    plain = Potential(an_embedding(kernel), objective, *data)
    sharp = Potential(an_embedding(kernel), objective, *data, power=POWER)
    u = plain.vector.get() + 0.1
    value, gradient = sharp.value_and_gradient(u)
    assert value == pytest.approx(POWER * plain.value(u), rel=1e-12)
    assert sharp.value(u) == pytest.approx(value, rel=1e-12)
    assert -sum(sharp.parts(u)) == pytest.approx(value, rel=1e-9)
    assert sharp.parts(u)[1] == pytest.approx(plain.parts(u)[1]), "what is drawn from stays the prior"
    h = 1e-5 * np.eye(len(u))
    finite = [(sharp.value(u + step) - sharp.value(u - step)) / 2e-5 for step in h]
    np.testing.assert_allclose(gradient, finite, rtol=1e-5, atol=1e-6)


def test_draws_have_the_deviation_of_the_power(data):
    """Of the Gaussian at the mode: its covariance is divided by s."""
    one, other = (
        sharp(data, ke.ConditionalEvidence(), num_samples=800, power=power).draws.u[0].std(dim=0)
        for power in (1.0, POWER)
    )
    torch.testing.assert_close(one / other, torch.full((2,), POWER**0.5, dtype=torch.float64), rtol=0.01, atol=0)


def test_nuts_samples_the_power(data):
    """Against quadrature of the density without the power, raised to it here."""
    settings = {"num_samples": 400, "warmup_steps": 200, "num_chains": 2, "power": 3.0, "progress": False}
    posterior = sharp(data, ke.ConditionalEvidence(), sampler=ke.NUTS(), initial="prior", **settings)
    plain = Potential(an_embedding(), ke.ConditionalEvidence(), *data)
    u = posterior.draws.u.flatten(0, 1).numpy()
    grids = [np.linspace(column.mean() - 6 * column.std(), column.mean() + 6 * column.std(), 61) for column in u.T]
    logs = np.array([[-3.0 * plain.value(np.array([a, b])) for b in grids[1]] for a in grids[0]])
    weights = np.exp(logs - logs.max()).sum(axis=1)
    mean = (weights * grids[0]).sum() / weights.sum()
    deviation = np.sqrt((weights * (grids[0] - mean) ** 2).sum() / weights.sum())
    # 800 draws, some hundred of them effective: errors of 0.05 deviations.
    assert abs(u[:, 0].mean() - mean) < 0.25 * deviation
    assert 0.8 < u[:, 0].std() / deviation < 1.25
    assert "Gibbs" in posterior.kind
    assert "power 3" in posterior.kind


def test_the_rule_takes_the_lowest_score_and_hands_over_its_posterior(data):
    few = dict(num_samples=15, seed=0, sampler=ke.Laplace(), initial="current", progress=False)
    choice = choose_power(an_embedding(), ke.LeaveOneOutRisk(), *data, powers=(1.0, 9.0, 81.0), **few)
    assert choice.scores[choice.power] == min(choice.scores.values())
    assert choice.posterior.potential.power == choice.power
    assert leave_one_out_score(choice.posterior, data[1]) == choice.scores[choice.power]


def test_the_score_by_a_loop(data):
    x, y = data
    posterior = sharp(data, num_samples=4)
    average = np.zeros(len(y))
    names = ("kernel.lengthscale", "regularization")
    for lengthscale, regularization in zip(*(posterior.samples[name] for name in names), strict=True):
        embedding = an_embedding()
        embedding.kernel.lengthscale, embedding.regularization = lengthscale, regularization
        F = embedding.condition(x, y).leave_one_out()
        p = ke.objectives.calibrate(F, torch.nn.functional.one_hot(y).double()).probabilities(F).detach().numpy()
        average += p[np.arange(len(y)), y] / 4
    assert leave_one_out_score(posterior, y) == pytest.approx(-np.log(average).mean(), rel=1e-10)


def test_a_large_power_ends_at_the_mode_and_is_kept_by_save_and_load(data, tmp_path):
    """As s grows, the averaged answer becomes that of the mode, where the potential is lowest."""
    posterior = sharp(data, num_samples=20, power=1e8)
    draws = posterior.probabilities_of_draws(data[0])
    torch.testing.assert_close(draws[0].expand_as(draws), draws, rtol=0, atol=1e-3)
    posterior.save(tmp_path / "sharp.npz")
    again = ke.load_posterior(tmp_path / "sharp.npz", an_embedding(), ke.LeaveOneOutRisk())
    assert (again.kind, again.potential.power) == (posterior.kind, 1e8)


REFUSED = [
    *(("power", {"power": bad}) for bad in (0.0, -1.0, float("nan"), float("inf"))),
    ("sequence", {"powers": 2.0}),
    ("to try", {"powers": ()}),
    ("MulticlassEmbedding", {"powers": (1.0,), "embedding": ke.ConditionalEmbedding(RBFKernel())}),
]


@pytest.mark.parametrize(("message", "settings"), REFUSED)
def test_refusals(data, message, settings):
    call = choose_power if "powers" in settings else ke.sample_posterior
    with pytest.raises((ValueError, TypeError), match=message):
        call(**{"embedding": an_embedding(), "objective": ke.LeaveOneOutRisk(), "x": data[0], "y": data[1], **settings})
