"""NUTS over the evidence of the targets, against GPyTorch's recipe with Pyro and against Stan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import gpytorch
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ...embeddings import MulticlassEmbedding
from ...kernels import log_scaled
from ...objectives import ConditionalEvidence
from ...posteriors import NUTS, Nutpie, Sampler, sample_posterior
from ...posteriors.diagnostics import n_eff
from ...results import Record
from .cases import OURS, Call, Case, Scope

CHAINS = 4
SIZES = (50, 100, 200, 600)
DEPTH = 6
"""Of a trajectory at the most, for all alike: 64 evaluations a draw."""
PART = "NUTS, the same posterior"
STAN = """
data { int n; int m; matrix[n, m] Y; array[n] vector[1] x; }
parameters { real<lower=0> lengthscale; real<lower=0> regularization; }
model {
  matrix[n, n] L = cholesky_decompose(add_diag(gp_exp_quad_cov(x, 1.0, lengthscale), n * regularization));
  lengthscale ~ lognormal(-1, 1);
  regularization ~ lognormal(-4, 1);
  for (c in 1:m) col(Y, c) ~ multi_normal_cholesky(rep_vector(0, n), L);
}
"""


def problem(n: int) -> tuple[MulticlassEmbedding, Tensor, Tensor]:
    """One feature, two classes, log-normal priors on lengthscale and λ."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, dtype=torch.float64, generator=generator)
    y = (torch.sin(9.0 * x[:, 0]) + 0.5 * torch.randn(n, dtype=torch.float64, generator=generator) > 0).long()
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(-1.0, 1.0), lengthscale_constraint=log_scaled())
    kernel.lengthscale = 0.3
    embedding = MulticlassEmbedding(kernel, 2, regularization_prior=LogNormalPrior(-4.0, 1.0))
    return embedding.double(), x, y


def _ours(n: int, draws: int, sampler: Sampler, seed: int) -> Call:
    embedding, x, y = problem(n)

    def call() -> Record:
        began = time.perf_counter()
        posterior = sample_posterior(
            embedding, ConditionalEvidence(), x, y, num_samples=draws, warmup_steps=draws, num_chains=CHAINS, seed=seed,
            progress=False, initial="current", sampler=sampler,
        )  # fmt: skip
        found = figures(posterior.samples["kernel.lengthscale"], time.perf_counter() - began)
        return {**found, "num_evaluations": posterior.num_evaluations}

    return call


def _nutpie(n: int, draws: int, seed: int) -> Call:
    return _ours(n, draws, Nutpie(max_tree_depth=DEPTH), seed)


def _recipe(n: int, draws: int, seed: int) -> Call:
    """``pyro_sample_from_prior`` inside a Pyro model, as GPyTorch's example of fully Bayesian models has it."""
    import pyro
    from pyro.infer import MCMC
    from pyro.infer import NUTS as PyroNUTS

    embedding, x, y = problem(n)
    Y = torch.nn.functional.one_hot(y, 2).to(x)

    def model() -> None:
        sampled = embedding.pyro_sample_from_prior()
        A = sampled.kernel(x).add_jitter(n * sampled.regularization)
        prior = gpytorch.distributions.MultivariateNormal(torch.zeros(2, n, dtype=x.dtype), A)
        pyro.factor("labels", prior.log_prob(Y.mT).sum())

    def call() -> Record:
        began = time.perf_counter()
        with torch.random.fork_rng(devices=[]), gpytorch.settings.fast_computations(False, False, False):
            torch.manual_seed(seed)
            kernel = PyroNUTS(model, max_tree_depth=DEPTH)
            chain = MCMC(kernel, num_samples=draws, warmup_steps=draws, disable_progbar=True)
            chain.run()
        # One chain: four would only take four times as long.
        return figures(chain.get_samples()["kernel.lengthscale_prior"], time.perf_counter() - began, 1)

    return call


def _stan(n: int, draws: int, seed: int) -> Call:
    import stan

    _, x, y = problem(n)
    data = {"n": n, "m": 2, "x": x.tolist(), "Y": torch.nn.functional.one_hot(y, 2).double().tolist()}
    model = stan.build(STAN, data=data, random_seed=1 + seed)  # compiled here, outside the clock

    def call() -> Record:
        began = time.perf_counter()
        chain = model.sample(num_chains=CHAINS, num_samples=draws, num_warmup=draws, max_depth=DEPTH)
        # Draws come chain after chain within each row.
        values = torch.as_tensor(chain["lengthscale"]).reshape(-1, CHAINS).T
        return figures(values, time.perf_counter() - began)

    return call


def figures(lengthscale: Tensor, seconds: float, num_chains: int = CHAINS) -> Record:
    """Mean and deviation of the log lengthscale, to see that all sample the same thing; effective draws per second."""
    values = lengthscale.detach().double().log().reshape(num_chains, -1)
    effective = max(float(n_eff(values)), 1.0)
    place: Record = {"mean": float(values.mean()), "sd": float(values.std())}
    return {**place, "n_eff": effective, "effective_per_second": effective / seconds}


def cases(scope: Scope) -> Iterator[Case]:
    """Four chains over one posterior at four sizes, by each sampler, in effective draws a second."""
    draws, seed = 10 if scope.quick else 200, scope.repetition
    for n in (30,) if scope.quick else SIZES:
        yield Case(PART, OURS, n, partial(_ours, n, draws, NUTS(max_tree_depth=DEPTH), seed))
        yield Case(PART, f"{OURS}, nutpie", n, partial(_nutpie, n, draws, seed), package="nutpie")
        yield Case(PART, "Stan", n, partial(_stan, n, draws, seed), package="stan")
    n = 30 if scope.quick else SIZES[1]
    yield Case(PART, "GPyTorch with Pyro's recipe, one chain", n, partial(_recipe, n, draws, seed))
