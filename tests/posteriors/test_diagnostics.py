"""Effective sizes, R-hat and E-BFMI against ArviZ, and the warnings that name a remedy."""

import math

import numpy as np
import pytest
import torch

from kernel_embed.posteriors import Draws
from kernel_embed.posteriors.draws import (
    energy_information,
    n_eff,
    n_eff_tail,
    problems,
    r_hat,
    rank_r_hat,
    summarize,
)


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
