"""The experiments behind the figures, at full size where a number is asserted and small where a picture is drawn."""

from __future__ import annotations

import json

import matplotlib.pyplot
import pytest
import torch
from gpytorch.kernels import RBFKernel

from kernel_embed.cli import main
from kernel_embed.embeddings.bayesian import BayesianMeanEmbedding
from kernel_embed.kernels import median_distance
from kernel_embed.lab.papers import flaxman2016_grid as grid
from kernel_embed.lab.papers import flaxman2016_mixtures as mixtures
from kernel_embed.learning.maxima import local_maxima
from kernel_embed.objectives.evidence import EmbeddingEvidence

matplotlib.use("Agg")


def test_grid_of_gaussians():
    """Maximum at 1.5 ± 0.2, a local one near the median heuristic; 900 points of each, as in the paper."""
    x = torch.cat(grid.grid_samples(ratio=2.0))
    embedding = BayesianMeanEmbedding(RBFKernel())
    maxima = local_maxima(embedding, EmbeddingEvidence(), x, num_points=9, span=(0.5, 40.0), max_evaluations=15)
    lengthscales = [m.parameters["kernel.lengthscale"].item() for m in maxima]
    assert lengthscales[0] == pytest.approx(1.5, abs=0.2)
    assert lengthscales[1] == pytest.approx(float(median_distance(x)), rel=0.25)
    assert float(median_distance(x)) == pytest.approx(20.0, rel=0.1)


def test_normal_against_laplace():
    x = torch.cat(mixtures.mixture_samples())
    maxima = local_maxima(mixtures.model(), EmbeddingEvidence(), x, num_points=30, span=(0.2, 8.0))
    modes = sorted((m.parameters["kernel.lengthscale"].item(), m.value) for m in maxima)
    assert [lengthscale for lengthscale, _ in modes] == pytest.approx([0.5, 2.9], rel=0.05)
    assert modes[1][1] - modes[0][1] == pytest.approx(211, abs=5)


def test_mixtures_have_equal_moments():
    points = torch.linspace(-12, 12, 24001, dtype=torch.float64)
    step = points[1] - points[0]
    for density in mixtures.densities(points):
        assert (density.sum() * step).item() == pytest.approx(1.0, abs=1e-3)
        assert ((density * points.square()).sum() * step).item() == pytest.approx(7.0, abs=1e-2)


def test_every_picture_is_drawn(tmp_path, capsys):
    before = matplotlib.pyplot.get_fignums()
    for name in ("two-sample", "witness"):
        assert main(["reproduce", name, "--quick", "--out", str(tmp_path)]) == 0
    for name in ("figure1", "figure2", "figure3", "figure4", "figure5", "figure5_posterior"):
        assert (tmp_path / f"{name}.png").stat().st_size > 1000
    assert "grid of Gaussians" in capsys.readouterr().out
    records = json.loads((tmp_path / "results.json").read_text())
    assert {record["experiment"] for record in records} == {"grid", "mixtures", "chains"}
    assert matplotlib.pyplot.get_fignums() == before
