"""Chains that start anywhere in the prior, over five families of kernels: none may end with an error.

The priors are the default ones, log θ ~ N(log θ₀, 1.5²) around the values of a new kernel: one value in twenty is off
by a factor of 19 or more. Proposals at which the objective does not exist are rejections, and are counted.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from gpytorch.kernels import Kernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, RQKernel, ScaleKernel

from ....embeddings import MulticlassEmbedding
from ....objectives import ConditionalEvidence
from ....posteriors import NUTS, sample_posterior
from ....results import Record, Results, column, group, number, table
from ..experiment import Experiment, Settings

FAMILIES: dict[str, Callable[[], Kernel]] = {
    "squared exponential, relevance": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "Matérn ½": lambda: MaternKernel(0.5),
    "rational quadratic": lambda: RQKernel(),
    "periodic": lambda: PeriodicKernel(),
    "sum of linear and Matérn 3/2": lambda: ScaleKernel(LinearKernel()) + ScaleKernel(MaternKernel(1.5)),
}
NUM_DATA = 15
SAMPLER = NUTS(parallel=False, max_tree_depth=4)


@dataclass(frozen=True)
class PriorChains(Experiment):
    """One record for each chain: its draws, rejections and divergences, or the error that ended it."""

    name = "prior-chains"
    shows = "does NUTS run without an error from every start in the prior, for five families of kernels"
    duration = "ten minutes"
    key = ("experiment", "family", "number")
    tags = ("prior chains",)
    options = frozenset({"repetitions"})

    num_samples: int = 10
    warmup_steps: int = 10

    def run(self, results: Results, settings: Settings) -> None:
        """Forty chains for each family, two hundred in all."""
        count = settings.repetitions or (1 if settings.quick else 40)
        for seed in range(count):
            for family in FAMILIES:
                record: Record = {"experiment": "prior chains", "family": family, "number": seed}
                if record not in results:
                    results.add({**record, **self._chain(family, seed)})

    def _chain(self, family: str, seed: int) -> Record:
        generator = np.random.RandomState(seed)
        y = np.arange(NUM_DATA) % 3
        x = torch.as_tensor(generator.randn(NUM_DATA, 2) + y[:, None])
        embedding = MulticlassEmbedding(FAMILIES[family]().double(), 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of few draws, of digits lost at odd scales: what counts is the end
            try:
                posterior = sample_posterior(
                    embedding, ConditionalEvidence(), x, torch.as_tensor(y), num_samples=self.num_samples,
                    warmup_steps=self.warmup_steps, num_chains=1, seed=seed, sampler=SAMPLER, progress=False,
                )  # fmt: skip
                finite = all(bool(torch.isfinite(draws).all()) for draws in posterior.samples.values())
                p = posterior.probabilities(x)
            except Exception as error:
                return {"error": f"{type(error).__name__}: {error}"}
        sound = finite and bool(torch.isfinite(p).all()) and bool(((p >= 0) & (p <= 1)).all())
        return {"sound": sound, "refused": posterior.draws.num_refused, "seconds": posterior.seconds}

    def summary(self, records: Sequence[Record]) -> str:
        """By family: chains, those that ended with an error or unsound answers, rejected proposals."""
        rows = []
        for family, chosen in group(records, lambda r: r["family"]).items():
            ended = [r for r in chosen if "error" not in r]
            unsound = sum(not r["sound"] for r in ended)
            refused = int(column(ended, "refused").sum()) if ended else 0
            seconds = sum(number(r, "seconds") for r in ended)
            rows.append(
                [
                    f"{family}",
                    f"{len(chosen)}",
                    f"{len(chosen) - len(ended)}",
                    f"{unsound}",
                    f"{refused}",
                    f"{seconds:.0f}",
                ]
            )
        return table(["family", "chains", "errors", "unsound", "proposals refused", "seconds"], rows)
