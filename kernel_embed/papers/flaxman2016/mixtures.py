"""Figures 1, 3 and 5 of the Bayesian kernel embeddings: mixtures on the line.

Figure 1 shows the model: draws of the prior, the empirical embedding, the posterior beside the truth. Figure 3 is a
mixture of normals against a mixture of Laplace distributions with the same means and variances; its evidence has two
maxima, the scale of a component and that of the whole, and Figure 5 is the witness at each.
"""

from __future__ import annotations

import math
import pathlib

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ...embeddings.bayesian import BayesianMeanEmbedding
from ...embeddings.mean import MeanEmbedding
from ...embeddings.witness import Witness
from ...learning.maxima import local_maxima
from ...objectives.embedding_evidence import EmbeddingEvidence
from ...plots import plot_witness
from ...plots.style import BAND, array
from ...results import Record, Results, table
from .grid import curve

KEY = ("experiment", "kind", "lengthscale")
CENTRES = (-3.0, 0.0, 3.0)
LAPLACE_SCALE = math.sqrt(0.5)
"""Which gives unit variance."""
PRINTED = (0.49, 2.9)


def mixture_samples(num_per_centre: int = 100, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Samples of the mixture of normals and of the mixture of Laplace distributions.

    Example:
        >>> p, q = mixture_samples(num_per_centre=10)
        >>> p.shape, q.shape
        (torch.Size([30, 1]), torch.Size([30, 1]))
    """
    generator = np.random.RandomState(seed)
    centres = np.array(CENTRES).repeat(num_per_centre)
    p = centres + generator.standard_normal(len(centres))
    q = centres + generator.laplace(scale=LAPLACE_SCALE, size=len(centres))
    return torch.as_tensor(p).unsqueeze(-1), torch.as_tensor(q).unsqueeze(-1)


def densities(x: Tensor) -> tuple[Tensor, Tensor]:
    """The densities of the two mixtures at the points ``x``, Figure 3."""
    distances = x.unsqueeze(-1) - torch.tensor(CENTRES, dtype=x.dtype, device=x.device)
    normal = torch.exp(-0.5 * distances.square()) / math.sqrt(2.0 * math.pi)
    laplace = torch.exp(-distances.abs() / LAPLACE_SCALE) / (2.0 * LAPLACE_SCALE)
    return normal.mean(-1), laplace.mean(-1)


def model() -> BayesianMeanEmbedding:
    """Squared exponential with a Gamma(1, 1) prior on its lengthscale, σ² = 0.1, as in the paper's program."""
    prior = gpytorch.priors.GammaPrior(1.0, 1.0)
    embedding = BayesianMeanEmbedding(RBFKernel(lengthscale_prior=prior), noise=0.1)
    embedding.double()
    return embedding


def run(results: Results, out: pathlib.Path | None = None, *, num_per_centre: int = 100, seed: int = 0) -> None:
    """Fill ``results`` with the evidence curve and its maxima; draw ``figure1``, ``figure3`` and ``figure5``."""
    p, q = mixture_samples(num_per_centre, seed)
    x = torch.cat([p, q])
    embedding = model()
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=30, span=(0.2, 8.0), progress=False)
    shared: Record = {"experiment": "mixtures", "n": len(x), "seed": seed}
    for lengthscale in np.geomspace(0.2, 8.0, 120):
        embedding.kernel.lengthscale = lengthscale
        with torch.no_grad():
            value = -EmbeddingEvidence()(embedding, x).item()
        results.add({**shared, "kind": "curve", "lengthscale": float(lengthscale), "log_evidence": value})
    for maximum in maxima:
        lengthscale = maximum.parameters["kernel.lengthscale"].item()
        with torch.no_grad():
            value = -EmbeddingEvidence()(maximum.embedding, x).item()
        results.add({**shared, "kind": "maximum", "lengthscale": lengthscale, "log_evidence": value})
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        draw_model(out / "figure1.png")
        draw_mixtures(results.records, out / "figure3.png")
        lengthscales = sorted(m.parameters["kernel.lengthscale"].item() for m in maxima)
        draw_witnesses(lengthscales, p, q, out / "figure5.png")


def draw_model(path: pathlib.Path, lengthscale: float = 0.25, num_data: int = 20, seed: int = 1) -> None:
    """Figure 1: (A) draws of the prior, (B) the empirical embedding, (C) the posterior and the truth."""
    from matplotlib import pyplot

    generator = np.random.RandomState(seed)
    centres = np.array([-1.0, 1.0])
    sample = torch.as_tensor(generator.choice(centres, num_data) + 0.5 * generator.standard_normal(num_data))[:, None]
    embedding = BayesianMeanEmbedding(RBFKernel(), noise=0.01).double()
    embedding.kernel.lengthscale = lengthscale
    grid = torch.linspace(-3, 3, 200, dtype=torch.float64).unsqueeze(-1)
    # the convolution of k with a mixture of Gaussians of variance 0.25
    variance = lengthscale**2 + 0.25
    distances = grid - torch.as_tensor(centres)
    truth = lengthscale / math.sqrt(variance) * torch.exp(-0.5 * distances.square() / variance).mean(-1)
    figure, panels = pyplot.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    with torch.no_grad():
        R = embedding.prior(grid).covariance_matrix
        root = torch.linalg.cholesky(R + 1e-8 * torch.eye(len(R), dtype=R.dtype, device=R.device))
        draws = root @ torch.as_tensor(generator.standard_normal((len(R), 3)))
        mean = MeanEmbedding(embedding.kernel).condition(sample)(grid)
        posterior = embedding.condition(sample)
        lower, upper = posterior.band(grid, 0.8)
        middle = posterior.mean(grid)
    x = array(grid.squeeze(-1))
    panels[0].plot(x, array(draws))
    panels[0].set_title("(A) draws from the prior")
    panels[1].plot(x, array(mean), color="black")
    panels[1].plot(array(sample), [0.0] * num_data, "|", color="0.4")
    panels[1].set_title("(B) empirical embedding")
    panels[2].fill_between(x, array(lower), array(upper), color=BAND, linewidth=0)
    panels[2].plot(x, array(middle), color="black", label="posterior, 80 % band")
    panels[2].plot(x, array(truth), color="tab:blue", label="truth")
    panels[2].legend(fontsize=8)
    panels[2].set_title("(C) posterior")
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def draw_mixtures(records: list[Record], path: pathlib.Path) -> None:
    """Figure 3, the densities, and the evidence of the pooled sample."""
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    grid = torch.linspace(-6, 6, 400, dtype=torch.float64)
    normal, laplace = densities(grid)
    panels[0].plot(array(grid), array(normal), color="black", label="normal")
    panels[0].plot(array(grid), array(laplace), "--", color="tab:blue", label="Laplace")
    panels[0].legend()
    panels[0].set_xlabel("x")
    panels[0].set_ylabel("density")
    curve(records, panels[1])
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def draw_witnesses(lengthscales: list[float], p: Tensor, q: Tensor, path: pathlib.Path) -> None:
    """Figure 5 (A, B): the witness with its 80 % band at each maximum, with σ² = 0.1 and by the central limit."""
    from matplotlib import pyplot

    columns = len(lengthscales)
    figure, panels = pyplot.subplots(2, columns, figsize=(4.5 * columns, 5.6), layout="constrained", squeeze=False)
    grid = torch.linspace(-5, 5, 200, dtype=p.dtype, device=p.device).unsqueeze(-1)
    for row, noise in zip(panels, (0.1, "central-limit"), strict=True):
        for panel, lengthscale in zip(row, lengthscales, strict=True):
            embedding = BayesianMeanEmbedding(RBFKernel().to(p), noise=noise)  # type: ignore[arg-type]
            embedding.kernel.lengthscale = lengthscale
            plot_witness(Witness(embedding, p, q), grid, ax=panel)
            panel.set_title(f"lengthscale {lengthscale:.2f}, noise {noise}", fontsize=10)
    figure.savefig(path, dpi=80)
    pyplot.close(figure)


def summary(records: list[Record]) -> str:
    """The maxima beside the paper's."""
    rows = [[f"{r['lengthscale']:.2f}", f"{r['log_evidence']:.0f}"] for r in records if r["kind"] == "maximum"]
    note = f"Printed: chains around {PRINTED[0]} and {PRINTED[1]}."
    return table(["normal against Laplace: lengthscale", "log evidence"], rows) + "\n\n" + note
