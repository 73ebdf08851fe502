r"""Two checks against known answers: coverage of the bands of an embedding, and simulation-based calibration of NUTS.

*Bands*: P = N(0, 1), whose embedding under a squared exponential is known; the share of points of a grid and of
repetitions at which the pointwise 80 % band contains μ_P.

*Ranks*: θ from its prior, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in each column, L nearly
independent draws of the posterior given Y. If the sampler is right, the rank of the truth among them is uniform on
0 … L (Talts et al. 2018). The ranks of all data sets are tested by χ².
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Literal

import numpy as np
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from scipy.stats import chisquare
from torch import Tensor

from ...embeddings import ConditionalEmbedding
from ...embeddings.bayesian import BayesianMeanEmbedding
from ...kernels import gram, log_scaled
from ...objectives import ConditionalEvidence
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


NUM_RANKS = 5
"""L + 1; every ``THINNING``-th draw of a chain is one of the L."""
THINNING = 5
NUM_DATA = 12
NUM_COLUMNS = 2


def _log_normal(name: str, center: float) -> dict[str, object]:
    return {f"{name}_prior": LogNormalPrior(math.log(center), 0.5), f"{name}_constraint": log_scaled()}


MODELS: dict[str, tuple[Callable[[], Kernel], int]] = {
    "squared exponential": (lambda: RBFKernel(**_log_normal("lengthscale", 0.3)), 1),
    "relevance of two features": (lambda: RBFKernel(ard_num_dims=2, **_log_normal("lengthscale", 0.5)), 2),
    "scaled Matérn": (
        lambda: ScaleKernel(MaternKernel(1.5, **_log_normal("lengthscale", 0.3)), **_log_normal("outputscale", 1.0)),
        1,
    ),
}
"""A function that makes the kernel, log θ ~ N(log θ₀, 0.5²), and the number of features."""


def _embedding(model: str) -> ConditionalEmbedding:
    """log λ ~ N(log 0.01, 1)."""
    kernel = MODELS[model][0]()
    return ConditionalEmbedding(kernel, regularization_prior=LogNormalPrior(math.log(0.01), 1.0)).double()


def simulate(model: str, seed: int) -> tuple[ConditionalEmbedding, Tensor, Tensor, dict[str, Tensor]]:
    """The model, x, a draw of Y, and the parameters behind it."""
    generator = np.random.RandomState(seed)
    embedding = _embedding(model)
    truth: dict[str, Tensor] = {}
    for name, owner, prior, closure, setter in embedding.named_priors():
        assert setter is not None, "registered by name"
        value = closure(owner)
        sample = torch.exp(prior.loc + prior.scale * torch.as_tensor(generator.randn(*value.shape)))
        setter(owner, sample.to(value))
        truth[name.removesuffix("_prior")] = closure(owner).detach().flatten()
    x = torch.as_tensor(generator.rand(NUM_DATA, MODELS[model][1]))
    with torch.no_grad():
        A = gram(embedding.kernel, x) + NUM_DATA * embedding.regularization * torch.eye(NUM_DATA, dtype=x.dtype)
    Y = torch.linalg.cholesky(A) @ torch.as_tensor(generator.randn(NUM_DATA, NUM_COLUMNS))
    return _embedding(model), x, Y, truth


def rank_cases(settings: Settings, warmup_steps: int) -> Iterator[Case]:
    """Simulated data sets of every model."""
    for seed in range(settings.repetitions or (2 if settings.quick else 500)):
        for model in MODELS:
            key: Record = {"experiment": "posterior-ranks", "model": model, "number": seed}
            yield Case(key, partial(_ranks, model, seed, warmup_steps))


def _ranks(model: str, seed: int, warmup_steps: int) -> Record:
    """The number of draws below the truth, for every parameter."""
    embedding, x, Y, truth = simulate(model, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)
        posterior = sample_posterior(
            embedding, ConditionalEvidence(), x, Y, num_samples=THINNING * (NUM_RANKS - 1), warmup_steps=warmup_steps,
            num_chains=1, seed=seed, sampler=NUTS(parallel=False, max_tree_depth=5), progress=False,
        )  # fmt: skip
    record: Record = {"seconds": posterior.seconds}
    for name, values in truth.items():
        draws = posterior.samples[name][THINNING - 1 :: THINNING].reshape(NUM_RANKS - 1, -1)
        record |= {f"rank {name} {j}": int((draws[:, j] < value).sum()) for j, value in enumerate(values)}
    return record


def rank_summary(records: Sequence[Record]) -> str:
    """χ² of the ranks in each parameter, and its p-value."""
    rows = []
    for model, own in group(records, lambda r: r["model"]).items():
        for field in sorted(key for key in own[0] if key.startswith("rank ")):
            ranks = column(own, field)
            statistic, p = chisquare(np.bincount(ranks.astype(int), minlength=NUM_RANKS))
            name = f"{model}, {field.removeprefix('rank ')}"
            rows.append([name, str(len(ranks)), f"{ranks.mean():.2f}", f"{statistic:.1f}", f"{p:.3f}"])
    return table(["model, parameter", "data sets", "mean rank", "χ²", "p"], rows)


BANDS = Experiment(
    "coverage",
    "how often pointwise 80 % bands of the Bayesian embedding hold the embedding of N(0, 1), by noise model",
    "a minute", ("experiment", "n", "lengthscale", "noise"), band_cases, band_summary,
    options=frozenset({"repetitions", "seed"}), parameters={"sizes": (50, 200)},
)  # fmt: skip
RANKS = Experiment(
    "posterior-ranks",
    "simulation-based calibration: is the rank of the truth among the draws uniform, for three models",
    "six minutes", ("experiment", "model", "number"), rank_cases, rank_summary, options=frozenset({"repetitions"}),
    parameters={"warmup_steps": 50},
)  # fmt: skip
