"""Pictures of mean embeddings and witness functions; matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .style import BAND, DIVERGING, FIRST, array, axes_or_new, legend_outside

if TYPE_CHECKING:
    import numpy as np
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
    """The posterior of a one-dimensional mean embedding with its band and the sample as a rug.

    Args:
        posterior: a conditioned :class:`kernel_embed.BayesianMeanEmbedding`.
        grid: the points ``(m, 1)``; by default they cover the sample.
        level: of the band.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed import plots
        >>> posterior = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel()).condition(torch.randn(30, 1))
        >>> ax = plots.plot_embedding(posterior, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    points = line(posterior.x) if grid is None else grid
    with torch.no_grad():
        mean = posterior(points).mean
        lower, upper = posterior.band(points, level)
    _curve(ax, points, mean, lower, upper, level, "posterior mean")
    rug = array(posterior.x.squeeze(-1))
    ax.plot(rug, [ax.get_ylim()[0]] * len(rug), "|", color="0.4", label="sample")
    ax.set_xlabel("x")
    ax.set_ylabel("embedding μ(x)")
    legend_outside(ax)
    return ax


def plot_witness(
    witness: Witness, grid: Tensor | NDArray[np.floating] | None = None, *, level: float = 0.8, ax: Axes | None = None
) -> Axes:
    """μ_P − μ_Q: a curve with its band in one dimension, a map with the samples in two.

    Args:
        witness: a :class:`kernel_embed.Witness`, or ``result.witness()`` of a test.
        grid: points ``(m, 1)`` or a mesh ``(rows, columns, 2)``, tensor or array; by default they cover the samples.
        level: of the band.
        ax: where to draw; a new figure by default.

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
    width = witness.first.x.shape[-1]
    if width > 2:
        raise ValueError(
            f"Expected samples of one or two columns to draw, got {width}. Evaluate witness(points) instead."
        )
    ax = axes_or_new(ax)
    points = None if grid is None else torch.as_tensor(grid).to(witness.first.x)
    if width == 1:
        _witness_curve(ax, witness, points, level)
    else:
        _witness_map(ax, witness, points)
    return ax


def _witness_curve(ax: Axes, witness: Witness, grid: Tensor | None, level: float) -> None:
    points = line(witness.first.x, witness.second.x) if grid is None else grid
    with torch.no_grad():
        mean = witness(points).mean
        lower, upper = witness.band(points, level)
    _curve(ax, points, mean, lower, upper, level, "witness")
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set_xlabel("x")
    ax.set_ylabel("witness μ_P(x) − μ_Q(x)")
    legend_outside(ax)


def _witness_map(ax: Axes, witness: Witness, grid: Tensor | None) -> None:
    points = mesh(witness.first.x, witness.second.x) if grid is None else grid
    with torch.no_grad():
        flat = points.reshape(-1, 2)
        mean = witness.first.mean(flat) - witness.second.mean(flat)
        values = mean.reshape(points.shape[:-1])
    size = float(values.abs().max()) or 1.0
    extent = (float(points[0, 0, 0]), float(points[0, -1, 0]), float(points[0, 0, 1]), float(points[-1, 0, 1]))
    image = ax.imshow(
        array(values), origin="lower", extent=extent, cmap=DIVERGING, vmin=-size, vmax=size, aspect="auto"
    )
    ax.figure.colorbar(image, ax=ax, label="witness μ_P − μ_Q")
    ax.set(xlabel="first column", ylabel="second column")


def _curve(ax: Axes, points: Tensor, mean: Tensor, lower: Tensor, upper: Tensor, level: float, name: str) -> None:
    x = array(points.squeeze(-1))
    ax.fill_between(x, array(lower), array(upper), color=BAND, linewidth=0, label=f"{level:.0%} band")
    ax.plot(x, array(mean), color=FIRST, label=name)
