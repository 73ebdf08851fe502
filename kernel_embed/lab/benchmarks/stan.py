"""The paper's Stan program: its two modes by Stan, by ours and by quadrature, in effective draws per second."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator
from functools import partial

import numpy as np
import torch
from torch import Tensor

from ...objectives import EmbeddingEvidence
from ...posteriors import NUTS, Nutpie, PosteriorWarning, Sampler, sample_posterior
from ...posteriors.diagnostics import n_eff
from ...posteriors.potential import Potential
from ...results import Record
from ..papers.flaxman2016.mixtures import mixture_samples, model
from .cases import OURS, Call, Case, Scope

STAN = """
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
NAME = "kernel.lengthscale"
FEW = "the paper's Stan program, few data"


def part(start: float) -> str:
    """The title of the table of one mode."""
    return f"the paper's Stan program, mode {start:g}"


def _ours(start: float, n: int, draws: int, sampler: Sampler, seed: int, num_chains: int = 1) -> Call:
    x = torch.cat(mixture_samples(n // 6))

    def call() -> Record:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                model(), EmbeddingEvidence(), x, num_samples=draws, warmup_steps=draws, num_chains=num_chains,
                seed=seed, initial={NAME: torch.tensor(start)}, sampler=sampler, progress=False,
            )  # fmt: skip
        found = _figures(posterior.samples[NAME].reshape(num_chains, -1), posterior.seconds)
        return {**found, "num_evaluations": posterior.num_evaluations}

    return call


def _stan(start: float, n: int, draws: int, seed: int, num_chains: int = 1) -> Call:
    import stan

    x = torch.cat(mixture_samples(n // 6))
    data = {"n": len(x), "x": x.squeeze(-1).tolist(), "sigma2": 0.1}
    program = stan.build(STAN, data=data, random_seed=1 + seed)  # compiled here, outside the clock

    def call() -> Record:
        began = time.perf_counter()
        places = [{"lengthscale": start}] * num_chains
        chain = program.sample(init=places, num_chains=num_chains, num_warmup=draws, num_samples=draws)
        seconds = time.perf_counter() - began
        found = _figures(torch.as_tensor(chain["lengthscale"]).reshape(-1, num_chains).T, seconds)
        return {**found, "num_evaluations": int(chain["n_leapfrog__"].sum())}  # those after warm-up

    return call


def _quadrature(start: float, n: int, num_points: int) -> Call:
    """What every sampler of that model should find: the density over the mode, point by point."""
    potential = Potential(model(), EmbeddingEvidence(), torch.cat(mixture_samples(n // 6)), None)
    lengthscale = np.linspace(*MODES[start], num_points)

    def call() -> Record:
        u = [potential.unconstrained({NAME: torch.tensor(value)}) for value in lengthscale]
        log_density = -np.array([potential.value(point) for point in u])
        jacobian = np.gradient(np.concatenate(u), lengthscale)  # the density is that of the raw parameter u
        weight = np.exp(log_density - log_density.max()) * jacobian
        weight /= weight.sum()
        mean = float((weight * lengthscale).sum())
        return {"lengthscale": mean, "sd": float(np.sqrt((weight * (lengthscale - mean) ** 2).sum()))}

    return call


def _figures(draws: Tensor, seconds: float) -> Record:
    effective = max(n_eff(draws).item(), 1.0)
    error = draws.std().item() / math.sqrt(effective)
    place: Record = {"lengthscale": draws.mean().item(), "error": error, "sd": draws.std().item()}
    return {**place, "n_eff": effective, "effective_per_second": effective / seconds}


def cases(scope: Scope) -> Iterator[Case]:
    """One chain in each mode by Stan and by us, and the mode by quadrature."""
    n, draws, points = (60, 10, 21) if scope.quick else (600, 150, 601)
    for start in MODES:
        title = part(start)
        yield Case(title, OURS, n, partial(_ours, start, n, draws, NUTS(parallel=False), scope.repetition))
        yield Case(title, "Stan", n, partial(_stan, start, n, draws, scope.repetition), package="stan")
        yield Case(title, "quadrature", n, partial(_quadrature, start, n, points))


def small_cases(scope: Scope) -> Iterator[Case]:
    """The same program for few data, with four chains: by Pyro's NUTS, by nutpie and by Stan."""
    start, chains, draws, seed = 2.9, 4, 10 if scope.quick else 200, scope.repetition
    for n in (30,) if scope.quick else (48, 102, 198):
        yield Case(FEW, OURS, n, partial(_ours, start, n, draws, NUTS(), seed, chains))
        nutpie = partial(_ours, start, n, draws, Nutpie(), seed, chains)
        yield Case(FEW, f"{OURS}, nutpie", n, nutpie, package="nutpie")
        yield Case(FEW, "Stan", n, partial(_stan, start, n, draws, seed, chains), package="stan")
