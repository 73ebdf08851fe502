"""Pictures of posteriors over hyperparameters: traces and densities. Needs matplotlib, the extra ``plots``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..validation import check_count
from .style import FIRST, array, axes_or_new, legend_outside, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..posteriors import Posterior

GRID_POINTS = 200


def plot_traces(posterior: Posterior, name: str, *, entry: int = 0, ax: Axes | None = None) -> Axes:
    """The draws of a parameter along each chain; several chains that mix lie over each other.

    Args:
        posterior: made by :func:`kernel_embed.sample_posterior`.
        name: of the parameter, as in ``posterior.samples``.
        entry: which of its entries, for parameters with several.
        ax: where to draw; a new figure by default.

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
    ax.set_xlabel("draw")
    ax.set_ylabel(name)
    legend_outside(ax)
    return ax


def plot_density(posterior: Posterior, name: str, *, entry: int = 0, ax: Axes | None = None) -> Axes:
    """A smoothed histogram of the draws of a parameter, chain by chain and (black) by their weights together.

    Positive draws are smoothed in their logarithm and drawn over a logarithmic axis: a scale has no density below 0.

    Args:
        posterior: made by :func:`kernel_embed.sample_posterior`.
        name: of the parameter, as in ``posterior.samples``.
        entry: which of its entries, for parameters with several.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed import plots
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=50, sampler=ke.Laplace())
        >>> ax = plots.plot_density(posterior, "kernel.lengthscale", ax=plots.free_figure(4, 3).subplots())
    """
    from scipy.stats import gaussian_kde

    by_chain = _entries(posterior, name, entry).double()
    ax = axes_or_new(ax)
    positive = bool((by_chain > 0).all())
    places = by_chain.log() if positive else by_chain
    low, high = float(places.min()), float(places.max())
    margin = 0.1 * (high - low) or 0.1
    grid = np.linspace(low - margin, high + margin, GRID_POINTS)
    across = np.exp(grid) if positive else grid
    for number, draws in enumerate(places):
        if float(draws.std()) > 0:
            label = f"chain {number + 1}"
            ax.plot(across, gaussian_kde(array(draws))(grid), linewidth=1.0, label=label, **line_style(number))
    if high > low:
        together = gaussian_kde(array(places.flatten()), weights=array(posterior.weights))
        ax.plot(across, together(grid), color=FIRST, linewidth=2.0, label="all, by weight")
    if positive:
        ax.set_xscale("log")
    ax.set_xlabel(name)
    ax.set_ylabel("density of its logarithm" if positive else "density")
    legend_outside(ax)
    return ax


def _entries(posterior: Posterior, name: str, entry: int) -> Tensor:
    """``(num_chains, num_samples)`` draws of one entry."""
    if name not in posterior.samples_by_chain:
        raise ValueError(
            f"Expected a name among {', '.join(posterior.samples_by_chain)}, got {name!r}. Choose one of these."
        )
    draws = posterior.samples_by_chain[name]
    draws = draws.reshape(*draws.shape[:2], -1)
    return draws[..., check_count("entry", entry, 0, draws.shape[-1] - 1)]
