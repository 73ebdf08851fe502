"""Plots of mean embeddings, witness functions, tests and posteriors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..validation import check_count, check_number
from .style import BAND, COLORS, DIVERGING, FIRST, SECOND, array, arrays, axes_or_new, finished, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..embeddings import ConditionedMeanEmbedding, Witness
    from ..posteriors import Posterior

GRID_POINTS = 200


def line(*samples: Tensor, num_points: int = 300) -> Tensor:
    """Points ``(num_points, 1)`` that cover one-dimensional samples with a margin."""
    x = torch.cat([sample.detach() for sample in samples], dim=-2)
    low, high = float(x.min()), float(x.max())
    margin = 0.1 * (high - low or 1.0)
    return torch.linspace(low - margin, high + margin, num_points, dtype=x.dtype, device=x.device).unsqueeze(-1)


def mesh(*samples: Tensor, num_points: int = 60) -> Tensor:
    """A mesh ``(num_points, num_points, 2)`` that covers two-dimensional samples."""
    x = torch.cat([sample.detach() for sample in samples], dim=-2)
    sides = [line(x[:, j : j + 1], num_points=num_points).squeeze(-1) for j in range(2)]
    return torch.stack(torch.meshgrid(*sides, indexing="xy"), dim=-1)


def plot_embedding(
    posterior: ConditionedMeanEmbedding, grid: Tensor | None = None, *, level: float = 0.8, ax: Axes | None = None
) -> Axes:
    """Plot the posterior of a one-dimensional mean embedding with its band and the sample.

    Args:
        posterior: a conditioned :class:`kernel_embed.BayesianMeanEmbedding`.
        grid: the points ``(m, 1)``; by default they cover the sample.
        level: of the band.
        ax: the axes; a new figure by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> posterior = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()).condition(torch.randn(30, 1))
        >>> ax = plot_embedding(posterior, ax=ke.plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    _curve(ax, posterior, line(posterior.x) if grid is None else grid, level, "posterior mean")
    rug = array(posterior.x.squeeze(-1))
    ax.plot(rug, [ax.get_ylim()[0]] * len(rug), "|", color="0.4", label="sample")
    return finished(ax, "x", "embedding μ(x)")


def plot_witness(
    witness: Witness, grid: Tensor | NDArray[np.floating] | None = None, *, level: float = 0.8, ax: Axes | None = None
) -> Axes:
    """Plot μ_P − μ_Q: a curve with its band in one dimension, a map in two.

    Args:
        witness: a :class:`kernel_embed.Witness`, or ``result.witness()`` of a test.
        grid: points ``(m, 1)`` or a mesh ``(rows, columns, 2)``, tensor or array; by default they cover the samples.
        level: of the band.
        ax: the axes; a new figure by default.

    Raises:
        ValueError: if the samples have more than two columns.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> witness = ke.Witness(embedding, torch.randn(40, 1), 1 + torch.randn(40, 1))
        >>> ax = plot_witness(witness, ax=ke.plots.free_figure(4, 3).subplots())
    """
    samples = witness.first.x, witness.second.x
    width = samples[0].shape[-1]
    if width > 2:
        raise ValueError(f"Only samples of one or two columns can be plotted, not {width}. Evaluate witness(points).")
    ax = axes_or_new(ax)
    points = (line if width == 1 else mesh)(*samples) if grid is None else torch.as_tensor(grid).to(samples[0])
    if width == 1:
        _curve(ax, witness, points, level, "witness")
        ax.axhline(0.0, color="0.5", linewidth=0.8)
        return finished(ax, "x", "witness μ_P(x) − μ_Q(x)")
    with torch.no_grad():
        flat = points.reshape(-1, 2)
        values = (witness.first.mean(flat) - witness.second.mean(flat)).reshape(points.shape[:-1])
    size = float(values.abs().max()) or 1.0
    extent = (float(points[0, 0, 0]), float(points[0, -1, 0]), float(points[0, 0, 1]), float(points[-1, 0, 1]))
    look: dict[str, Any] = {"cmap": DIVERGING, "vmin": -size, "vmax": size, "aspect": "auto"}
    image = ax.imshow(array(values), origin="lower", extent=extent, **look)
    ax.figure.colorbar(image, ax=ax, label="witness μ_P − μ_Q")
    return finished(ax, "first column", "second column")


def _curve(ax: Axes, function: ConditionedMeanEmbedding | Witness, points: Tensor, level: float, name: str) -> None:
    """The mean and the band of a function at ``points`` ``(m, 1)``."""
    with torch.no_grad():
        mean = function(points).mean
        lower, upper = function.band(points, level)
    x = array(points.squeeze(-1))
    ax.fill_between(x, array(lower), array(upper), color=BAND, linewidth=0, label=f"{level:.0%} band")
    ax.plot(x, array(mean), color=FIRST, label=name)


def plot_differences(x: Tensor, witness: Tensor, band: Tensor, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Plot the witness at points of one column, in another color outside ± ``band``, that of equal distributions."""
    at, w, half = np.stack(arrays(x=x, witness=witness, band=band))[:, array(x).argsort()]
    ax = axes_or_new(ax)
    ax.fill_between(at, -half, half, color=BAND, linewidth=0, label=f"{level:.0%} of permutations, everywhere")
    outside = abs(w) > half
    ax.scatter(at[~outside], w[~outside], s=6, color=FIRST)
    ax.scatter(at[outside], w[outside], s=6, color=SECOND, label="outside")
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set_ylabel("witness")
    ax.legend(fontsize="small")
    return ax


def plot_null(null: Tensor, statistic: float, *, label: str = "observed", ax: Axes | None = None) -> Axes:
    """Plot a histogram of a statistic under the null hypothesis, ``(B,)``, and its value on the data as a line."""
    statistic, values = check_number("statistic", statistic), array(null).ravel()
    try:
        counts, edges = np.histogram(values, bins=40)
    except ValueError as error:
        raise ValueError(f"The {len(values)} statistics in null have no histogram: {error}.") from error
    ax = axes_or_new(ax)
    ax.stairs(counts, edges, fill=True, color="0.75", label="permutations")
    ax.axvline(statistic, color=SECOND, label=label)
    return finished(ax, "statistic", "permutations")


def plot_traces(posterior: Posterior, name: str, *, entry: int = 0, ax: Axes | None = None) -> Axes:
    """Plot the draws of a parameter along each chain; chains that mix overlap.

    Args:
        posterior: from :func:`kernel_embed.sample_posterior`.
        name: of the parameter, a key of ``posterior.samples``.
        entry: the index of the entry, for parameters with several.
        ax: the axes; a new figure by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> mean, x = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), torch.randn(15, 1)
        >>> posterior = ke.sample_posterior(mean, ke.EmbeddingEvidence(), x, num_samples=9, sampler=ke.Laplace())
        >>> ax = plot_traces(posterior, "kernel.lengthscale", ax=ke.plots.free_figure(4, 3).subplots())
    """
    by_chain = _entries(posterior, name, entry)
    ax = axes_or_new(ax)
    for number, draws in enumerate(by_chain):
        ax.plot(array(draws), linewidth=1.0, label=f"chain {number + 1}", **line_style(number))
    return finished(ax, "draw", name)


def plot_density(posterior: Posterior, name: str, *, entry: int = 0, ax: Axes | None = None) -> Axes:
    """Plot a smoothed histogram of the draws of a parameter, for each chain and, in black, for all by weight.

    Positive draws are smoothed in their logarithm and drawn over a logarithmic axis.

    Args:
        posterior: as in :func:`plot_traces`.
        name: as in :func:`plot_traces`.
        entry: as in :func:`plot_traces`.
        ax: the axes; a new figure by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> mean, x = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()), torch.randn(15, 1)
        >>> posterior = ke.sample_posterior(mean, ke.EmbeddingEvidence(), x, num_samples=9, sampler=ke.Laplace())
        >>> ax = plot_density(posterior, "kernel.lengthscale", ax=ke.plots.free_figure(4, 3).subplots())
    """
    from scipy.stats import gaussian_kde

    by_chain = _entries(posterior, name, entry).double()
    ax = axes_or_new(ax)
    positive = bool((by_chain > 0).all())
    values = by_chain.log() if positive else by_chain
    low, high = float(values.min()), float(values.max())
    margin = 0.1 * (high - low) or 0.1
    grid = np.linspace(low - margin, high + margin, GRID_POINTS)
    across = np.exp(grid) if positive else grid
    for number, draws in enumerate(values):
        if float(draws.std()) > 0:
            look = {"linewidth": 1.0, "label": f"chain {number + 1}", **line_style(number)}
            ax.plot(across, gaussian_kde(array(draws))(grid), **look)
    if high > low:
        density = gaussian_kde(array(values.flatten()), weights=array(posterior.weights))
        ax.plot(across, density(grid), color=FIRST, linewidth=2.0, label="all, by weight")
    if positive:
        ax.set_xscale("log")
    return finished(ax, name, "density of its logarithm" if positive else "density")


def plot_draws(values: NDArray[np.float64], name: str, *, ax: Axes | None = None) -> Axes:
    """Plot the draws ``(num_draws, …)`` of a parameter on a logarithmic scale, one line for each of its entries."""
    values = np.atleast_1d(array(values, name))
    ax = axes_or_new(ax)
    for number, entry in enumerate(values.reshape(len(values), -1).T[: len(COLORS)]):
        ax.plot(entry, lw=0.9, **line_style(number))
    ax.set_yscale("log")
    return finished(ax, ylabel=name, grid=True)


def _entries(posterior: Posterior, name: str, entry: int) -> Tensor:
    """The draws ``(num_chains, num_samples)`` of one entry."""
    if name not in posterior.samples_by_chain:
        raise ValueError(f"The posterior has no parameter {name!r}, only {', '.join(posterior.samples_by_chain)}.")
    draws = posterior.samples_by_chain[name].flatten(2)
    return draws[..., check_count("entry", entry, 0, draws.shape[-1] - 1)]
