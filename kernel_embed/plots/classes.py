"""Pictures of classifiers: probabilities over a plane, the course of learning, what labels depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .style import FIRST, OTHER, array, axes_or_new, certainty_colors, legend_outside, line_style, scatter_classes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..embeddings import ConditionedMulticlass

GRID_POINTS = 120
MOST_CLASSES = 7
"""As many as there are colors."""


def plot_decision_map(
    conditioned: ConditionedMulticlass,
    *,
    low: float | tuple[float, float] | None = None,
    high: float | tuple[float, float] | None = None,
    show_data: bool = True,
    class_names: Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """The clip-normalized probabilities (6) over a plane: the hue says which class, lightness how certain (Figure 1).

    Args:
        conditioned: an embedding with two-dimensional inputs and at most seven classes.
        low: lower corner of the map; by default the data's, with a margin.
        high: upper corner of the map.
        show_data: draw the training points over the map.
        class_names: for the legend, by class number; class 0, class 1, … by default.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if the inputs do not have two columns, there are more classes than shapes, or names are missing.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> from kernel_embed import plots
        >>> x, y = torch.rand(20, 2), torch.arange(20) % 3
        >>> conditioned = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=3).condition(x, y)
        >>> ax = plots.plot_decision_map(conditioned, ax=plots.free_figure(4, 3).subplots())
    """
    if conditioned.x.shape[-1] != 2 or conditioned.embedding.num_classes > MOST_CLASSES:
        raise ValueError(
            f"Expected two-dimensional inputs and at most {MOST_CLASSES} classes, got {conditioned.x.shape[-1]} "
            f"dimensions and {conditioned.embedding.num_classes} classes. Choose two columns, or project the "
            "data to a plane."
        )
    ax = axes_or_new(ax, 5.0, 4.0)
    lower, upper = conditioned.x.amin(dim=0), conditioned.x.amax(dim=0)
    margin = 0.1 * (upper - lower)
    lower = lower - margin if low is None else lower.new_tensor(low).expand(2)
    upper = upper + margin if high is None else upper.new_tensor(high).expand(2)
    image = _certainty_map(conditioned, lower, upper)
    extent = (float(lower[0]), float(upper[0]), float(lower[1]), float(upper[1]))
    ax.imshow(image, origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    if show_data:
        labels, m = conditioned.y.cpu().numpy(), conditioned.embedding.num_classes
        scatter_classes(ax, array(conditioned.x), labels, m, class_names)
        ax.set(xlim=extent[:2], ylim=extent[2:])
    ax.set(xlabel="first feature", ylabel="second feature")
    return ax


def _certainty_map(conditioned: ConditionedMulticlass, lower: Tensor, upper: Tensor) -> NDArray[np.float64]:
    """RGB over a grid between two corners, second coordinate first: ``(GRID_POINTS, GRID_POINTS, 3)``."""
    first, second = (torch.linspace(float(a), float(b), GRID_POINTS) for a, b in zip(lower, upper, strict=True))
    grid = torch.cartesian_prod(first, second).to(conditioned.x)
    with torch.no_grad():
        p = array(conditioned.probabilities(grid)).reshape(GRID_POINTS, GRID_POINTS, -1)
    return certainty_colors(p.transpose(1, 0, 2))


def plot_learning_curve(history: Sequence[Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Every term of the objective over the evaluations of :func:`kernel_embed.fit`.

    Args:
        history: ``result.history``.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if the history is empty.

    Example:
        >>> from kernel_embed import plots
        >>> history = [{"start": 0.0, "value": 1.0 / step} for step in range(1, 6)]
        >>> ax = plots.plot_learning_curve(history, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax, 5.0, 4.0)
    if not history:
        raise ValueError("Expected a history with at least one record, got none. Give result.history of fit.")
    names = [name for name in history[-1] if name not in ("start", "value")]
    for number, name in enumerate(["value", *names] if len(names) > 1 else ["value"]):
        values = [record.get(name, float("nan")) for record in history]
        look = {"color": FIRST, "linewidth": 2.0} if name == "value" else line_style(number - 1)
        ax.plot(values, label=name, **look)
    ax.set_xlabel("evaluation")
    ax.set_ylabel("objective (nats)")
    legend_outside(ax, fontsize="small")
    return ax


def plot_relevance(lengthscale: Tensor, names: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """1/ℓ of each feature, the longest bar the most relevant one (for features on one scale).

    Args:
        lengthscale: one for each feature.
        names: of the features; x0, x1, … by default.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if an estimator is given in place of lengthscales.

    Example:
        >>> from kernel_embed import plots
        >>> names = ["age", "height"]
        >>> ax = plots.plot_relevance(torch.tensor([0.5, 2.0]), names, ax=plots.free_figure(4, 3).subplots())
    """
    if hasattr(lengthscale, "feature_relevances_"):
        raise TypeError(
            f"Expected lengthscales, got {type(lengthscale).__name__}. Its relevances by column are in "
            "feature_relevances_; give the lengthscales of one of its kernels."
        )
    ax = axes_or_new(ax, 5.0, 4.0)
    relevance = 1.0 / array(lengthscale, "lengthscale").ravel()
    names = names or [f"x{j}" for j in range(len(relevance))]
    order = relevance.argsort()
    ax.barh([names[j] for j in order], relevance[order], color=OTHER)
    ax.set_xlabel("relevance 1/ℓ")
    return ax
