"""Every picture the documentation and the reports show. Needs matplotlib, the extra ``plots``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GRID_POINTS = 120


def decision_map(
    conditioned: ConditionedMulticlass,
    axes: Axes | None = None,
    *,
    low: float | tuple[float, float] | None = None,
    high: float | tuple[float, float] | None = None,
    show_data: bool = True,
) -> Axes:
    """The clip-normalised probabilities (6) over a plane as colours: red, green, blue for classes 0, 1, 2 (Figure 1).

    Args:
        conditioned: an embedding with two-dimensional inputs and at most three classes.
        axes: where to draw; new ones by default.
        low: lower corner of the map; by default the data's, with a margin.
        high: upper corner of the map.
        show_data: draw the training points over the map.
    """
    if conditioned.x.shape[-1] != 2 or conditioned.embedding.num_classes > 3:
        raise ValueError(
            f"Expected two-dimensional inputs and at most 3 classes, got {conditioned.x.shape[-1]} dimensions and "
            f"{conditioned.embedding.num_classes} classes. Choose two columns, or project the data to a plane."
        )
    axes = _axes(axes)
    lower, upper = conditioned.x.amin(dim=0), conditioned.x.amax(dim=0)
    margin = 0.1 * (upper - lower)
    lower = lower - margin if low is None else lower.new_tensor(low).expand(2)
    upper = upper + margin if high is None else upper.new_tensor(high).expand(2)
    first, second = (torch.linspace(float(a), float(b), GRID_POINTS) for a, b in zip(lower, upper, strict=True))
    grid = torch.cartesian_prod(first, second).to(conditioned.x)
    with torch.no_grad():
        p = conditioned.probabilities(grid).cpu()
    colours = torch.zeros(GRID_POINTS, GRID_POINTS, 3)
    colours[..., : p.shape[-1]] = p.reshape(GRID_POINTS, GRID_POINTS, -1).transpose(0, 1)
    extent = (float(first[0]), float(first[-1]), float(second[0]), float(second[-1]))
    axes.imshow(colours.clamp(0, 1).numpy(), origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    if show_data:
        _scatter(axes, conditioned.x, conditioned.y)
    return axes


def _scatter(axes: Axes, x: Tensor, y: Tensor) -> None:
    x, y = x.cpu(), y.cpu()
    for label, colour in zip(range(3), ("#ff9d9d", "#9dff9d", "#9d9dff"), strict=True):
        rows = y == label
        axes.scatter(x[rows, 0], x[rows, 1], s=18, c=colour, edgecolors="black", linewidths=0.6)


def learning_curve(history: list[dict[str, float]], axes: Axes | None = None) -> Axes:
    """Every term of the objective over the evaluations of :func:`kernel_embed.fit`."""
    axes = _axes(axes)
    names = [name for name in history[-1] if name not in ("start", "value")]
    for name in ["value", *names] if len(names) > 1 else ["value"]:
        style: dict[str, Any] = {"color": "black", "lw": 2} if name == "value" else {"lw": 1.2}
        axes.plot([record.get(name, float("nan")) for record in history], label=name, **style)
    axes.set_xlabel("evaluation")
    axes.set_ylabel("objective")
    axes.legend(fontsize="small")
    return axes


def relevance_bars(lengthscale: Tensor, names: list[str] | None = None, axes: Axes | None = None) -> Axes:
    """1/ℓ of each feature, the longest bar the most relevant one (for features on one scale)."""
    axes = _axes(axes)
    relevance = 1.0 / lengthscale.detach().cpu().flatten()
    names = names or [f"x{j}" for j in range(len(relevance))]
    order = relevance.argsort()
    axes.barh([names[j] for j in order], relevance[order].numpy())
    axes.set_xlabel("relevance 1/ℓ")
    return axes


def _axes(axes: Axes | None) -> Axes:
    if axes is not None:
        return axes
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'kernel-embed[plots]'.") from error
    # Not pyplot: a library does not open windows or keep figures alive in its host.
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = Figure(figsize=(5, 4), layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()
