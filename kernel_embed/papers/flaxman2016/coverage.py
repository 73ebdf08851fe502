"""How often the 80 % bands of the embedding hold the truth: ``python -m kernel_embed.papers.flaxman2016.coverage``.

P = N(0, 1), whose embedding under a squared exponential is known; the share of points of a grid and of repetitions at
which the pointwise band contains μ_P.
"""

from __future__ import annotations

import math
import sys

import torch
from gpytorch.kernels import RBFKernel

from ...embeddings.bayesian import BayesianMeanEmbedding
from ...results import Record, Results, table

KEY = ("experiment", "n", "lengthscale", "noise")
NOISES: tuple[float | str, ...] = (0.1, 0.01, 0.001, "heteroscedastic", "central-limit")


def run(results: Results, *, num_repetitions: int = 100, sizes: tuple[int, ...] = (50, 200), seed: int = 0) -> None:
    """One record for each sample size, lengthscale and noise."""
    query = torch.linspace(-2, 2, 9, dtype=torch.float64).unsqueeze(-1)
    for n in sizes:
        for lengthscale in (0.3, 0.8):
            kernel = RBFKernel().double()
            kernel.lengthscale = lengthscale
            variance = lengthscale**2 + 1.0
            truth = lengthscale / math.sqrt(variance) * torch.exp(-0.5 * query.squeeze(-1).square() / variance)
            for noise in NOISES:
                generator = torch.Generator().manual_seed(seed)
                embedding = BayesianMeanEmbedding(kernel, noise=noise)  # type: ignore[arg-type]
                inside, width = 0.0, 0.0
                for _ in range(num_repetitions):
                    x = torch.randn(n, 1, generator=generator, dtype=torch.float64)
                    with torch.no_grad():
                        lower, upper = embedding.condition(x).band(query, 0.8)
                    inside += ((lower <= truth) & (truth <= upper)).double().mean().item() / num_repetitions
                    width += (upper - lower).mean().item() / num_repetitions
                results.add(
                    {
                        "experiment": "coverage",
                        "n": n,
                        "lengthscale": lengthscale,
                        "noise": noise,
                        "coverage": inside,
                        "width": width,
                    }
                )


def summary(records: list[Record]) -> str:
    """Coverage and mean width of the bands."""
    rows = [
        [str(r["noise"]), str(r["n"]), f"{r['lengthscale']:g}", f"{r['coverage']:.2f}", f"{r['width']:.3f}"]
        for r in records
    ]
    return table(["noise", "n", "lengthscale", "coverage of 80 % bands", "width"], rows)


def main() -> int:
    """Print the table."""
    results = Results(None, KEY)
    run(results)
    sys.stdout.write(summary(results.records) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
