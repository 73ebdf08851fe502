"""Pictures of mean embeddings and witness functions; matplotlib is imported when one is drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from ..embeddings import ConditionedMeanEmbedding
    from ..embeddings.witness import Witness

FIRST, SECOND, BAND = "black", "tab:red", "0.85"


def axes(ax: Any = None) -> Any:
    """``ax``, or new matplotlib axes."""
    if ax is not None:
        return ax
    from matplotlib import pyplot

    return pyplot.subplots(figsize=(5, 3.2), layout="constrained")[1]


def array(tensor: Tensor) -> NDArray[np.float64]:
    """A tensor as matplotlib likes it."""
    return tensor.detach().cpu().double().numpy()


def line(*samples: Tensor, num_points: int = 300) -> Tensor:
    """Points ``(num_points, 1)`` that cover one-dimensional samples with a margin."""
    x = torch.cat([sample.detach() for sample in samples], dim=-2)
    low, high = float(x.min()), float(x.max())
    margin = 0.1 * (high - low or 1.0)
    return torch.linspace(low - margin, high + margin, num_points).to(x).unsqueeze(-1)


def mesh(*samples: Tensor, num_points: int = 60) -> Tensor:
    """A mesh ``(num_points, num_points, 2)`` that covers two-dimensional samples."""
    x = torch.cat([sample.detach() for sample in samples], dim=-2)
    sides = [line(x[:, j : j + 1], num_points=num_points).squeeze(-1) for j in range(2)]
    return torch.stack(torch.meshgrid(*sides, indexing="xy"), dim=-1)


def plot_embedding(
    posterior: ConditionedMeanEmbedding, grid: Tensor | None = None, level: float = 0.8, ax: Any = None
) -> Any:
    """The posterior of a one-dimensional mean embedding with its band and the sample as a rug."""
    ax = axes(ax)
    points = line(posterior.x) if grid is None else grid
    with torch.no_grad():
        mean = posterior(points).mean
        lower, upper = posterior.band(points, level)
    _curve(ax, points, mean, lower, upper)
    rug = array(posterior.x.squeeze(-1))
    ax.plot(rug, [ax.get_ylim()[0]] * len(rug), "|", color="0.4")
    ax.set_xlabel("x")
    ax.set_ylabel("μ(x)")
    return ax


def plot_witness(witness: Witness, grid: Tensor | None = None, level: float = 0.8, ax: Any = None) -> Any:
    """μ_P − μ_Q: a curve with its band in one dimension, a map with the samples in two."""
    x, y = witness.first.x, witness.second.x
    width = x.shape[-1]
    if width > 2:
        raise ValueError(
            f"Expected samples of one or two columns to draw, got {width}. Evaluate witness(points) instead."
        )
    ax = axes(ax)
    if width == 1:
        points = line(x, y) if grid is None else grid
        with torch.no_grad():
            mean = witness(points).mean
            lower, upper = witness.band(points, level)
        _curve(ax, points, mean, lower, upper)
        ax.axhline(0.0, color="0.5", linewidth=0.8)
        ax.set_xlabel("x")
        ax.set_ylabel("witness")
        return ax
    points = mesh(x, y) if grid is None else grid
    with torch.no_grad():
        flat = points.reshape(-1, 2)
        mean = witness.first.mean(flat) - witness.second.mean(flat)
        values = mean.reshape(points.shape[:-1])
    size = float(values.abs().max()) or 1.0
    extent = (float(points[0, 0, 0]), float(points[0, -1, 0]), float(points[0, 0, 1]), float(points[-1, 0, 1]))
    image = ax.imshow(array(values), origin="lower", extent=extent, cmap="RdBu_r", vmin=-size, vmax=size, aspect="auto")
    ax.figure.colorbar(image, ax=ax, label="witness")
    return ax


def _curve(ax: Any, points: Tensor, mean: Tensor, lower: Tensor, upper: Tensor) -> None:
    x = array(points.squeeze(-1))
    ax.fill_between(x, array(lower), array(upper), color=BAND, linewidth=0)
    ax.plot(x, array(mean), color=FIRST)
