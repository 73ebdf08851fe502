"""How often 80 % bands of an embedding and 80 % intervals of hyperparameters contain the truth.

*Bands*: P = N(0, 1), whose embedding under a squared exponential is known; the share of points of a grid and of
repetitions at which the pointwise band contains μ_P.

*Intervals*: (ℓ, λ) from their priors, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in both columns, then
the posterior given Y. If the sampler is right, central 80 % intervals contain the truth 80 times in 100, and the rank
of the truth among the draws is uniform. The Gibbs posterior of the cross-validated squared distance, on the same data
with the same priors, has no such guarantee.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ...embeddings import ConditionalEmbedding, ConditionedEmbedding
from ...embeddings.bayesian import BayesianMeanEmbedding
from ...kernels import gram, log_scaled
from ...objectives import ConditionalEvidence, CrossValidationRisk, Objective
from ...posteriors import NUTS, PosteriorWarning, sample_posterior
from ...results import Record, column, group, table
from ..experiment import Experiment, Settings
from ..runner import Case

Noise = float | Literal["heteroscedastic", "central-limit"]
NOISES: tuple[Noise, ...] = (0.1, 0.01, 0.001, "heteroscedastic", "central-limit")


def band_cases(settings: Settings, sizes: tuple[int, ...]) -> Iterator[Case]:
    """One case for each sample size, lengthscale and noise."""
    repetitions = settings.repetitions or (5 if settings.quick else 100)
    for n, lengthscale, noise in itertools.product(sizes, (0.3, 0.8), NOISES):
        key: Record = {"experiment": "coverage", "n": n, "lengthscale": lengthscale, "noise": noise}
        yield Case(key, partial(_bands, n, lengthscale, noise, repetitions, settings.seed))


@torch.no_grad()
def _bands(n: int, lengthscale: float, noise: Noise, repetitions: int, seed: int) -> Record:
    generator = torch.Generator().manual_seed(seed)
    query = torch.linspace(-2, 2, 9, dtype=torch.float64).unsqueeze(-1)
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    variance = lengthscale**2 + 1.0
    truth = lengthscale / math.sqrt(variance) * torch.exp(-0.5 * query.squeeze(-1).square() / variance)
    embedding = BayesianMeanEmbedding(kernel, noise=noise)
    inside, width = 0.0, 0.0
    for _ in range(repetitions):
        x = torch.randn(n, 1, generator=generator, dtype=torch.float64)
        lower, upper = embedding.condition(x).band(query, 0.8)
        inside += ((lower <= truth) & (truth <= upper)).double().mean().item() / repetitions
        width += (upper - lower).mean().item() / repetitions
    return {"coverage": inside, "width": width}


def band_summary(records: Sequence[Record]) -> str:
    """Coverage and mean width of the bands."""
    rows = [
        [str(r["noise"]), str(r["n"]), f"{r['lengthscale']:g}", f"{r['coverage']:.2f}", f"{r['width']:.3f}"]
        for r in records
    ]
    return table(["noise", "n", "lengthscale", "coverage of 80 % bands", "width"], rows)


NAMES = ("kernel.lengthscale", "regularization")
NUM_DATA = 30
OBJECTIVES: dict[str, Objective[ConditionedEmbedding]] = {
    "evidence": ConditionalEvidence(),
    "Gibbs": CrossValidationRisk(num_folds=5),
}


def model() -> ConditionalEmbedding:
    """log ℓ ~ N(log 0.3, 0.5²), log λ ~ N(log 0.01, 1)."""
    kernel = RBFKernel(
        lengthscale_prior=LogNormalPrior(math.log(0.3), 0.5), lengthscale_constraint=log_scaled()
    ).double()
    prior = LogNormalPrior(math.log(0.01), 1.0)
    embedding = ConditionalEmbedding(kernel, target_kernel=RBFKernel().double(), regularization_prior=prior)
    embedding.target_kernel.requires_grad_(False)  # type: ignore[union-attr]
    embedding.double()
    return embedding


def simulate(seed: int) -> tuple[Tensor, Tensor, dict[str, float]]:
    """x, a draw of Y, and the parameters behind it."""
    generator = np.random.RandomState(seed)
    lengthscale, regularization = 0.3 * math.exp(0.5 * generator.randn()), 0.01 * math.exp(generator.randn())
    x = torch.as_tensor(generator.rand(NUM_DATA, 1))
    kernel = RBFKernel().double()
    kernel.lengthscale = lengthscale
    with torch.no_grad():
        A = gram(kernel, x) + NUM_DATA * regularization * torch.eye(NUM_DATA, dtype=x.dtype)
    root = torch.linalg.cholesky_ex(A)[0]
    Y = root @ torch.as_tensor(generator.randn(NUM_DATA, 2))
    return x, Y, dict(zip(NAMES, (lengthscale, regularization), strict=True))


def interval_cases(settings: Settings, num_samples: int, warmup_steps: int) -> Iterator[Case]:
    """Simulated data sets for each objective; the Gibbs posterior is slower and gets a quarter as many."""
    count = settings.repetitions or (2 if settings.quick else 200)
    for name in OBJECTIVES:
        for number in range(count if name == "evidence" else max(1, count // 4)):
            key: Record = {"experiment": "posterior coverage", "objective": name, "number": number}
            yield Case(key, partial(_ranks, name, number, num_samples, warmup_steps))


def _ranks(objective: str, number: int, num_samples: int, warmup_steps: int) -> Record:
    """Where the truth is among the draws, whether inside the interval, and the width of that."""
    x, y, truth = simulate(number)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sample_posterior(
            model(), OBJECTIVES[objective], x, y, num_samples=num_samples, warmup_steps=warmup_steps, num_chains=1,
            seed=number, sampler=NUTS(parallel=False), progress=False,
        )  # fmt: skip
    record: Record = {"seconds": posterior.seconds}
    for name in NAMES:
        draws = posterior.samples[name].flatten()
        rank = (draws < truth[name]).double().mean().item()
        low, high = draws.log().quantile(0.1).item(), draws.log().quantile(0.9).item()
        record |= {f"{name} rank": rank, f"{name} inside": 0.1 <= rank <= 0.9, f"{name} width": high - low}
    return record


def interval_summary(records: Sequence[Record]) -> str:
    """Coverage with its standard error, mean rank, and mean width of the intervals on the log scale."""
    rows = []
    for objective, own in group(records, lambda r: r["objective"]).items():
        for name in NAMES:
            share, rank, width = (column(own, f"{name} {field}").mean() for field in ("inside", "rank", "width"))
            error = math.sqrt(max(share * (1 - share), 1e-9) / len(own))
            rows.append(
                [f"{objective}, {name}", str(len(own)), f"{share:.2f} ± {error:.2f}", f"{rank:.2f}", f"{width:.2f}"]
            )
    return table(["posterior, parameter", "data sets", "coverage of 80 % intervals", "mean rank", "width (log)"], rows)


BANDS = Experiment(
    "coverage",
    "how often pointwise 80 % bands of the Bayesian embedding hold the embedding of N(0, 1), by noise model",
    "a minute", ("experiment", "n", "lengthscale", "noise"), band_cases, band_summary,
    options=frozenset({"repetitions", "seed"}), parameters={"sizes": (50, 200)},
)  # fmt: skip
INTERVALS = Experiment(
    "posterior-coverage", "how often 80 % intervals of hyperparameters hold those that the data were simulated with",
    "an hour", ("experiment", "objective", "number"), interval_cases, interval_summary,
    options=frozenset({"repetitions"}), tag=("posterior coverage",),
    parameters={"num_samples": 50, "warmup_steps": 40},
)  # fmt: skip
