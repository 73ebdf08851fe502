"""The posterior as a part of a larger Pyro program."""

import math

import pyro
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior, HalfNormalPrior, LogNormalPrior, SmoothedBoxPrior
from pyro.infer import MCMC, NUTS, SVI, JitTrace_ELBO, Trace_ELBO
from pyro.infer.autoguide import AutoLaplaceApproximation, AutoNormal, init_to_value
from pyro.optim import Adam

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
        return _log_factor(potential, potential.sites, flat)

    assert torch.autograd.gradcheck(factor, (flat,), eps=1e-6, rtol=1e-4)
    assert torch.autograd.gradgradcheck(factor, (flat,), eps=1e-6, rtol=1e-4)


def test_given_values_have_no_prior_and_the_gradient_reaches_them(problem):
    """Two groups in one plate: the log density is the plate's and the evidence of each, the gradient that of both."""
    parts, evidences = [], []
    for number, rows in enumerate((slice(0, 12), slice(12, None))):
        embedding = ke.MulticlassEmbedding(RBFKernel().double(), problem.m, 0.05)
        embedding.raw_regularization.requires_grad_(False)
        data = problem.x[rows], problem.y[rows]
        parts.append(ke.pyro_model(embedding, ke.ConditionalEvidence(), *data, name=f"{number}."))
        evidences.append((embedding, data))
    logarithms = torch.tensor([0.3, -0.2], dtype=torch.float64, requires_grad=True)

    def model():
        with pyro.plate("groups", 2):
            sampled = pyro.sample("log", pyro.distributions.Normal(torch.zeros(2).double(), 0.7))
        for part, value in zip(parts, sampled, strict=True):
            part({"kernel.lengthscale": value.exp()})

    trace = pyro.poutine.trace(pyro.poutine.condition(model, {"log": logarithms})).get_trace()
    (slope,) = torch.autograd.grad(trace.log_prob_sum(), logarithms)
    assert trace.stochastic_nodes == ["groups"], "the plate alone: the parts sample nothing"

    def plain(logarithms):
        total = torch.distributions.Normal(0.0, 0.7).log_prob(logarithms).sum()
        for (_, (x, y)), value in zip(evidences, logarithms, strict=True):
            s = torch.cdist(x, x).square() / value.exp().square()
            A = torch.exp(-0.5 * s) + 0.05 * len(x) * torch.eye(len(x), dtype=x.dtype)
            Y = torch.nn.functional.one_hot(y, problem.m).double()
            normal = torch.distributions.MultivariateNormal(torch.zeros(len(x)).double(), A)
            total = total + normal.log_prob(Y.mT).sum()
        return total

    assert trace.log_prob_sum().item() == pytest.approx(plain(logarithms).item(), rel=1e-9)
    (expected,) = torch.autograd.grad(plain(logarithms), logarithms)
    torch.testing.assert_close(slope, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("given", [{"lengthscale": torch.ones(1)}, {"kernel.lengthscale": torch.ones(2)},
                                   {"kernel.lengthscale": 1.0}])  # fmt: skip
def test_given_values_that_fit_nothing_are_refused(problem, given):
    part = ke.pyro_model(
        ke.MulticlassEmbedding(RBFKernel().double(), problem.m), ke.ConditionalEvidence(), problem.x, problem.y
    )
    with pytest.raises(ValueError, match=r"Give tensors for some of .*kernel\.lengthscale \(1\)"):
        part(given)


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
    with pytest.raises(TypeError, match="Pyro cannot sample the prior"):
        ke.pyro_model(ke.MulticlassEmbedding(kernel, 3), ke.ConditionalEvidence(), problem.x, problem.y)


def evidence_model(n=25):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, generator=generator, dtype=torch.float64)
    y = torch.sin(5.0 * x) + 0.1 * torch.randn(n, 1, generator=generator, dtype=torch.float64)
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(-1.0, 1.0))
    embedding = ke.ConditionalEmbedding(kernel, regularization_prior=LogNormalPrior(-4.0, 1.0)).double()
    return embedding, x, y, ke.pyro_model(embedding, ke.ConditionalEvidence(), x, y)


@pytest.mark.parametrize("size", [3, 4])
def test_a_plate_of_particles_is_a_loop(size):
    model = evidence_model()[-1]

    def plated():
        with pyro.plate("particles", size):
            return model()

    pyro.set_rng_seed(0)
    trace = pyro.poutine.trace(plated).get_trace()
    trace.compute_log_prob()
    values = {name: trace.nodes[name]["value"] for name in ("kernel.lengthscale", "regularization")}
    for i in range(size):
        one = pyro.poutine.condition(model, {name: value[i] for name, value in values.items()})
        alone = pyro.poutine.trace(one).get_trace()
        alone.compute_log_prob()
        expected = alone.nodes["objective"]["log_prob"].item()
        assert trace.nodes["objective"]["log_prob"][i].item() == pytest.approx(expected, abs=1e-10)


def test_vectorized_particles_are_finite_and_compilation_is_refused():
    model = evidence_model()[-1]
    guide = AutoNormal(model)
    pyro.clear_param_store()
    options = {"num_particles": 3, "vectorize_particles": True, "max_plate_nesting": 0}
    assert math.isfinite(SVI(model, guide, Adam({"lr": 0.01}), Trace_ELBO(**options)).step())
    with pytest.raises(NotImplementedError, match="Trace_ELBO"):
        SVI(model, guide, Adam({"lr": 0.01}), JitTrace_ELBO()).step()
    pyro.clear_param_store()


def test_pyros_laplace_approximation_is_ours():
    """Both start at the mode; the deviations in log θ agree to 5 %: Pyro's from the Hessian of ``pyro_model``."""
    embedding, x, y, model = evidence_model()
    posterior = ke.sample_posterior(
        embedding, ke.ConditionalEvidence(), x, y, sampler=ke.Laplace(), num_samples=4000, seed=0, progress=False
    )
    pyro.set_rng_seed(0)
    pyro.clear_param_store()
    mode = {name: draws.log().mean(0).exp() for name, draws in posterior.samples.items()}
    guide = AutoLaplaceApproximation(model, init_loc_fn=init_to_value(values=mode))
    svi = SVI(model, guide, Adam({"lr": 0.003}), Trace_ELBO())
    for _ in range(150):
        svi.step()
    scale = guide.laplace_approximation().get_posterior().covariance_matrix.diagonal().sqrt()
    names = list(guide.prototype_trace.stochastic_nodes)
    ours = [posterior.samples[name].log().std().item() for name in names if name in posterior.samples]
    assert scale.tolist() == pytest.approx(ours, rel=0.05)
    pyro.clear_param_store()
