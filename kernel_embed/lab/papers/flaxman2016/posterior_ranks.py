r"""Simulation-based calibration: where the truth lies among the draws, for three models.

θ from its prior, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in each column, L nearly independent draws
of the posterior given Y. Where the sampler is right, the rank of the truth among them is uniform on 0 … L (Talts et al.
2018). The ranks of all data sets are put into bins of equal width and tested by χ².
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from torch import Tensor

from ....embeddings import ConditionalEmbedding
from ....kernels import gram, log_scaled
from ....objectives import ConditionalEvidence
from ....posteriors import NUTS, PosteriorWarning, sample_posterior
from ....results import Record, Results, column, group, table
from ..experiment import Experiment, Settings

NUM_RANKS = 5
"""L + 1; every so many-th draw of a chain is one of the L."""
THINNING = 5
NUM_DATA = 12
NUM_COLUMNS = 2

SAMPLER = NUTS(parallel=False, max_tree_depth=5)

Truth = dict[str, Tensor]


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
"""What makes a model, and how many features it has."""


def simulate(model: str, seed: int) -> tuple[ConditionalEmbedding, Tensor, Tensor, Truth]:
    """The model, x, a draw of Y, and the parameters behind it."""
    make, width = MODELS[model]
    generator = np.random.RandomState(seed)
    embedding = make()
    truth: Truth = {}
    for name, owner, prior, closure, setter in embedding.named_priors():
        assert setter is not None, "registered by name"
        value = closure(owner)
        drawn = torch.exp(prior.loc + prior.scale * torch.as_tensor(generator.randn(*value.shape)))
        setter(owner, drawn.to(value))
        truth[name.removesuffix("_prior")] = closure(owner).detach().flatten()
    x = torch.as_tensor(generator.rand(NUM_DATA, width))
    with torch.no_grad():
        A = gram(embedding.kernel, x) + NUM_DATA * embedding.regularization * torch.eye(NUM_DATA, dtype=x.dtype)
    Y = torch.linalg.cholesky(A) @ torch.as_tensor(generator.randn(NUM_DATA, NUM_COLUMNS))
    return make(), x, Y, truth


@dataclass(frozen=True)
class PosteriorRanks(Experiment):
    """One record for each model and simulated data set."""

    name = "posterior-ranks"
    shows = "simulation-based calibration: is the rank of the truth among the draws uniform, for three models"
    duration = "six minutes"
    key = ("experiment", "model", "number")
    tags = ("posterior ranks",)
    options = frozenset({"repetitions"})

    warmup_steps: int = 50

    def run(self, results: Results, settings: Settings) -> None:
        """Simulate, sample, and count the draws below the truth."""
        count = settings.repetitions or (2 if settings.quick else 500)
        for number in range(count):
            for model in MODELS:
                record: Record = {"experiment": "posterior ranks", "model": model, "number": number}
                if record not in results:
                    results.add({**record, **self._ranks(model, number)})

    def _ranks(self, model: str, number: int) -> Record:
        embedding, x, Y, truth = simulate(model, number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                embedding, ConditionalEvidence(), x, Y, num_samples=THINNING * (NUM_RANKS - 1),
                warmup_steps=self.warmup_steps, num_chains=1, seed=number, sampler=SAMPLER, progress=False,
            )  # fmt: skip
        found: Record = {"seconds": posterior.seconds}
        for name, values in truth.items():
            draws = posterior.samples[name][THINNING - 1 :: THINNING].reshape(NUM_RANKS - 1, -1)
            for j, value in enumerate(values):
                found[f"rank {name} {j}"] = int((draws[:, j] < value).sum())
        return found

    def summary(self, records: Sequence[Record]) -> str:
        """χ² of the ranks in each parameter, and its p-value."""
        rows = []
        for model, chosen in group(records, lambda r: r["model"]).items():
            for field in sorted(key for key in chosen[0] if key.startswith("rank ")):
                ranks = column(chosen, field)
                statistic, p = uniformity(ranks)
                name = field.removeprefix("rank ")
                rows.append(
                    [f"{model}, {name}", str(len(ranks)), f"{ranks.mean():.2f}", f"{statistic:.1f}", f"{p:.3f}"]
                )
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
