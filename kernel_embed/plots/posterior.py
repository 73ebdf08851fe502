"""Plots of posteriors over hyperparameters: traces and densities."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..validation import check_count
from .style import COLORS, FIRST, array, axes_or_new, legend_outside, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..posteriors import Posterior

GRID_POINTS = 200


def plot_traces(posterior: Posterior, name: str, *, entry: int = 0, ax: Axes | None = None) -> Axes:
    """Plot the draws of a parameter along each chain; chains that mix overlap.

    Args:
        posterior: from :func:`kernel_embed.sample_posterior`.
        name: of the parameter, a key of ``posterior.samples``.
        entry: the index of the entry, for parameters with several.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed import plots
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=50, sampler=ke.Laplace())
        >>> ax = plots.plot_traces(posterior, "kernel.lengthscale", ax=plots.free_figure(4, 3).subplots())
    """
    by_chain = _entries(posterior, name, entry)
    ax = axes_or_new(ax)
    for number, draws in enumerate(by_chain):
        ax.plot(array(draws), linewidth=1.0, label=f"chain {number + 1}", **line_style(number))
    ax.set(xlabel="draw", ylabel=name)
    legend_outside(ax)
    return ax


def plot_density(posterior: Posterior, name: str, *, entry: int = 0, ax: Axes | None = None) -> Axes:
    """Plot a smoothed histogram of the draws of a parameter, for each chain and, in black, for all by weight.

    Positive draws are smoothed in their logarithm and drawn over a logarithmic axis, because a scale has no density
    below 0.

    Args:
        posterior: as in :func:`plot_traces`.
        name: as in :func:`plot_traces`.
        entry: as in :func:`plot_traces`.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed import plots
        >>> objective, sampler = ke.EmbeddingEvidence(), ke.Laplace()
        >>> mean = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> posterior = ke.sample_posterior(mean, objective, torch.randn(15, 1), num_samples=50, sampler=sampler)
        >>> ax = plots.plot_density(posterior, "kernel.lengthscale", ax=plots.free_figure(4, 3).subplots())
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
            label = f"chain {number + 1}"
            ax.plot(across, gaussian_kde(array(draws))(grid), linewidth=1.0, label=label, **line_style(number))
    if high > low:
        density = gaussian_kde(array(values.flatten()), weights=array(posterior.weights))
        ax.plot(across, density(grid), color=FIRST, linewidth=2.0, label="all, by weight")
    if positive:
        ax.set_xscale("log")
    ax.set(xlabel=name, ylabel="density of its logarithm" if positive else "density")
    legend_outside(ax)
    return ax


def plot_draws(values: NDArray[np.float64], name: str, *, ax: Axes | None = None) -> Axes:
    """Plot the draws of a parameter in order, on a logarithmic scale, one line for each of its entries.

    Args:
        values: ``(num_draws, …)``.
        name: of the parameter.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> ax = plots.plot_draws(np.exp(np.arange(20) % 3), "lengthscale", ax=plots.free_figure(4, 3).subplots())
    """
    values = array(values, name)
    ax = axes_or_new(ax)
    entries = values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
    for number in range(min(entries.shape[1], len(COLORS))):
        ax.plot(entries[:, number], lw=0.9, **line_style(number))
    ax.set_yscale("log")
    ax.set_ylabel(name)
    ax.grid(color="0.92")
    return ax


def _entries(posterior: Posterior, name: str, entry: int) -> Tensor:
    """The draws ``(num_chains, num_samples)`` of one entry."""
    if name not in posterior.samples_by_chain:
        raise ValueError(f"The posterior has no parameter {name!r}, only {', '.join(posterior.samples_by_chain)}.")
    draws = posterior.samples_by_chain[name]
    draws = draws.reshape(*draws.shape[:2], -1)
    return draws[..., check_count("entry", entry, 0, draws.shape[-1] - 1)]
