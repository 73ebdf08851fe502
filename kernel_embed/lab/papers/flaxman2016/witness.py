"""Figures 1, 3, 4 and 5 of the Bayesian kernel embeddings: mixtures on the line, by maxima and by chains."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

from ....results import Record, Results, number
from ..experiment import Experiment, Settings
from . import chains, mixtures


@dataclass(frozen=True)
class WitnessOfMixtures(Experiment):
    """Records of the evidence and its maxima, and of eight chains over the lengthscale with their modes."""

    name = "witness"
    shows = "Figures 1, 3, 4, 5 of Flaxman et al.: two maxima of the evidence, chains at each, and the witness"
    duration = "ten minutes"
    key = ("experiment", "kind", "lengthscale")
    tags = ("mixtures", "chains")
    options = frozenset({"seed"})

    def run(self, results: Results, settings: Settings) -> None:
        """The evidence of the pooled sample over lengthscales; then NUTS."""
        per_centre, draws = (10, 10) if settings.quick else (100, 200)
        shared: Record = {"n": 6 * per_centre, "seed": settings.seed}
        if not _has(results, {"experiment": "mixtures", **shared}):
            results.extend(mixtures.mixture_records(per_centre, settings.seed))
        named: Record = {"experiment": "chains", **shared, "num_draws": draws}
        if not _has(results, named):
            file = chains.file_name(6 * per_centre, draws, settings.seed)
            path = None if settings.out is None else settings.out / file
            posterior = chains.sample(path, num_per_centre=per_centre, num_draws=draws, seed=settings.seed)
            results.extend(chains.chain_records(posterior, named))

    def summary(self, records: Sequence[Record]) -> str:
        """The maxima beside the paper's, and the modes with their evidence."""
        by_maxima, by_chains = ([r for r in records if r["experiment"] == tag] for tag in self.tags)
        return f"{mixtures.summary(by_maxima)}\n\n{chains.summary(by_chains)}"

    def draw(self, records: Sequence[Record], out: pathlib.Path) -> None:
        """``figure1``, ``figure3``, ``figure4``, ``figure5`` and ``figure5_posterior``."""
        by_maxima, by_chains = ([r for r in records if r["experiment"] == tag] for tag in self.tags)
        n, draws, seed = (int(number(by_chains[-1], field)) for field in ("n", "num_draws", "seed"))
        out.mkdir(parents=True, exist_ok=True)
        mixtures.draw_model(out / "figure1.png")
        mixtures.draw_mixtures(by_maxima, out / "figure3.png")
        lengthscales = sorted(number(r, "lengthscale") for r in by_maxima if r["kind"] == "maximum")
        mixtures.draw_witnesses(lengthscales, *mixtures.mixture_samples(n // 6, seed), out / "figure5.png")
        path = out / chains.file_name(n, draws, seed)
        posterior = chains.sample(path, num_per_centre=n // 6, num_draws=draws, seed=seed)
        chains.draw_traces(posterior, out / "figure4.png")
        chains.draw_witnesses(posterior, n // 6, seed, out / "figure5_posterior.png")


def _has(results: Results, fields: Record) -> bool:
    return any(fields.items() <= record.items() for record in results.records)
