"""NUTS over the evidence of the targets, against GPyTorch's recipe with Pyro and against Stan."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import gpytorch
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ..embeddings import MulticlassEmbedding
from ..kernels import log_scaled
from ..objectives import ConditionalEvidence
from ..results import Record
from .cases import OURS, Call, Case, Scope

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


def _ours(n: int, draws: int) -> Call:
    from ..posteriors import NUTS, sample_posterior

    embedding, x, y = problem(n)

    def call() -> Record:
        posterior = sample_posterior(
            embedding, ConditionalEvidence(), x, y,
            num_samples=draws, warmup_steps=draws, num_chains=1, seed=0, progress=False, initial="current",
            sampler=NUTS(max_tree_depth=DEPTH, parallel=False),
        )  # fmt: skip
        return _figures(posterior.samples["kernel.lengthscale"])

    return call


def _recipe(n: int, draws: int) -> Call:
    """``pyro_sample_from_prior`` inside a Pyro model, as GPyTorch's example of fully Bayesian models has it."""
    import pyro
    from pyro.infer import MCMC, NUTS

    embedding, x, y = problem(n)
    Y = torch.nn.functional.one_hot(y, 2).to(x)

    def model() -> None:
        sampled = embedding.pyro_sample_from_prior()
        A = sampled.kernel(x).add_jitter(n * sampled.regularization)
        prior = gpytorch.distributions.MultivariateNormal(torch.zeros(2, n, dtype=x.dtype), A)
        pyro.factor("labels", prior.log_prob(Y.mT).sum())

    def call() -> Record:
        with torch.random.fork_rng(devices=[]), gpytorch.settings.fast_computations(False, False, False):
            torch.manual_seed(0)
            chain = MCMC(NUTS(model, max_tree_depth=DEPTH), num_samples=draws, warmup_steps=draws, disable_progbar=True)
            chain.run()
            return _figures(chain.get_samples()["kernel.lengthscale_prior"])

    return call


def _stan(n: int, draws: int) -> Call:
    import stan

    _, x, y = problem(n)
    data = {"n": n, "m": 2, "x": x.tolist(), "Y": torch.nn.functional.one_hot(y, 2).double().tolist()}
    model = stan.build(STAN, data=data, random_seed=1)  # compiled here, outside the clock

    def call() -> Record:
        chain = model.sample(num_chains=1, num_samples=draws, num_warmup=draws, max_depth=DEPTH)
        return _figures(torch.as_tensor(chain["lengthscale"]))

    return call


def _figures(lengthscale: Tensor) -> Record:
    """Mean and deviation of the log lengthscale, to see that all sample the same thing."""
    values = lengthscale.detach().log().flatten()
    return {"mean": float(values.mean()), "sd": float(values.std()) if len(values) > 1 else math.nan}


def cases(scope: Scope) -> Iterator[Case]:
    """As many draws of one chain by each."""
    n, draws = (30, 10) if scope.quick else (100, 100)
    yield Case(PART, OURS, n, partial(_ours, n, draws))
    yield Case(PART, "GPyTorch with Pyro's recipe", n, partial(_recipe, n, draws))
    yield Case(PART, "Stan", n, partial(_stan, n, draws), package="stan")
