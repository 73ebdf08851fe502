"""The posterior as a part of a larger Pyro program."""

from __future__ import annotations

import pyro
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfNormalPrior, LogNormalPrior, SmoothedBoxPrior
from pyro.infer import MCMC, NUTS

import kernel_embed as ke
from kernel_embed.posteriors.potential import Potential
from kernel_embed.posteriors.pyro_model import _log_factor

from .test_potential import Flat


def test_pyro_model_samples_the_same_posterior():
    """Inside Pyro's own machinery, with a prior that breaks gpytorch's recipe, and one whose closure is 1/ℓ²."""
    x = torch.zeros(3, 1, dtype=torch.float64)
    kernel = ScaleKernel(RBFKernel(), outputscale_prior=HalfNormalPrior(0.5))
    kernel.base_kernel.register_prior(
        "inverse_square_prior",
        GammaPrior(3.0, 3.0),
        lambda module: 1.0 / module.lengthscale.square(),
        lambda module, value: module._set_lengthscale(value.rsqrt()),
    )
    torch.manual_seed(0)
    model = ke.pyro_model(ke.BayesianMeanEmbedding(kernel), Flat(), x, name="a.")
    mcmc = MCMC(NUTS(model), num_samples=150, warmup_steps=100, disable_progbar=True)
    mcmc.run()
    draws = mcmc.get_samples()
    # E|N(0, 0.5²)| = 0.40, E Gamma(3, 3) = 1; four standard errors at 60 effective draws
    assert draws["a.kernel.outputscale"].mean().item() == pytest.approx(0.40, abs=0.16)
    assert draws["a.kernel.base_kernel.inverse_square"].mean().item() == pytest.approx(1.0, abs=0.3)


def test_pyro_model_has_the_gradient_of_its_value(problem):
    kernel = RBFKernel(ard_num_dims=3, lengthscale_prior=LogNormalPrior(0.0, 0.5))
    embedding = ke.MulticlassEmbedding(kernel, problem.m)
    potential = Potential(embedding, ke.ConditionalEvidence(), problem.x, problem.y)
    names = [site.name for site in potential.sites]
    assert names == ["kernel.lengthscale", "regularization"]
    flat = torch.tensor([0.7, 0.9, 1.2, 0.02], dtype=torch.float64, requires_grad=True)

    def factor(flat):
        values = {"kernel.lengthscale": flat[:3].reshape(1, 3), "regularization": flat[3]}
        return _log_factor(potential, potential.sites, values, flat)

    assert torch.autograd.gradcheck(factor, (flat,), eps=1e-6, rtol=1e-4)


def test_pyro_model_of_the_score_weighs_by_n_times_the_score(problem):
    """A Gibbs posterior: the factor is −n times the mean score of the targets, whatever they are."""
    kernel = RBFKernel(ard_num_dims=3, lengthscale_prior=LogNormalPrior(0.0, 0.5)).double()
    embedding, y = ke.ConditionalEmbedding(kernel, 0.02).double(), problem.x.sin().sum(-1)
    trace = pyro.poutine.trace(ke.pyro_model(embedding, ke.LeaveOneOutScore(), problem.x, y)).get_trace()
    trace.compute_log_prob()
    sampled = {name: site["value"] for name, site in trace.nodes.items() if site["type"] == "sample"}
    observed = sum(site["log_prob_sum"] for site in trace.nodes.values() if site.get("is_observed"))
    again = ke.ConditionalEmbedding(RBFKernel(ard_num_dims=3).double(), float(sampled["regularization"])).double()
    again.kernel.lengthscale = sampled["kernel.lengthscale"]
    expected = -len(y) * ke.LeaveOneOutScore()(again, problem.x, y)
    torch.testing.assert_close(observed, expected.detach(), rtol=1e-6, atol=1e-8, check_dtype=False)


def test_pyro_model_refuses_a_prior_that_pyro_cannot_sample(problem):
    kernel = RBFKernel(ard_num_dims=3, lengthscale_prior=SmoothedBoxPrior(0.1, 2.0))
    with pytest.raises(TypeError, match="that Pyro can sample"):
        ke.pyro_model(ke.MulticlassEmbedding(kernel, 3), ke.ConditionalEvidence(), problem.x, problem.y)
