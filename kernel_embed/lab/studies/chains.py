r"""Two checks of NUTS: simulation-based calibration for three models, and chains that start anywhere in the prior.

*Ranks*: θ from its prior, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in each column, L nearly
independent draws of the posterior given Y. If the sampler is right, the rank of the truth among them is uniform on
0 … L (Talts et al. 2018). The ranks of all data sets are tested by χ².

*Prior chains*: five families of kernels with the default priors, log θ ~ N(log θ₀, 1.5²) around the values of a new
kernel: one value in twenty is off by a factor of 19 or more. Proposals at which the objective does not exist are
rejections, and are counted; no chain may end with an error.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ...embeddings import ConditionalEmbedding, MulticlassEmbedding
from ...kernels import gram, log_scaled
from ...objectives import ConditionalEvidence
from ...posteriors import NUTS, PosteriorWarning, sample_posterior
from ...results import Record, column, group, number, table
from ..experiment import Experiment, Settings
from ..runner import Case

NUM_RANKS = 5
"""L + 1; every ``THINNING``-th draw of a chain is one of the L."""
THINNING = 5
NUM_DATA = 12
NUM_COLUMNS = 2


def _lengthscale(scale: float) -> dict[str, object]:
    return {"lengthscale_prior": LogNormalPrior(math.log(scale), 0.5), "lengthscale_constraint": log_scaled()}


def _isotropic() -> ConditionalEmbedding:
    """log ℓ ~ N(log 0.3, 0.5²)."""
    return _embedding(RBFKernel(**_lengthscale(0.3)))


def _relevance() -> ConditionalEmbedding:
    """One lengthscale for each of two features."""
    return _embedding(RBFKernel(ard_num_dims=2, **_lengthscale(0.5)))


def _scaled() -> ConditionalEmbedding:
    """A Matérn kernel with an outputscale, log σ_f² ~ N(0, 0.5²)."""
    prior = LogNormalPrior(0.0, 0.5)
    kernel = ScaleKernel(
        MaternKernel(1.5, **_lengthscale(0.3)), outputscale_prior=prior, outputscale_constraint=log_scaled()
    )
    return _embedding(kernel)


def _embedding(kernel: RBFKernel | ScaleKernel) -> ConditionalEmbedding:
    """log λ ~ N(log 0.01, 1)."""
    embedding = ConditionalEmbedding(kernel, regularization_prior=LogNormalPrior(math.log(0.01), 1.0))
    return embedding.double()


MODELS: dict[str, tuple[Callable[[], ConditionalEmbedding], int]] = {
    "squared exponential": (_isotropic, 1),
    "relevance of two features": (_relevance, 2),
    "scaled Matérn": (_scaled, 1),
}
"""A function that makes the model, and the number of its features."""


def simulate(model: str, seed: int) -> tuple[ConditionalEmbedding, Tensor, Tensor, dict[str, Tensor]]:
    """The model, x, a draw of Y, and the parameters behind it."""
    make, width = MODELS[model]
    generator = np.random.RandomState(seed)
    embedding = make()
    truth: dict[str, Tensor] = {}
    for name, owner, prior, closure, setter in embedding.named_priors():
        assert setter is not None, "registered by name"
        value = closure(owner)
        sample = torch.exp(prior.loc + prior.scale * torch.as_tensor(generator.randn(*value.shape)))
        setter(owner, sample.to(value))
        truth[name.removesuffix("_prior")] = closure(owner).detach().flatten()
    x = torch.as_tensor(generator.rand(NUM_DATA, width))
    with torch.no_grad():
        A = gram(embedding.kernel, x) + NUM_DATA * embedding.regularization * torch.eye(NUM_DATA, dtype=x.dtype)
    Y = torch.linalg.cholesky(A) @ torch.as_tensor(generator.randn(NUM_DATA, NUM_COLUMNS))
    return make(), x, Y, truth


def rank_cases(settings: Settings, warmup_steps: int) -> Iterator[Case]:
    """Simulated data sets of every model."""
    for seed in range(settings.repetitions or (2 if settings.quick else 500)):
        for model in MODELS:
            key: Record = {"experiment": "posterior ranks", "model": model, "number": seed}
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
            statistic, p = uniformity(ranks)
            name = f"{model}, {field.removeprefix('rank ')}"
            rows.append([name, str(len(ranks)), f"{ranks.mean():.2f}", f"{statistic:.1f}", f"{p:.3f}"])
    return table(["model, parameter", "data sets", "mean rank", "χ²", "p"], rows)


def uniformity(ranks: Sequence[float] | np.ndarray) -> tuple[float, float]:
    """Pearson's χ² of ``ranks`` in 0 … L against equal counts, and its p-value.

    Example:
        >>> uniformity(np.arange(NUM_RANKS).repeat(4))
        (0.0, 1.0)
    """
    counts = np.bincount(np.asarray(ranks).astype(int), minlength=NUM_RANKS)
    expected = counts.sum() / NUM_RANKS
    statistic = float((np.square(counts - expected) / expected).sum())
    tail = torch.special.gammaincc(torch.tensor((NUM_RANKS - 1) / 2.0), torch.tensor(statistic / 2.0))
    return statistic, float(tail)


FAMILIES: dict[str, Callable[[], Kernel]] = {
    "squared exponential, relevance": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "Matérn ½": lambda: MaternKernel(0.5),
    "rational quadratic": lambda: RQKernel(),
    "periodic": lambda: PeriodicKernel(),
    "sum of linear and Matérn 3/2": lambda: ScaleKernel(LinearKernel()) + ScaleKernel(MaternKernel(1.5)),
}


def prior_cases(settings: Settings, num_samples: int, warmup_steps: int) -> Iterator[Case]:
    """Forty chains for each family, two hundred in all."""
    for seed in range(settings.repetitions or (1 if settings.quick else 40)):
        for family in FAMILIES:
            key: Record = {"experiment": "prior chains", "family": family, "number": seed}
            yield Case(key, partial(_chain, family, seed, num_samples, warmup_steps))


def _chain(family: str, seed: int, num_samples: int, warmup_steps: int, n: int = 15) -> Record:
    """Whether draws and probabilities are valid, the rejected proposals; or the error that ended the chain."""
    y = np.arange(n) % 3
    x = torch.as_tensor(np.random.RandomState(seed).randn(n, 2) + y[:, None])
    embedding = MulticlassEmbedding(FAMILIES[family]().double(), 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of few draws, and of digits lost at odd scales
        try:
            posterior = sample_posterior(
                embedding, ConditionalEvidence(), x, torch.as_tensor(y), num_samples=num_samples,
                warmup_steps=warmup_steps, num_chains=1, seed=seed, sampler=NUTS(parallel=False, max_tree_depth=4),
                progress=False,
            )  # fmt: skip
            finite = all(bool(torch.isfinite(draws).all()) for draws in posterior.samples.values())
            p = posterior.probabilities(x)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}"}
    sound = finite and bool(torch.isfinite(p).all()) and bool(((p >= 0) & (p <= 1)).all())
    return {"sound": sound, "refused": posterior.draws.num_rejected, "seconds": posterior.seconds}


def prior_summary(records: Sequence[Record]) -> str:
    """By family: chains, those that ended with an error or unsound probabilities, rejected proposals."""
    rows = []
    for family, own in group(records, lambda r: r["family"]).items():
        ended = [r for r in own if "error" not in r]
        counts = len(own), len(own) - len(ended), sum(not r["sound"] for r in ended), column(ended, "refused").sum()
        seconds = sum(number(r, "seconds") for r in ended)
        rows.append([f"{family}", *(f"{count:.0f}" for count in (*counts, seconds))])
    return table(["family", "chains", "errors", "unsound", "proposals refused", "seconds"], rows)


RANKS = Experiment(
    "posterior-ranks",
    "simulation-based calibration: is the rank of the truth among the draws uniform, for three models",
    "six minutes", ("experiment", "model", "number"), rank_cases, rank_summary, options=frozenset({"repetitions"}),
    tag=("posterior ranks",), parameters={"warmup_steps": 50},
)  # fmt: skip
PRIOR_CHAINS = Experiment(
    "prior-chains", "does NUTS run without an error from every start in the prior, for five families of kernels",
    "ten minutes", ("experiment", "family", "number"), prior_cases, prior_summary,
    options=frozenset({"repetitions"}), tag=("prior chains",), parameters={"num_samples": 10, "warmup_steps": 10},
)  # fmt: skip
