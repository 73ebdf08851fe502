"""NUTS by nutpie: the same posterior as by Pyro, one seed one result, and a clear word where it is not installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

import kernel_embed as ke
from kernel_embed.posteriors import Nutpie

X = torch.as_tensor(np.random.RandomState(0).randn(12, 1))


def draws(sampler, seed=0, num_samples=300):
    embedding = ke.BayesianMeanEmbedding(RBFKernel(lengthscale_prior=LogNormalPrior(0.5, 0.4)))
    return ke.sample_posterior(
        embedding, ke.EmbeddingEvidence(), X, num_samples=num_samples, warmup_steps=200, num_chains=2, seed=seed,
        sampler=sampler, initial="current",
    )  # fmt: skip


def test_it_draws_from_the_same_posterior():
    pytest.importorskip("nutpie")
    posterior, pyro = draws(Nutpie()), draws(ke.NUTS())
    assert posterior.method == "nutpie"
    assert posterior.samples["kernel.lengthscale"].shape[0] == 600
    found, other = (p.samples["kernel.lengthscale"].log().flatten() for p in (posterior, pyro))
    # Standard errors of about 0.03 each: five of them, with these seeds fixed.
    assert abs(found.mean() - other.mean()) < 0.15
    assert 0.7 < found.std() / other.std() < 1.4
    assert posterior.summary()["kernel.lengthscale"]["r_hat"].max() < 1.05
    assert posterior.draws.num_evaluations > 600


def test_one_seed_one_result():
    pytest.importorskip("nutpie")
    first, second, other = (draws(Nutpie(full_mass=True), seed, 15).draws.u for seed in (1, 1, 2))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_the_extra_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "nutpie", None)
    with pytest.raises(ModuleNotFoundError, match=r"kernel-embed\[nutpie\]"):
        draws(Nutpie())


def test_options_are_checked():
    with pytest.raises(ValueError, match="target_accept_prob between 0 and 1"):
        Nutpie(target_accept_prob=0.0)
    with pytest.raises(ValueError, match="max_tree_depth of at least 1"):
        Nutpie(max_tree_depth=0)
