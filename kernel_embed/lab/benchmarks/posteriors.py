"""Effective draws per second by NUTS, nutpie, Stan and GPyTorch's recipe for Pyro, from the same two posteriors."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import gpytorch
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ...embeddings import BayesianMeanEmbedding, MulticlassEmbedding
from ...kernels import log_scaled
from ...objectives import ConditionalEvidence, EmbeddingEvidence
from ...posteriors import NUTS, Nutpie, PosteriorWarning, Sampler, sample_posterior
from ...posteriors.diagnostics import n_eff
from ...results import Record
from ..papers.flaxman2016 import mixtures
from .measurement import OURS, Call, Measurement, Scope, part

PART = "posterior of {}"
CHAINS = 4
LENGTHSCALE = "kernel.lengthscale"
RECIPE = "GPyTorch with Pyro's recipe, one chain"
START = 2.9
"""Near the longer of the two modes of the sample's lengthscale."""
STAN_LABELS = """
data { int n; int m; matrix[n, m] Y; array[n] vector[1] x; }
parameters { real<lower=0> lengthscale; real<lower=0> regularization; }
model {
  matrix[n, n] L = cholesky_decompose(add_diag(gp_exp_quad_cov(x, 1.0, lengthscale), n * regularization));
  lengthscale ~ lognormal(-1, 1);
  regularization ~ lognormal(-4, 1);
  for (c in 1:m) col(Y, c) ~ multi_normal_cholesky(rep_vector(0, n), L);
}
"""
STAN_SAMPLE = """
data { int n; vector[n] x; real sigma2; }
transformed data {
  matrix[n, n] difference; matrix[n, n] square_distance; vector[n] zeros = rep_vector(0, n);
  for (i in 1:n) for (j in 1:n) { difference[i, j] = x[i] - x[j]; square_distance[i, j] = square(x[i] - x[j]); }
}
parameters { real<lower=0> lengthscale; }
model {
  matrix[n, n] K = exp(-square_distance / (2 * square(lengthscale)));
  matrix[n, n] R = sqrt(pi()) * lengthscale * exp(-square_distance / (4 * square(lengthscale)));
  matrix[n, n] L = cholesky_decompose(add_diag(R, sigma2));
  matrix[n, n] J = -K .* difference / (square(lengthscale) * n);
  vector[n] muhat;
  for (i in 1:n) { muhat[i] = mean(K[i]); target += log(abs(sum(J[i]))); }
  muhat ~ multi_normal_cholesky(zeros, L);
  lengthscale ~ gamma(1, 1);
}
"""
"""Appendix B of Flaxman et al. in today's syntax, with the factor √π ℓ of R that it drops."""


class Model(NamedTuple):
    """A posterior in this library and in Stan.

    Attributes:
        problem: embedding, objective, x and y, the parameters at the start of the chains.
        program: Stan's, with :attr:`data` from x and y.
        sizes: numbers of rows.
        transform: of the lengthscale, whose draws are counted.
        depth: the largest depth of a trajectory for all samplers; ``None`` is their default.
        stan: further arguments of Stan.
    """

    problem: Callable[[int], tuple[Any, Any, Tensor, Tensor | None]]
    program: str
    data: Callable[[Tensor, Any], dict[str, Any]]
    sizes: tuple[int, ...]
    transform: Callable[[Tensor], Tensor]
    depth: int | None
    stan: dict[str, Any]

    @property
    def sampler_options(self) -> dict[str, int]:
        """The options of ``NUTS`` and ``Nutpie``."""
        return {} if self.depth is None else {"max_tree_depth": self.depth}


def labels(n: int) -> tuple[MulticlassEmbedding, ConditionalEvidence, Tensor, Tensor]:
    """One feature, two classes, log-normal priors on lengthscale and λ."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(n, 1, dtype=torch.float64, generator=generator)
    y = (torch.sin(9.0 * x[:, 0]) + 0.5 * torch.randn(n, dtype=torch.float64, generator=generator) > 0).long()
    kernel = RBFKernel(lengthscale_prior=LogNormalPrior(-1.0, 1.0), lengthscale_constraint=log_scaled())
    kernel.lengthscale = 0.3
    embedding = MulticlassEmbedding(kernel, 2, regularization_prior=LogNormalPrior(-4.0, 1.0))
    return embedding.double(), ConditionalEvidence(), x, y


def sample(n: int) -> tuple[BayesianMeanEmbedding, EmbeddingEvidence, Tensor, None]:
    """The paper's mixtures and its model of their lengthscale."""
    embedding = mixtures.model()
    embedding.kernel.lengthscale = START
    return embedding, EmbeddingEvidence(), torch.cat(mixtures.mixture_samples(n // 6)), None


MODELS = {
    "labels": Model(
        labels, STAN_LABELS, lambda x, y: {"n": len(x), "m": 2, "x": x.tolist(), "Y": _one_hot(y).tolist()},
        (50, 100, 200, 600), torch.log, 6, {"max_depth": 6},
    ),
    "a sample": Model(
        sample, STAN_SAMPLE, lambda x, y: {"n": len(x), "x": x.squeeze(-1).tolist(), "sigma2": 0.1},
        (48, 102, 198), lambda lengthscale: lengthscale, None, {"init": [{"lengthscale": START}] * CHAINS},
    ),
}  # fmt: skip


def _one_hot(y: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(y, 2).double()


def _ours(model: Model, n: int, draws: int, sampler: Callable[..., Sampler], seed: int) -> Call:
    embedding, objective, x, y = model.problem(n)

    def call() -> Record:
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                embedding, objective, x, y, num_samples=draws, warmup_steps=draws, num_chains=CHAINS, seed=seed,
                progress=False, initial="current", sampler=sampler(**model.sampler_options),
            )  # fmt: skip
        return _figures(model, posterior.samples[LENGTHSCALE].reshape(CHAINS, -1), time.perf_counter() - start)

    return call


def _stan(model: Model, n: int, draws: int, seed: int) -> Call:
    import stan

    x, y = model.problem(n)[2:]
    program = stan.build(model.program, data=model.data(x, y), random_seed=1 + seed)  # compiled, untimed

    def call() -> Record:
        start = time.perf_counter()
        chain = program.sample(num_chains=CHAINS, num_samples=draws, num_warmup=draws, **model.stan)
        # Draws come chain after chain within each row.
        values = torch.as_tensor(chain["lengthscale"]).reshape(-1, CHAINS).T
        return _figures(model, values, time.perf_counter() - start)

    return call


def _recipe(n: int, draws: int, seed: int) -> Call:
    """``pyro_sample_from_prior`` inside a Pyro model, as in GPyTorch's example of fully Bayesian models."""
    import pyro.infer

    embedding, _, x, y = labels(n)

    def program() -> None:
        sampled = embedding.pyro_sample_from_prior()
        A = sampled.kernel(x).add_jitter(n * sampled.regularization)
        prior = gpytorch.distributions.MultivariateNormal(torch.zeros(2, n, dtype=x.dtype), A)
        pyro.factor("labels", prior.log_prob(_one_hot(y).mT).sum())

    def call() -> Record:
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]), gpytorch.settings.fast_computations(False, False, False):
            torch.manual_seed(seed)
            kernel = pyro.infer.NUTS(program, max_tree_depth=MODELS["labels"].depth)
            chain = pyro.infer.MCMC(kernel, num_samples=draws, warmup_steps=draws, disable_progbar=True)
            chain.run()
        values = chain.get_samples()["kernel.lengthscale_prior"].reshape(1, -1)
        return _figures(MODELS["labels"], values, time.perf_counter() - start)

    return call


def _figures(model: Model, lengthscale: Tensor, seconds: float) -> Record:
    """Mean and deviation, to see that all agree; effective draws per second. One row of draws for each chain."""
    values = model.transform(lengthscale.detach().double())
    effective = max(float(n_eff(values)), 1.0)
    moments: Record = {"mean": float(values.mean()), "sd": float(values.std())}
    return {**moments, "n_eff": effective, "effective_per_second": effective / seconds}


@part("posterior")
def posterior_cases(scope: Scope) -> Iterator[Measurement]:
    """Effective draws per second from the same posterior, compared with Stan, nutpie and GPyTorch's recipe for Pyro."""
    draws, seed = 10 if scope.quick else 200, scope.repetition
    for name, model in MODELS.items():
        title = PART.format(name)
        for n in (30,) if scope.quick else model.sizes:
            yield Measurement(title, OURS, n, partial(_ours, model, n, draws, NUTS, seed))
            nutpie = partial(_ours, model, n, draws, Nutpie, seed)
            yield Measurement(title, f"{OURS}, nutpie", n, nutpie, package="nutpie")
            yield Measurement(title, "Stan", n, partial(_stan, model, n, draws, seed), package="stan")
    n = 30 if scope.quick else 100
    yield Measurement(PART.format("labels"), RECIPE, n, partial(_recipe, n, draws, seed))
