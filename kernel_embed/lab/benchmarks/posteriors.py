"""NUTS beside Stan, nutpie and GPyTorch's recipe: one posterior at four sizes, and the paper's Stan program."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from functools import partial

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ...embeddings import MulticlassEmbedding
from ...kernels import log_scaled
from ...objectives import ConditionalEvidence, EmbeddingEvidence
from ...posteriors import NUTS, Nutpie, PosteriorWarning, Sampler, sample_posterior
from ...posteriors.diagnostics import n_eff
from ...posteriors.potential import Potential
from ...results import Record
from ..papers.flaxman2016.mixtures import mixture_samples, model
from .measurement import OURS, Call, Measurement, Scope, part

CHAINS = 4
SIZES = (50, 100, 200, 600)
DEPTH = 6
"""The largest depth of a trajectory, for all samplers: 64 evaluations a draw."""
PART = "NUTS, the same posterior"
RECIPE = "GPyTorch with Pyro's recipe"
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
        start = time.perf_counter()
        posterior = sample_posterior(
            embedding, ConditionalEvidence(), x, y, num_samples=draws, warmup_steps=draws, num_chains=CHAINS, seed=seed,
            progress=False, initial="current", sampler=sampler,
        )  # fmt: skip
        figures = _figures(posterior.samples["kernel.lengthscale"], time.perf_counter() - start)
        return {**figures, "num_evaluations": posterior.num_evaluations}

    return call


def _recipe(n: int, draws: int, seed: int) -> Call:
    """``pyro_sample_from_prior`` inside a Pyro model, as in GPyTorch's example of fully Bayesian models."""
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
        start = time.perf_counter()
        with torch.random.fork_rng(devices=[]), gpytorch.settings.fast_computations(False, False, False):
            torch.manual_seed(seed)
            kernel = PyroNUTS(model, max_tree_depth=DEPTH)
            chain = MCMC(kernel, num_samples=draws, warmup_steps=draws, disable_progbar=True)
            chain.run()
        # One chain: four would take four times as long.
        return _figures(chain.get_samples()["kernel.lengthscale_prior"], time.perf_counter() - start, 1)

    return call


def _stan(n: int, draws: int, seed: int) -> Call:
    import stan

    _, x, y = problem(n)
    data = {"n": n, "m": 2, "x": x.tolist(), "Y": torch.nn.functional.one_hot(y, 2).double().tolist()}
    model = stan.build(STAN, data=data, random_seed=1 + seed)  # compiled here, outside the clock

    def call() -> Record:
        start = time.perf_counter()
        chain = model.sample(num_chains=CHAINS, num_samples=draws, num_warmup=draws, max_depth=DEPTH)
        # Draws come chain after chain within each row.
        values = torch.as_tensor(chain["lengthscale"]).reshape(-1, CHAINS).T
        return _figures(values, time.perf_counter() - start)

    return call


def _figures(lengthscale: Tensor, seconds: float, num_chains: int = CHAINS) -> Record:
    """Mean and deviation of the log lengthscale, to see that all agree; effective draws per second."""
    values = lengthscale.detach().double().log().reshape(num_chains, -1)
    effective = max(float(n_eff(values)), 1.0)
    moments: Record = {"mean": float(values.mean()), "sd": float(values.std())}
    return {**moments, "n_eff": effective, "effective_per_second": effective / seconds}


@part("posterior")
def posterior_cases(scope: Scope) -> Iterator[Measurement]:
    """Four chains over one posterior at four sizes, by each sampler, in effective draws a second."""
    draws, seed = 10 if scope.quick else 200, scope.repetition
    for n in (30,) if scope.quick else SIZES:
        nutpie = partial(_nutpie, n, draws, seed)
        yield Measurement(PART, OURS, n, partial(_ours, n, draws, NUTS(max_tree_depth=DEPTH), seed))
        yield Measurement(PART, f"{OURS}, nutpie", n, nutpie, package="nutpie")
        yield Measurement(PART, "Stan", n, partial(_stan, n, draws, seed), package="stan")
    n = 30 if scope.quick else SIZES[1]
    yield Measurement(PART, f"{RECIPE}, one chain", n, partial(_recipe, n, draws, seed))


def _nutpie(n: int, draws: int, seed: int) -> Call:
    return _ours(n, draws, Nutpie(max_tree_depth=DEPTH), seed)


PAPER_PROGRAM = """
data { int<lower=1> n; vector[n] x; real sigma2; }
transformed data {
  matrix[n, n] difference; matrix[n, n] square_distance; vector[n] zeros = rep_vector(0, n);
  for (i in 1:n) for (j in 1:n) { difference[i, j] = x[i] - x[j]; square_distance[i, j] = square(x[i] - x[j]); }
}
parameters { real<lower=0> lengthscale; }
transformed parameters { }
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
"""Appendix B in today's syntax, with the factor √π ℓ of R that it drops."""

MODES = {0.5: (0.46, 0.57), 2.9: (2.4, 3.6)}
"""Where a chain starts, and between which lengthscales its mode lies."""
LENGTHSCALE = "kernel.lengthscale"
FEW = "the paper's Stan program, few data"


def _ours_in_mode(start: float, n: int, draws: int, sampler: Sampler, seed: int, num_chains: int = 1) -> Call:
    x = torch.cat(mixture_samples(n // 6))

    def call() -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                model(), EmbeddingEvidence(), x, num_samples=draws, warmup_steps=draws, num_chains=num_chains,
                seed=seed, initial={LENGTHSCALE: torch.tensor(start)}, sampler=sampler, progress=False,
            )  # fmt: skip
        figures = _mode_figures(posterior.samples[LENGTHSCALE].reshape(num_chains, -1), posterior.seconds)
        return {**figures, "num_evaluations": posterior.num_evaluations}

    return call


def _stan_in_mode(start: float, n: int, draws: int, seed: int, num_chains: int = 1) -> Call:
    import stan

    x = torch.cat(mixture_samples(n // 6))
    data = {"n": len(x), "x": x.squeeze(-1).tolist(), "sigma2": 0.1}
    program = stan.build(PAPER_PROGRAM, data=data, random_seed=1 + seed)  # compiled here, outside the clock

    def call() -> Record:
        started = time.perf_counter()
        initial = [{"lengthscale": start}] * num_chains
        chain = program.sample(init=initial, num_chains=num_chains, num_warmup=draws, num_samples=draws)
        seconds = time.perf_counter() - started
        figures = _mode_figures(torch.as_tensor(chain["lengthscale"]).reshape(-1, num_chains).T, seconds)
        return {**figures, "num_evaluations": int(chain["n_leapfrog__"].sum())}  # those after warm-up

    return call


def _quadrature(start: float, n: int, num_points: int) -> Call:
    """The exact moments of a mode, by the density at a grid of points."""
    potential = Potential(model(), EmbeddingEvidence(), torch.cat(mixture_samples(n // 6)), None)
    lengthscale = np.linspace(*MODES[start], num_points)

    def call() -> Record:
        u = [potential.unconstrained({LENGTHSCALE: torch.tensor(value)}) for value in lengthscale]
        log_density = -np.array([potential.value(point) for point in u])
        jacobian = np.gradient(np.concatenate(u), lengthscale)  # the density is that of the raw parameter u
        weight = np.exp(log_density - log_density.max()) * jacobian
        weight /= weight.sum()
        mean = float((weight * lengthscale).sum())
        return {"lengthscale": mean, "sd": float(np.sqrt((weight * (lengthscale - mean) ** 2).sum()))}

    return call


def _mode_figures(draws: Tensor, seconds: float) -> Record:
    effective = max(n_eff(draws).item(), 1.0)
    error = draws.std().item() / math.sqrt(effective)
    moments: Record = {"lengthscale": draws.mean().item(), "error": error, "sd": draws.std().item()}
    return {**moments, "n_eff": effective, "effective_per_second": effective / seconds}


@part("stan")
def stan_cases(scope: Scope) -> Iterator[Measurement]:
    """One chain in each mode by Stan and by us, and the mode by quadrature."""
    n, draws, points = (60, 10, 21) if scope.quick else (600, 150, 601)
    for start in MODES:
        title = f"the paper's Stan program, mode {start:g}"
        yield Measurement(
            title, OURS, n, partial(_ours_in_mode, start, n, draws, NUTS(parallel=False), scope.repetition)
        )
        yield Measurement(title, "Stan", n, partial(_stan_in_mode, start, n, draws, scope.repetition), package="stan")
        yield Measurement(title, "quadrature", n, partial(_quadrature, start, n, points))


@part("stan-few")
def few_cases(scope: Scope) -> Iterator[Measurement]:
    """The same program for few data, with four chains: by Pyro's NUTS, by nutpie and by Stan."""
    start, chains, draws, seed = 2.9, 4, 10 if scope.quick else 200, scope.repetition
    for n in (30,) if scope.quick else (48, 102, 198):
        yield Measurement(FEW, OURS, n, partial(_ours_in_mode, start, n, draws, NUTS(), seed, chains))
        nutpie = partial(_ours_in_mode, start, n, draws, Nutpie(), seed, chains)
        yield Measurement(FEW, f"{OURS}, nutpie", n, nutpie, package="nutpie")
        yield Measurement(FEW, "Stan", n, partial(_stan_in_mode, start, n, draws, seed, chains), package="stan")
