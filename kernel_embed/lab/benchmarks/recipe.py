"""NUTS over seven hyperparameters beside GPyTorch's recipe for Pyro, and short chains over kernels of five kinds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import (
    Kernel,
    MaternKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.priors import GammaPrior, LogNormalPrior
from torch import Tensor

from ...embeddings import ConditionalEmbedding, ConditionedMulticlass, MulticlassEmbedding
from ...kernels import FeatureKernel
from ...objectives import ConditionalEvidence, LeaveOneOutRisk, Objective, RademacherComplexity, default_objective
from ...posteriors import NUTS, PosteriorWarning, sample_posterior
from ...posteriors.diagnostics import n_eff
from ...results import Record, number
from .measurement import OURS, Call, Measurement, Scope, note, part

PART = "NUTS over five lengthscales, outputscale and noise"
RECIPE = "GPyTorch with Pyro's recipe"
PRIOR = "chains from the prior"
NOISE = 0.04
PARAMETERS = ("log noise", "outputscale", *(f"log lengthscale {j}" for j in range(5)))


class ExactGP(gpytorch.models.ExactGP):
    """The model of ConditionalEvidence with one target, in GPyTorch."""

    def __init__(self, x: Tensor, y: Tensor, likelihood: gpytorch.likelihoods.Likelihood) -> None:
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel(x.shape[-1])

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The prior at ``x``."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def kernel(width: int) -> ScaleKernel:
    """A scaled squared exponential with ARD lengthscales and priors."""
    inner = RBFKernel(ard_num_dims=width, lengthscale_prior=LogNormalPrior(0.0, 0.7))
    return ScaleKernel(inner, outputscale_prior=GammaPrior(2.0, 2.0)).double()


def problem(n: int) -> tuple[Tensor, Tensor]:
    """A target that depends on two of five features."""
    generator = np.random.RandomState(0)
    x = torch.as_tensor(generator.rand(n, 5))
    return x, torch.sin(4 * x[:, 0]) + x[:, 1] + 0.2 * torch.as_tensor(generator.randn(n))


def _ours(n: int, draws: int) -> Call:
    x, y = problem(n)

    def call() -> Record:
        # λ = σ²/n, so that the two noises are one; its prior is that of σ² in other units.
        prior = LogNormalPrior(math.log(NOISE / n), 1.0)
        embedding = ConditionalEmbedding(kernel(5), regularization=NOISE / n, regularization_prior=prior)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                embedding, ConditionalEvidence(), x, y, num_samples=draws, warmup_steps=draws, num_chains=1, seed=0,
                sampler=NUTS(parallel=False), progress=False,
            )  # fmt: skip
        samples = posterior.samples
        lengthscales = samples["kernel.base_kernel.lengthscale"].reshape(-1, 5)
        return _figures((n * samples["regularization"]).log(), samples["kernel.outputscale"], lengthscales.log())

    return call


def _recipe(n: int, draws: int) -> Call:
    """As in GPyTorch's tutorial of fully Bayesian models."""
    import pyro.infer

    x, y = problem(n)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_prior=LogNormalPrior(math.log(NOISE), 1.0), noise_constraint=gpytorch.constraints.Positive()
    ).double()
    gp = ExactGP(x, y, likelihood)

    def program(x: Tensor, y: Tensor) -> Tensor:
        with gpytorch.settings.fast_computations(False, False, False):
            sampled = gp.pyro_sample_from_prior()
            pyro.sample("obs", sampled.likelihood(sampled(x)), obs=y)
        return y

    def call() -> Record:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            chain = pyro.infer.MCMC(
                pyro.infer.NUTS(program), num_samples=draws, warmup_steps=draws, disable_progbar=True
            )
            chain.run(x, y)
        samples = chain.get_samples()
        lengthscales = samples["covar_module.base_kernel.lengthscale_prior"].reshape(-1, 5)
        noise, scale = samples["likelihood.noise_covar.noise_prior"], samples["covar_module.outputscale_prior"]
        return _figures(noise.log(), scale, lengthscales.log())

    return call


def _figures(noise: Tensor, scale: Tensor, lengthscales: Tensor) -> Record:
    """Mean, variance and effective draws of every parameter, and the least of the last."""
    record: Record = {}
    columns = (noise.flatten(), scale.flatten(), *lengthscales.T)
    for name, draws in zip(PARAMETERS, (column.double() for column in columns), strict=True):
        record[f"{name} mean"], record[f"{name} variance"] = draws.mean().item(), draws.var().item()
        record[f"{name} n_eff"] = min(max(n_eff(draws[None]).item(), 1.0), len(draws))
    record["n_eff"] = min(number(record, f"{name} n_eff") for name in PARAMETERS)
    return record


@note(PART)
def recipe_note(records: Sequence[Record]) -> str:
    """Whether both sample the same posterior, and how many times as fast effective draws come."""
    rows = {str(record["name"]): record for record in records}
    if not {OURS, RECIPE} <= set(rows):
        return ""
    a, b = rows[RECIPE], rows[OURS]
    gaps = []
    for name in PARAMETERS:
        error = math.sqrt(sum(number(r, f"{name} variance") / number(r, f"{name} n_eff") for r in (a, b)))
        gaps.append(abs(number(a, f"{name} mean") - number(b, f"{name} mean")) / max(error, 1e-12))
    rates = [number(r, "n_eff") / number(r, "seconds") for r in (a, b)]
    return (
        f"Means of all {len(PARAMETERS)} parameters agree within {max(gaps):.1f} standard errors; effective draws come "
        f"{rates[1] / rates[0]:.1f} times as fast."
    )


@part("recipe")
def recipe_cases(scope: Scope) -> Iterator[Measurement]:
    """Seven hyperparameters by NUTS, beside GPyTorch's recipe for Pyro."""
    n, draws = (20, 4) if scope.quick else (200, 200)
    yield Measurement(PART, OURS, n, partial(_ours, n, draws))
    yield Measurement(PART, RECIPE, n, partial(_recipe, n, draws))


def _kinds() -> dict[str, Callable[[], Kernel]]:
    """Kernels of five kinds over the plane."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        network = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2)).double()
    return {
        "rbf": lambda: ScaleKernel(RBFKernel(ard_num_dims=2, lengthscale_prior=GammaPrior(1.0, 1.0))),
        "matern": lambda: MaternKernel(0.5, lengthscale_prior=LogNormalPrior(0.0, 3.0)),
        "spectral mixture": lambda: SpectralMixtureKernel(3, ard_num_dims=2),
        "polynomial": lambda: ScaleKernel(PolynomialKernel(4)),
        "deep": lambda: FeatureKernel(network, RBFKernel()),
    }


def _chains(count: int) -> Call:
    """Twenty-five points in the plane with two classes."""
    generator = np.random.RandomState(0)
    x = torch.as_tensor(generator.randn(25, 2))
    y = (x[:, 0] + 0.5 * torch.as_tensor(generator.randn(25)) > 0).long()
    makers = list(_kinds().values())
    objectives: list[Objective[ConditionedMulticlass]] = [
        ConditionalEvidence(),
        LeaveOneOutRisk() + RademacherComplexity("4e/n"),
        default_objective(),
    ]

    def call() -> Record:
        refused = diverged = 0
        for seed in range(count):
            make, objective = makers[seed % len(makers)], objectives[(seed // len(makers)) % len(objectives)]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)
                posterior = sample_posterior(
                    MulticlassEmbedding(make().double(), 2), objective, x, y, num_samples=4, warmup_steps=6,
                    num_chains=1, seed=seed, sampler=NUTS(max_tree_depth=4, parallel=False), progress=False,
                )  # fmt: skip
            if not torch.isfinite(posterior.draws.u).all():
                raise ArithmeticError(f"Chain {seed} has draws that are not finite. Report it.")
            refused, diverged = refused + posterior.draws.num_rejected, diverged + posterior.num_divergences
        return {"num_refused": refused, "num_divergences": diverged}

    return call


@part("chains")
def chain_cases(scope: Scope) -> Iterator[Measurement]:
    """Two hundred short chains from the prior, over five kinds of kernels."""
    count = 5 if scope.quick else 200
    yield Measurement(PRIOR, OURS, count, partial(_chains, count))
