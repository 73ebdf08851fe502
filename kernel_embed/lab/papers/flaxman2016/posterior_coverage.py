"""How often 80 % intervals of hyperparameters hold the truth.

Simulation-based: (ℓ, λ) from their priors, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in each of two
columns, then the posterior given Y. Where the sampler is right, central 80 % intervals hold the truth 80 times in 100,
and the rank of the truth among the draws is uniform. The Gibbs posterior of the cross-validated squared distance, on
the same data with the same priors, has no such promise; its coverage is what it is.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

from ....embeddings import ConditionalEmbedding, ConditionedEmbedding
from ....kernels import gram, log_scaled
from ....objectives import ConditionalEvidence, CrossValidationRisk, Objective
from ....posteriors import NUTS, PosteriorWarning, sample_posterior
from ....results import Record, Results, column, group, table
from ..experiment import Experiment, Settings

NAMES = ("kernel.lengthscale", "regularization")
NUM_DATA = 30


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


def simulate(seed: int) -> tuple[ConditionalEmbedding, torch.Tensor, torch.Tensor, dict[str, float]]:
    """The model, x, a draw of Y, and the parameters behind it."""
    generator = np.random.RandomState(seed)
    truth = {
        "kernel.lengthscale": 0.3 * math.exp(0.5 * generator.randn()),
        "regularization": 0.01 * math.exp(generator.randn()),
    }
    embedding = model()
    x = torch.as_tensor(generator.rand(NUM_DATA, 1))
    kernel = RBFKernel().double()
    kernel.lengthscale = truth["kernel.lengthscale"]
    with torch.no_grad():
        A = gram(kernel, x) + NUM_DATA * truth["regularization"] * torch.eye(NUM_DATA, dtype=x.dtype)
    root = torch.linalg.cholesky_ex(A)[0]
    return embedding, x, root @ torch.as_tensor(generator.randn(NUM_DATA, 2)), truth


OBJECTIVES: dict[str, Objective[ConditionedEmbedding]] = {
    "evidence": ConditionalEvidence(),
    "Gibbs": CrossValidationRisk(num_folds=5),
}


@dataclass(frozen=True)
class PosteriorCoverage(Experiment):
    """One record for each simulated data set and objective; ``repetitions`` counts those of the evidence.

    The Gibbs posterior is slower and gets a quarter as many.
    """

    name = "posterior-coverage"
    shows = "how often 80 % intervals of hyperparameters hold those that the data were simulated with"
    duration = "an hour"
    key = ("experiment", "objective", "number")
    tags = ("posterior coverage",)
    options = frozenset({"repetitions"})

    num_samples: int = 50
    warmup_steps: int = 40

    def run(self, results: Results, settings: Settings) -> None:
        """Simulate, sample, and see where the truth is among the draws."""
        count = settings.repetitions or (2 if settings.quick else 200)
        for name, objective in OBJECTIVES.items():
            for number in range(count if name == "evidence" else max(1, count // 4)):
                record: Record = {"experiment": "posterior coverage", "objective": name, "number": number}
                if record not in results:
                    results.add({**record, **self._ranks(objective, number)})

    def _ranks(self, objective: Objective[ConditionedEmbedding], number: int) -> Record:
        embedding, x, y, truth = simulate(number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            posterior = sample_posterior(
                embedding, objective, x, y, num_samples=self.num_samples, warmup_steps=self.warmup_steps,
                num_chains=1, seed=number, sampler=NUTS(parallel=False), progress=False,
            )  # fmt: skip
        found: Record = {}
        for parameter in NAMES:
            draws = posterior.samples[parameter].flatten()
            rank = (draws < truth[parameter]).double().mean().item()
            found[f"{parameter} rank"] = rank
            found[f"{parameter} inside"] = 0.1 <= rank <= 0.9
            low, high = draws.log().quantile(0.1).item(), draws.log().quantile(0.9).item()
            found[f"{parameter} width"] = high - low
        found["seconds"] = posterior.seconds
        return found

    def summary(self, records: Sequence[Record]) -> str:
        """Coverage with its standard error, mean rank, and mean width of the intervals on the log scale."""
        rows = []
        for name, chosen in group(records, lambda r: r["objective"]).items():
            for parameter in NAMES:
                inside = column(chosen, f"{parameter} inside")
                error = math.sqrt(max(inside.mean() * (1 - inside.mean()), 1e-9) / len(inside))
                ranks, widths = column(chosen, f"{parameter} rank"), column(chosen, f"{parameter} width")
                rows.append(
                    [
                        f"{name}, {parameter}",
                        str(len(chosen)),
                        f"{inside.mean():.2f} ± {error:.2f}",
                        f"{ranks.mean():.2f}",
                        f"{widths.mean():.2f}",
                    ]
                )
        return table(
            ["posterior, parameter", "data sets", "coverage of 80 % intervals", "mean rank", "width (log)"], rows
        )
