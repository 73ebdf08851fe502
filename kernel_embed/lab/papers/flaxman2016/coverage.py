"""How often the 80 % bands of the embedding hold the truth.

P = N(0, 1), whose embedding under a squared exponential is known; the share of points of a grid and of repetitions at
which the pointwise band contains μ_P.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from gpytorch.kernels import RBFKernel

from ....embeddings.bayesian import BayesianMeanEmbedding
from ....results import Record, Results, table
from ..experiment import Experiment, Settings

Noise = float | Literal["heteroscedastic", "central-limit"]
NOISES: tuple[Noise, ...] = (0.1, 0.01, 0.001, "heteroscedastic", "central-limit")


@dataclass(frozen=True)
class BandCoverage(Experiment):
    """One record for each sample size, lengthscale and noise."""

    name = "coverage"
    shows = "how often pointwise 80 % bands of the Bayesian embedding hold the embedding of N(0, 1), by noise model"
    duration = "a minute"
    key = ("experiment", "n", "lengthscale", "noise")
    tags = ("coverage",)
    options = frozenset({"repetitions", "seed"})

    sizes: tuple[int, ...] = (50, 200)

    def run(self, results: Results, settings: Settings) -> None:
        """Draw samples, and count at which points of the grid the band holds the truth."""
        repetitions = settings.repetitions or (5 if settings.quick else 100)
        for n, lengthscale, noise in itertools.product(self.sizes, (0.3, 0.8), NOISES):
            named: Record = {"experiment": "coverage", "n": n, "lengthscale": lengthscale, "noise": noise}
            if named not in results:
                generator = torch.Generator().manual_seed(settings.seed)
                results.add({**named, **_covered(n, lengthscale, noise, repetitions, generator)})

    def summary(self, records: Sequence[Record]) -> str:
        """Coverage and mean width of the bands."""
        rows = [
            [str(r["noise"]), str(r["n"]), f"{r['lengthscale']:g}", f"{r['coverage']:.2f}", f"{r['width']:.3f}"]
            for r in records
        ]
        return table(["noise", "n", "lengthscale", "coverage of 80 % bands", "width"], rows)


@torch.no_grad()
def _covered(n: int, lengthscale: float, noise: Noise, repetitions: int, generator: torch.Generator) -> Record:
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
