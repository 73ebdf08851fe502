"""Figure 2 of the Bayesian kernel embeddings: a grid of Gaussians, and which lengthscale the evidence chooses.

Two mixtures on a 3 × 3 grid differ inside each blob only. The median heuristic sees the distance between blobs; the
evidence (13) has its maximum at the size of a blob, and a local one near the median.
"""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray
from torch import Tensor

from ....embeddings.bayesian import BayesianMeanEmbedding
from ....embeddings.witness import Witness
from ....kernels import median_distance
from ....learning.maxima import local_maxima
from ....objectives.embedding_evidence import EmbeddingEvidence
from ....plots import free_figure, plot_witness, save_picture, styled
from ....plots.style import FIRST, SECOND, axes_or_new, legend_below
from ....results import Record, Results, number, table
from ..experiment import Experiment, Settings
from .blobs import grid_samples, samples
from .type_two import Errors, TypeTwoErrors, error_curves, errors_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
PUBLISHED = {"maximum": 1.5, "median": 20.0}


def curve(records: Sequence[Record], ax: Axes | None = None) -> Axes:
    """The evidence curve with its maxima and the median heuristic marked."""
    panel = axes_or_new(ax)
    points = sorted((number(r, "lengthscale"), number(r, "log_evidence")) for r in records if r["kind"] == "curve")
    panel.semilogx(*zip(*points, strict=True), color=FIRST, label="log evidence")
    for record in records:
        if record["kind"] == "maximum":
            place = number(record, "lengthscale"), number(record, "log_evidence")
            panel.plot(*place, "o", color=SECOND)
            panel.annotate(f"{place[0]:.2f}", place, textcoords="offset points", xytext=(4, 6))
        if record["kind"] == "median":
            panel.axvline(number(record, "lengthscale"), color="0.6", linestyle="--", label="median heuristic")
            legend_below(panel, 2)
    ticks = [tick for tick in TICKS if points[0][0] <= tick <= points[-1][0]]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.margins(y=0.12)
    panel.set_xlabel("lengthscale")
    panel.set_ylabel("log evidence (nats)")
    return panel


@dataclass(frozen=True)
class GridOfGaussians(Experiment):
    """Records of the evidence over lengthscales, of its maxima, and of the median heuristic."""

    name = "two-sample"
    shows = "Figure 2 of Flaxman et al.: the evidence chooses the size of a blob, the median the distance between blobs"
    duration = "a minute"
    key = ("experiment", "kind", "lengthscale")
    tags = ("grid",)
    options = frozenset({"seed"})

    ratio: float = 2.0

    def run(self, results: Results, settings: Settings) -> None:
        """The evidence of the pooled sample, of 900 points of each distribution."""
        x = torch.cat(grid_samples(self.ratio, 10 if settings.quick else 100, settings.seed))
        shared: Record = {"experiment": "grid", "ratio": self.ratio, "n": len(x), "seed": settings.seed}
        if any(shared.items() <= record.items() for record in results.records):
            return
        embedding = BayesianMeanEmbedding(RBFKernel().double(), noise=0.1)
        found = evidence_records(embedding, x, np.geomspace(0.3, 45.0, 48), num_points=24)
        found.append({"kind": "median", "lengthscale": float(median_distance(x)), "log_evidence": None})
        results.extend({**shared, **record} for record in found)

    def summary(self, records: Sequence[Record]) -> str:
        """The maxima and the median, beside what the paper publishes."""
        rows = [
            [str(r["kind"]), f"{r['lengthscale']:.2f}", "" if r["log_evidence"] is None else f"{r['log_evidence']:.0f}"]
            for r in records
            if r["kind"] in ("maximum", "median")
        ]
        note = f"Published: maximum at {PUBLISHED['maximum']}, median heuristic {PUBLISHED['median']:g}."
        return table(["grid of Gaussians", "lengthscale", "log evidence"], rows) + "\n\n" + note

    def draw(self, records: Sequence[Record], out: pathlib.Path) -> None:
        """``figure2.png``; its panel C is drawn where ``type-two``, which takes an hour, was run into ``out``."""
        experiment = TypeTwoErrors()
        found = experiment.own(Results(out / "results.json", experiment.key).records)
        draw_figure(records, errors_of(experiment.studies(found)[0]) if found else None, out / "figure2.png")


def draw_figure(records: Sequence[Record], errors: Errors | None, path: pathlib.Path) -> None:
    """Samples (A, B), type II error (C), evidence (D) and witness (E)."""
    per_centre, seed = int(number(records[0], "n")) // 18, int(number(records[0], "seed"))
    embedding = BayesianMeanEmbedding(RBFKernel().double(), noise=0.1)
    embedding.kernel.lengthscale = highest(records)
    with styled():
        figure = free_figure(7.2, 9.6)  # two columns, which a narrow screen can still show
        # Parts of their own, so that the color bar of E does not push the columns apart.
        upper, lower = figure.subfigures(2, 1, height_ratios=[2, 1], squeeze=False)[:, 0]
        panels = upper.subplot_mosaic("AB;CD") | lower.subplot_mosaic(".E.", width_ratios=[1, 4, 1])
    for name, ratio in (("A", 2.0), ("B", 10.0)):
        samples(panels[name], *grid_samples(ratio, per_centre, seed))
        panels[name].set_title(f"({name}) samples, ratio ε = {ratio:g}")
    panels["C"].set_title("(C) type II error, level 0.05")
    if errors is None:
        words = "kernel-embed reproduce type-two\nwith the same --out fills this panel"
        look = {"ha": "center", "va": "center", "fontsize": 9, "color": "0.4"}
        panels["C"].text(0.5, 0.5, words, **look, transform=panels["C"].transAxes)
        panels["C"].set_axis_off()
    else:
        error_curves(errors, panels["C"])
    curve(records, panels["D"])
    panels["D"].set_title("(D) log evidence, eq. (13)")
    plot_witness(Witness(embedding, *grid_samples(2.0, per_centre, seed)), ax=panels["E"])
    panels["E"].set_title(f"(E) witness, lengthscale {embedding.kernel.lengthscale.item():.2f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    save_picture(figure, path, 100)


def evidence_records(
    embedding: BayesianMeanEmbedding, x: Tensor, lengthscales: NDArray[np.float64], num_points: int
) -> list[Record]:
    """The log evidence (13) of ``x`` at every lengthscale, and its maxima between their ends, the highest first."""
    span = float(lengthscales[0]), float(lengthscales[-1])
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=num_points, span=span, progress=False)
    places = [("curve", float(value)) for value in lengthscales]
    places += [("maximum", maximum.parameters["kernel.lengthscale"].item()) for maximum in maxima]
    found: list[Record] = []
    for kind, lengthscale in places:
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            value = -EmbeddingEvidence()(embedding, x).item()
        found.append({"kind": kind, "lengthscale": lengthscale, "log_evidence": value})
    return found


def highest(records: Sequence[Record]) -> float:
    """The lengthscale of the highest maximum."""
    maxima = [record for record in records if record["kind"] == "maximum"]
    return number(max(maxima, key=lambda record: number(record, "log_evidence")), "lengthscale")
