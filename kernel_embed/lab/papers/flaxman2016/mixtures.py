"""Figures 1, 3 and 5 of the Bayesian kernel embeddings: mixtures on the line.

Figure 1 shows the model: draws of the prior, the empirical embedding, the posterior and the truth. Figure 3 is a
mixture of normals against a mixture of Laplace distributions with the same means and variances; its evidence has two
maxima, the scale of a component and that of the whole, and Figure 5 is the witness at each.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Sequence

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor

from ....embeddings.bayesian import BayesianMeanEmbedding
from ....embeddings.mean import MeanEmbedding
from ....embeddings.witness import Witness
from ....plots import plot_witness, save_picture
from ....plots.style import BAND, FIRST, array, legend_below, line_style
from ....results import Record
from ...experiment import new_figure, record_table
from .grid import curve, evidence_records

CENTRES = (-3.0, 0.0, 3.0)
LAPLACE_SCALE = math.sqrt(0.5)
"""The scale of a Laplace distribution with unit variance."""
PUBLISHED = (0.49, 2.9)


def mixture_samples(num_per_centre: int = 100, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Samples of the mixture of normals and of the mixture of Laplace distributions."""
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


def mixture_records(num_per_centre: int = 100, seed: int = 0) -> list[Record]:
    """The evidence of the pooled sample over lengthscales, and its maxima.

    The maxima are those of the evidence times the prior; their values are those of the evidence alone.
    """
    x = torch.cat(mixture_samples(num_per_centre, seed))
    return evidence_records(model(), x, np.geomspace(0.2, 8.0, 120), num_points=30)


def draw_model(path: pathlib.Path, lengthscale: float = 0.25, num_data: int = 20, seed: int = 1) -> None:
    """Figure 1: (A) draws of the prior, (B) the empirical embedding, (C) the posterior and the truth."""
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
    figure, panels = new_figure(7.2, 6.4, 2, 2, sharex=True)  # two columns, which a narrow screen can still show
    *axes, empty = panels.flat
    empty.set_axis_off()
    with torch.no_grad():
        R = embedding.prior(grid).covariance_matrix
        root = torch.linalg.cholesky(R + 1e-8 * torch.eye(len(R), dtype=R.dtype, device=R.device))
        draws = root @ torch.as_tensor(generator.standard_normal((len(R), 3)))
        mean = MeanEmbedding(embedding.kernel).condition(sample)(grid)
        posterior = embedding.condition(sample)
        lower, upper = posterior.band(grid, 0.8)
        middle = posterior.mean(grid)
    x = array(grid.squeeze(-1))
    for i, draw in enumerate(array(draws).T):
        axes[0].plot(x, draw, label=f"draw {i + 1}", **line_style(i))
    axes[0].set(title="(A) draws from the prior", ylabel="embedding μ(x)")
    axes[1].plot(x, array(mean), color=FIRST, label="empirical embedding")
    axes[1].plot(array(sample), [0.0] * num_data, "|", color="0.4", label="sample")
    axes[1].set_title("(B) empirical embedding")
    axes[2].fill_between(x, array(lower), array(upper), color=BAND, linewidth=0, label="80 % band")
    axes[2].plot(x, array(middle), label="posterior mean", color=FIRST)
    axes[2].plot(x, array(truth), label="truth", **line_style(1))
    axes[2].set_title("(C) posterior")
    for panel in axes:
        panel.set_xlabel("x")
        panel.tick_params(labelbottom=True)
        legend_below(panel)
    save_picture(figure, path, 100)


def draw_mixtures(records: Sequence[Record], path: pathlib.Path) -> None:
    """Figure 3, the densities, and the evidence of the pooled sample."""
    figure, axes = new_figure(7.2, 3.4, 1, 2)
    grid = torch.linspace(-6, 6, 400, dtype=torch.float64)
    normal, laplace = densities(grid)
    axes[0].plot(array(grid), array(normal), label="normal", **line_style(0))
    axes[0].plot(array(grid), array(laplace), label="Laplace", **line_style(1))
    legend_below(axes[0])
    axes[0].set_xlabel("x")
    axes[0].set_ylabel("density")
    curve(records, axes[1])
    save_picture(figure, path, 100)


def draw_witnesses(lengthscales: Sequence[float], p: Tensor, q: Tensor, path: pathlib.Path) -> None:
    """Figure 5 (A, B): the witness with its 80 % band at each maximum, with σ² = 0.1 and by the central limit."""
    figure, axes = new_figure(3.6 * len(lengthscales), 5.6, 2, len(lengthscales), squeeze=False)
    grid = torch.linspace(-5, 5, 200, dtype=p.dtype, device=p.device).unsqueeze(-1)
    for row, noise in zip(axes, (0.1, "central-limit"), strict=True):
        for panel, lengthscale in zip(row, lengthscales, strict=True):
            embedding = BayesianMeanEmbedding(RBFKernel().to(p), noise=noise)  # type: ignore[arg-type]
            embedding.kernel.lengthscale = lengthscale
            plot_witness(Witness(embedding, p, q), grid, ax=panel)
            panel.set_title(f"lengthscale {lengthscale:.2f}, noise {noise}", fontsize=10)
            legend_below(panel)
    save_picture(figure, path, 100)


def summary(records: Sequence[Record]) -> str:
    """The maxima and those of the paper."""
    columns = {"normal against Laplace: lengthscale": "{lengthscale:.2f}", "log evidence": "{log_evidence:.0f}"}
    text = record_table([r for r in records if r["kind"] == "maximum"], columns)
    return f"{text}\n\nPublished: chains around {PUBLISHED[0]} and {PUBLISHED[1]}."
