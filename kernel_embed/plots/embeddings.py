"""Plots of mean embeddings, witness functions and tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ..validation import check_number
from .style import BAND, DIVERGING, FIRST, SECOND, array, axes_or_new, legend_outside, same_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from ..embeddings import ConditionedMeanEmbedding
    from ..embeddings.witness import Witness


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

    Returns:
        The axes.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed import plots
        >>> posterior = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()).condition(torch.randn(30, 1))
        >>> ax = plots.plot_embedding(posterior, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    _curve(ax, posterior, line(posterior.x) if grid is None else grid, level, "posterior mean")
    rug = array(posterior.x.squeeze(-1))
    ax.plot(rug, [ax.get_ylim()[0]] * len(rug), "|", color="0.4", label="sample")
    ax.set(xlabel="x", ylabel="embedding μ(x)")
    legend_outside(ax)
    return ax


def plot_witness(
    witness: Witness, grid: Tensor | NDArray[np.floating] | None = None, *, level: float = 0.8, ax: Axes | None = None
) -> Axes:
    """Plot μ_P − μ_Q: a curve with its band in one dimension, a map in two.

    Args:
        witness: a :class:`kernel_embed.Witness`, or ``result.witness()`` of a test.
        grid: points ``(m, 1)`` or a mesh ``(rows, columns, 2)``, tensor or array; by default they cover the samples.
        level: of the band.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if the samples have more than two columns.

    Example:
        >>> import kernel_embed as ke
        >>> from kernel_embed import plots
        >>> x, y = torch.randn(40, 1), 1 + torch.randn(40, 1)
        >>> result = ke.two_sample_test(x, y, kernel="median", num_permutations=99, seed=0)
        >>> ax = plots.plot_witness(result.witness(), ax=plots.free_figure(4, 3).subplots())
    """
    samples = witness.first.x, witness.second.x
    width = samples[0].shape[-1]
    if width > 2:
        raise ValueError(f"Only samples of one or two columns can be plotted, not {width}. Evaluate witness(points).")
    ax = axes_or_new(ax)
    points = (line if width == 1 else mesh)(*samples) if grid is None else torch.as_tensor(grid).to(samples[0])
    if width == 2:
        _witness_map(ax, witness, points)
        return ax
    _curve(ax, witness, points, level, "witness")
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set(xlabel="x", ylabel="witness μ_P(x) − μ_Q(x)")
    legend_outside(ax)
    return ax


def _witness_map(ax: Axes, witness: Witness, points: Tensor) -> None:
    with torch.no_grad():
        flat = points.reshape(-1, 2)
        values = (witness.first.mean(flat) - witness.second.mean(flat)).reshape(points.shape[:-1])
    size = float(values.abs().max()) or 1.0
    extent = (float(points[0, 0, 0]), float(points[0, -1, 0]), float(points[0, 0, 1]), float(points[-1, 0, 1]))
    image = ax.imshow(
        array(values), origin="lower", extent=extent, cmap=DIVERGING, vmin=-size, vmax=size, aspect="auto"
    )
    ax.figure.colorbar(image, ax=ax, label="witness μ_P − μ_Q")
    ax.set(xlabel="first column", ylabel="second column")


def _curve(ax: Axes, function: ConditionedMeanEmbedding | Witness, points: Tensor, level: float, name: str) -> None:
    """The mean and the band of a function at ``points`` ``(m, 1)``."""
    with torch.no_grad():
        mean = function(points).mean
        lower, upper = function.band(points, level)
    x = array(points.squeeze(-1))
    ax.fill_between(x, array(lower), array(upper), color=BAND, linewidth=0, label=f"{level:.0%} band")
    ax.plot(x, array(mean), color=FIRST, label=name)


def plot_differences(x: Tensor, witness: Tensor, band: Tensor, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """Plot the witness at points of one column, in another color outside the band of equal distributions.

    Args:
        x: the column, ``(t,)``.
        witness: μ̂_P − μ̂_Q there, ``(t,)``.
        band: the half-width of the band, ``(t,)``.
        level: of the band, for the legend.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> x = torch.linspace(0, 1, 50)
        >>> ax = plots.plot_differences(x, x - 0.5, torch.full((50,), 0.3), ax=plots.free_figure(4, 3).subplots())
    """
    at, w, half = array(x, "x", 1), array(witness, "witness", 1), array(band, "band", 1)
    same_length(x=at, witness=w, band=half)
    ax = axes_or_new(ax)
    order = at.argsort()
    at, w, half = at[order], w[order], half[order]
    ax.fill_between(at, -half, half, color=BAND, linewidth=0, label=f"{level:.0%} of permutations, everywhere")
    outside = abs(w) > half
    ax.scatter(at[~outside], w[~outside], s=6, color=FIRST)
    ax.scatter(at[outside], w[outside], s=6, color=SECOND, label="outside")
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set_ylabel("witness")
    ax.legend(fontsize=8)
    return ax


def plot_null(null: Tensor, statistic: float, *, label: str = "observed", ax: Axes | None = None) -> Axes:
    """Plot a histogram of a statistic under the null hypothesis, and its value on the data as a line.

    Args:
        null: ``(B,)``, such as ``result.null`` of a test.
        statistic: on the data.
        label: of the line.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if ``statistic`` is not a number.
        ValueError: if the statistics are not finite, or all equal.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_null(torch.randn(100), 2.5, ax=plots.free_figure(4, 3).subplots())
    """
    statistic = check_number("statistic", statistic)
    values = array(null).ravel()
    try:
        counts, edges = np.histogram(values, bins=40)
    except ValueError as error:
        raise ValueError(f"The {len(values)} statistics in null have no histogram: {error}.") from error
    ax = axes_or_new(ax)
    ax.stairs(counts, edges, fill=True, color="0.75", label="permutations")
    ax.axvline(statistic, color=SECOND, label=label)
    ax.set(xlabel="statistic", ylabel="permutations")
    legend_outside(ax)
    return ax
