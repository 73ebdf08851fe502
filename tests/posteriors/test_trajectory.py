"""NUTS on a flat vector against known densities and Pyro's own tree; its adaptation."""

import math

import numpy as np
import pyro.infer
import pytest
import torch

from kernel_embed.posteriors import NUTS, Plan
from kernel_embed.posteriors.draws import n_eff
from kernel_embed.posteriors.nuts import Chain, correlate
from kernel_embed.posteriors.transitions import State, Trajectory

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


def test_the_first_step_size_is_pyros():
    """Doubled and halved by Pyro's rule, with Pyro's random numbers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        kernel = pyro.infer.NUTS(potential_fn=Density())
        kernel.initial_params = {"u": torch.from_numpy(START)}
        kernel.setup(20)
    assert chain(20, 3).adapter.step_size == kernel.step_size


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


@pytest.mark.parametrize(
    ("warmup_steps", "ends"), [(50, [7, 31, 49]), (20, [2, 12, 19]), (200, [74, 99, 149, 199]), (10, [9])]
)
def test_short_warm_ups_leave_a_third_to_the_step_size(warmup_steps, ends):
    windows = chain(warmup_steps).adapter.adaptation_schedule
    assert [window.end for window in windows] == ends
    assert [window.start for window in windows] == [0, *(end + 1 for end in ends[:-1])]
