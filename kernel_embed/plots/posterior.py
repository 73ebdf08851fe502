"""Plots of posteriors over hyperparameters, and of comparisons between learners."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..validation import check_count, check_number
from .style import (
    ACCENT,
    BAND,
    COLORS,
    FIRST,
    OTHER,
    array,
    axes_or_new,
    legend_outside,
    line_style,
    marker,
    same_length,
)

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


def plot_ranking(
    names: Sequence[str],
    means: Sequence[float],
    errors: Sequence[float],
    *,
    highlight: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a mean with its standard error for each learner, the best on top; the band is one error of the best.

    Values far beyond the others are numbers with an arrow at the edge.

    Args:
        names: of the learners, the best first.
        means: of their negative log probabilities.
        errors: the standard errors of those.
        highlight: the learner to highlight.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> names, means, errors = ["default", "logistic"], [0.21, 0.25], [0.02, 0.03]
        >>> ax = plots.plot_ranking(names, means, errors, highlight="default", ax=plots.free_figure(4, 3).subplots())
    """
    m, e = array(means, "means", 1), np.nan_to_num(array(errors, "errors", 1))
    same_length(names=names, means=m, errors=e)
    ax = axes_or_new(ax)
    best = int(m.argmin())
    edge = max(float(np.quantile(m, 0.7)), float(m[best] + 4 * e[best])) * 1.15
    positions = np.arange(len(names))[::-1]
    ax.axvspan(m[best] - e[best], m[best] + e[best], color=BAND, alpha=0.5, zorder=0)
    for name, mean, error, position in zip(names, m, e, positions, strict=True):
        shade = ACCENT if name == highlight else OTHER
        if mean > edge:
            ax.annotate(f"{mean:.2f} →", (edge, position), ha="right", va="center", fontsize="small", color=shade)
            continue
        ax.errorbar(mean, position, xerr=error, fmt="D" if name == highlight else "o", color=shade, capsize=3, ms=6)
    ax.set_yticks(positions, names)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name == highlight else "normal")
    ax.set(xlabel="negative log probability of held-out labels (lower is better)", ylim=(-0.7, len(names) - 0.3))
    ax.set_xlim(right=edge * 1.02)
    ax.grid(axis="x", color="0.9")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def plot_seconds(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ax: Axes | None = None) -> Axes:
    """Plot seconds by size, one line for each learner.

    Args:
        lines: sizes and seconds by the name of the learner.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_seconds({"default": ([100, 1000], [0.1, 2.0])}, ax=plots.free_figure(4, 3).subplots())
    """
    for name, (sizes, seconds) in lines.items():
        same_length(sizes=array(sizes, name, 1), seconds=array(seconds, name, 1))
    ax = axes_or_new(ax)
    for number, (name, (sizes, seconds)) in enumerate(lines.items()):
        ax.loglog(sizes, seconds, marker=marker(number), label=name, **line_style(number))
    ax.set(xlabel="rows", ylabel="seconds to a learned classifier")
    ax.grid(color="0.92", which="both")
    if lines:
        measured = sorted({size for sizes, _ in lines.values() for size in sizes})
        ax.set_xticks(measured, [f"{size:g}" for size in measured])
        ax.set_xticks([], minor=True)
        legend_outside(ax, fontsize="small")
    return ax


def plot_ratios(bars: Mapping[str, float], *, ax: Axes | None = None) -> Axes:
    """Plot the times of other libraries as multiples of ours, the largest on top.

    Args:
        bars: the ratio by name; those that are not finite are omitted.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if a ratio is not a number.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_ratios({"another library": 3.5}, ax=plots.free_figure(4, 3).subplots())
    """
    finite = {name: value for name, value in bars.items() if math.isfinite(check_number(name, value))}
    ax = axes_or_new(ax)
    order = sorted(finite, key=lambda name: finite[name])
    patches = ax.barh(order, [finite[name] for name in order], color=OTHER)
    ax.bar_label(patches, [f"{finite[name]:.3g}×" for name in order], padding=3, fontsize="x-small")
    ax.axvline(1.0, color=ACCENT, lw=1)
    if finite:
        ax.set_xscale("log")
        ax.set_xlim(right=4.0 * max(finite.values()))
    ax.set_xlabel("time as a multiple of ours (log scale)")
    ax.tick_params(axis="y", labelsize="x-small")
    return ax
