"""How often 80 % intervals of hyperparameters hold the truth.

    python -m kernel_embed.papers.flaxman2016.posterior_coverage

Simulation-based: (ℓ, λ) from their priors, Y from the model of ``ConditionalEvidence``, N(0, K + nλI) in each of two
columns, then the posterior given Y. Where the sampler is right, central 80 % intervals hold the truth 80 times in 100,
and the rank of the truth among the draws is uniform. The Gibbs posterior of the cross-validated squared distance, on
the same data with the same priors, has no such promise; its coverage is what it is.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import sys
import warnings

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior

from ...embeddings import ConditionalEmbedding, ConditionedEmbedding
from ...kernels import gram, log_scaled
from ...objectives import ConditionalEvidence, CrossValidationRisk, Objective
from ...posteriors import NUTS, PosteriorWarning, sample_posterior
from ...results import Record, Results, column, group, table

KEY = ("experiment", "objective", "number")
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


def run(results: Results, *, num_sets: dict[str, int], num_samples: int, warmup: int) -> None:
    """One record for each simulated data set and objective, of which there are ``num_sets``."""
    for name, objective in OBJECTIVES.items():
        for number in range(num_sets[name]):
            embedding, x, y, truth = simulate(number)
            record: Record = {"experiment": "posterior coverage", "objective": name, "number": number}
            if record in results:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", PosteriorWarning)
                posterior = sample_posterior(
                    embedding, objective, x, y, num_samples=num_samples, warmup_steps=warmup, num_chains=1,
                    seed=number, sampler=NUTS(parallel=False), progress=False,
                )  # fmt: skip
            for parameter in NAMES:
                draws = posterior.samples[parameter].flatten()
                rank = (draws < truth[parameter]).double().mean().item()
                record[f"{parameter} rank"] = rank
                record[f"{parameter} inside"] = 0.1 <= rank <= 0.9
                low, high = draws.log().quantile(0.1).item(), draws.log().quantile(0.9).item()
                record[f"{parameter} width"] = high - low
            record["seconds"] = posterior.seconds
            results.add(record)


def summary(records: list[Record]) -> str:
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
    return table(["posterior, parameter", "data sets", "coverage of 80 % intervals", "mean rank", "width (log)"], rows)


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/posterior_coverage"))
    parser.add_argument("--sets", type=int, default=200, help="data sets for the evidence")
    parser.add_argument("--gibbs-sets", type=int, default=50, help="data sets for the Gibbs posterior, which is slower")
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--warmup", type=int, default=40)
    options = parser.parse_args()
    results = Results(options.out / "results.json", KEY)
    num_sets = {"evidence": options.sets, "Gibbs": options.gibbs_sets}
    run(results, num_sets=num_sets, num_samples=options.samples, warmup=options.warmup)
    sys.stdout.write(summary(results.records) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
