"""Figure 2 of the Bayesian kernel embeddings: a grid of Gaussians, and which lengthscale the evidence chooses.

Two mixtures on a 3 × 3 grid differ inside each blob only. The median heuristic sees the distance between blobs; the
evidence (13) has its maximum at the size of a blob, and a local one near the median.
"""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings.bayesian import BayesianMeanEmbedding
from ...embeddings.witness import Witness
from ...kernels import median_distance
from ...learning.maxima import local_maxima
from ...objectives.embedding_evidence import EmbeddingEvidence
from ...plots import plot_witness
from ...plots.style import array, axes_or_new
from ...results import Record, Results, table

KEY = ("experiment", "kind", "lengthscale")
SPACING = 15.0
"""Between centres. The paper does not print it; with 10 the highest maximum is the long one."""
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
PRINTED = {"maximum": 1.5, "median": 20.0}


def grid_samples(
    ratio: float = 2.0, num_per_centre: int = 100, seed: int = 0, spacing: float = SPACING
) -> tuple[Tensor, Tensor]:
    """Samples of P, isotropic with unit variance, and of Q, with covariance eigenvalues ``ratio`` : 1 turned by 45°.

    Example:
        >>> p, q = grid_samples(ratio=3.0, num_per_centre=10)
        >>> p.shape, q.shape
        (torch.Size([90, 2]), torch.Size([90, 2]))
    """
    generator = np.random.RandomState(seed)
    steps = spacing * np.arange(-1, 2)
    centres = np.array([[a, b] for a in steps for b in steps]).repeat(num_per_centre, axis=0)
    p = centres + generator.standard_normal(centres.shape)
    turn = np.array([[1.0, -1.0], [1.0, 1.0]]) / np.sqrt(2.0)
    q = centres + (generator.standard_normal(centres.shape) * np.sqrt([ratio, 1.0])) @ turn.T
    return torch.as_tensor(p), torch.as_tensor(q)


def run(
    results: Results, out: pathlib.Path | None = None, *, ratio: float = 2.0, num_per_centre: int = 100, seed: int = 0
) -> None:
    """Fill ``results`` with the evidence curve and its maxima; draw ``figure2.png`` into ``out``."""
    p, q = grid_samples(ratio, num_per_centre, seed)
    x = torch.cat([p, q])
    embedding = BayesianMeanEmbedding(RBFKernel().double(), noise=0.1)
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=24, span=(0.3, 45.0), progress=False)
    shared: Record = {"experiment": "grid", "ratio": ratio, "n": len(x), "seed": seed}
    for lengthscale in np.geomspace(0.3, 45.0, 48):
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            value = -EmbeddingEvidence()(embedding, x).item()
        results.add({**shared, "kind": "curve", "lengthscale": float(lengthscale), "log_evidence": value})
    for maximum in maxima:
        lengthscale = maximum.parameters["kernel.lengthscale"].item()
        results.add({**shared, "kind": "maximum", "lengthscale": lengthscale, "log_evidence": maximum.value})
    median = float(median_distance(x))
    results.add({**shared, "kind": "median", "lengthscale": median, "log_evidence": None})
    if out is not None:
        embedding.kernel.lengthscale = maxima[0].parameters["kernel.lengthscale"]
        draw(results.records, embedding, out / "figure2.png", seed=seed)


def draw(records: list[Record], embedding: BayesianMeanEmbedding, path: pathlib.Path, seed: int = 0) -> None:
    """Panels A, B (samples), D (evidence) and E (witness) of Figure 2."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(2, 2, figsize=(9, 7.5), layout="constrained")
    for panel, name, ratio in zip(panels[0], "AB", (2.0, 10.0), strict=True):
        samples(panel, *grid_samples(ratio, seed=seed))
        panel.set_title(f"({name}) ratio of eigenvalues {ratio:g}")
    curve(records, panels[1, 0])
    panels[1, 0].set_title("(D) log evidence, eq. (13)")
    plot_witness(Witness(embedding, *grid_samples(2.0, seed=seed)), ax=panels[1, 1])
    panels[1, 1].set_title(f"(E) witness, lengthscale {embedding.kernel.lengthscale.item():.2f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def samples(ax: Any, p: Tensor, q: Tensor) -> object:
    """Two samples in the plane, P black and Q red."""
    panel: Any = axes_or_new(ax)
    for sample, color in ((p, "black"), (q, "tab:red")):
        panel.plot(*array(sample).T, ".", color=color, markersize=1.5)
    return panel


def curve(records: list[Record], ax: Any = None) -> object:
    """The evidence curve with its maxima and the median heuristic marked."""
    panel: Any = axes_or_new(ax)
    points = sorted((float(str(r["lengthscale"])), r["log_evidence"]) for r in records if r["kind"] == "curve")
    panel.semilogx(*zip(*points, strict=True), color="black")
    for record in records:
        if record["kind"] == "maximum":
            panel.plot(record["lengthscale"], record["log_evidence"], "o", color="tab:red")
            panel.annotate(
                f"{record['lengthscale']:.2f}",
                (record["lengthscale"], record["log_evidence"]),
                textcoords="offset points",
                xytext=(4, 6),
            )
        if record["kind"] == "median":
            panel.axvline(record["lengthscale"], color="0.6", linestyle="--", label="median heuristic")
            panel.legend(loc="lower center")
    ticks = [tick for tick in TICKS if points[0][0] <= tick <= points[-1][0]]
    panel.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.margins(y=0.12)
    panel.set_xlabel("lengthscale")
    panel.set_ylabel("log evidence")
    return panel


def summary(records: list[Record]) -> str:
    """The maxima and the median, beside what the paper prints."""
    rows = [
        [str(r["kind"]), f"{r['lengthscale']:.2f}", "" if r["log_evidence"] is None else f"{r['log_evidence']:.0f}"]
        for r in records
        if r["kind"] in ("maximum", "median")
    ]
    note = f"Printed: maximum at {PRINTED['maximum']}, median heuristic {PRINTED['median']:g}."
    return table(["grid of Gaussians", "lengthscale", "log evidence"], rows) + "\n\n" + note
