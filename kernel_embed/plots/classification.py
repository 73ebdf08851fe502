"""Plots of classifiers: class probabilities over a plane, and reliability."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..validation import check_count
from .style import ACCENT, BAND, COLORS, array, arrays, axes_or_new, certainty_colors, color, finished, marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ..embeddings import ConditionedMulticlass

Array = NDArray[np.float64]
Corner = float | tuple[float, float] | None
GRID_POINTS = 120
MARGIN = 0.1
NUM_BINS = 10


def plot_decision_map(
    conditioned: ConditionedMulticlass,
    *,
    low: Corner = None,
    high: Corner = None,
    show_data: bool = True,
    class_names: Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot the probabilities (6) over a plane: the hue shows the class, lightness the uncertainty (Figure 1).

    Args:
        conditioned: an embedding with two-dimensional inputs and at most seven classes.
        low: lower corner of the map; by default the data's, with a margin.
        high: upper corner of the map.
        show_data: draw the training points over the map.
        class_names: for the legend, by class number; class 0, class 1, … by default.
        ax: the axes; a new figure by default.

    Raises:
        ValueError: if the inputs do not have two columns, there are more than seven classes, or names are missing.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> conditioned = embedding.condition(torch.eye(2), torch.arange(2))
        >>> ax = plot_decision_map(conditioned, ax=ke.plots.free_figure(4, 3).subplots())
    """
    m, d = conditioned.embedding.num_classes, conditioned.x.shape[-1]
    if d != 2 or m > len(COLORS):
        most = f"two-dimensional inputs and at most {len(COLORS)} classes"
        raise ValueError(f"A decision map needs {most}, not {d} dimensions and {m} classes. Select two columns.")

    @torch.no_grad()
    def predict_proba(points: Array) -> Array:
        return array(conditioned.probabilities(torch.as_tensor(points).to(conditioned.x)))

    y = conditioned.y.cpu().numpy() if show_data else None
    look: dict[str, Any] = {"low": low, "high": high, "class_names": class_names, "ax": ax}
    return plot_probability_map(predict_proba, array(conditioned.x), y, m, **look)


def plot_probability_map(
    predict_proba: Callable[[Array], Array],
    x: Array,
    y: NDArray[np.int64] | None,
    num_classes: int,
    *,
    low: Corner = None,
    high: Corner = None,
    class_names: Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot class probabilities over a plane, like :func:`plot_decision_map`, for any classifier.

    Args:
        predict_proba: from points ``(m, 2)`` to probabilities ``(m, num_classes)``.
        x: the data, ``(n, 2)``.
        y: their class numbers, ``(n,)``; ``None`` draws no points.
        num_classes: the number of classes.
        low: as in :func:`plot_decision_map`.
        high: as in :func:`plot_decision_map`.
        class_names: as in :func:`plot_decision_map`.
        ax: the axes; a new figure by default.

    Raises:
        ValueError: if ``x`` is not finite with two columns, ``num_classes`` is below 1, or names are missing.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.free_figure(4, 3).subplots()
        >>> ax = plot_probability_map(lambda z: np.full((len(z), 2), 0.5), np.eye(2), np.arange(2), 2, ax=ax)
    """
    x = array(x, "x", 2)
    if x.shape[1] != 2 or not np.isfinite(x).all():
        raise ValueError(f"x must be finite with two columns; its shape is {x.shape}.")
    if y is not None and len(x) != len(y):
        raise ValueError(f"Each of {len(x)} points needs a class number, but there are {len(y)}.")
    numbers = range(check_count("num_classes", num_classes))
    names = [f"class {number}" for number in numbers] if class_names is None else list(map(str, class_names))
    if len(names) != num_classes:
        raise ValueError(f"class_names needs a name for each of {num_classes} classes, but it has {len(names)}.")
    ax = axes_or_new(ax, 5.0, 4.0)
    lower, upper = x.min(axis=0), x.max(axis=0)
    margin = MARGIN * np.where(upper > lower, upper - lower, 1.0)
    lower = np.broadcast_to(lower - margin if low is None else low, 2)
    upper = np.broadcast_to(upper + margin if high is None else high, 2)
    sides = [np.linspace(lower[j], upper[j], GRID_POINTS) for j in range(2)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    image = certainty_colors(predict_proba(grid)).reshape(GRID_POINTS, GRID_POINTS, 3)
    extent = (float(lower[0]), float(upper[0]), float(lower[1]), float(upper[1]))
    ax.imshow(image, origin="lower", extent=extent, aspect="auto", interpolation="bilinear")
    for number, name in enumerate(names if y is not None else ()):
        look: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.6, "label": name, "s": 16}
        ax.scatter(*x[np.asarray(y) == number].T, marker=marker(number), color=color(number), **look)
    ax.set(xlim=extent[:2], ylim=extent[2:])
    return finished(ax, "first feature", "second feature")


def plot_reliability(confidence: Array, correct: NDArray[np.bool_], *, ax: Axes | None = None) -> Axes:
    """Plot the accuracy of predicted labels for each tenth of their probability, with a histogram of the latter.

    Points have their 90 % interval (Wilson's). Tenths with fewer than ten predictions are joined with the next one.

    Args:
        confidence: the probability of each predicted label, ``(n,)``.
        correct: whether it was right, ``(n,)``.
        ax: the axes; a new figure by default.

    Raises:
        ValueError: if ``confidence`` has values outside 0 to 1.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plot_reliability(np.full(100, 0.7), np.arange(100) < 75, ax=plots.free_figure(4, 3).subplots())
    """
    confidence, right = arrays(confidence=confidence, correct=np.asarray(correct, dtype=bool))
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("confidence must hold probabilities, numbers from 0 to 1.")
    ax = axes_or_new(ax)
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    used = np.unique(bins)
    ax.bar((used + 0.5) / NUM_BINS, [(bins == b).mean() for b in used], width=0.9 / NUM_BINS, color=BAND, zorder=0)
    groups = [bins == b for b in used]
    while len(groups) > 1 and (small := [i for i, group in enumerate(groups) if group.sum() < 10]):
        first = min(small[0], len(groups) - 2)  # the last joins the one below, any other the next above
        groups[first : first + 2] = [groups[first] | groups[first + 1]]
    stated = np.array([confidence[group].mean() for group in groups])
    accuracy = np.array([right[group].mean() for group in groups])
    count = np.array([group.sum() for group in groups])
    z2 = 1.645**2 / count  # Wilson's interval of 90 %
    middle = (accuracy + z2 / 2) / (1 + z2)
    half = np.sqrt(accuracy * (1 - accuracy) * z2 + z2**2 / 4) / (1 + z2)
    ax.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
    ax.vlines(stated, middle - half, middle + half, color=ACCENT, lw=1, alpha=0.6)
    ax.plot(stated, accuracy, "o-", color=ACCENT, ms=4, lw=1.2)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1], aspect="equal")
    return finished(ax, "stated probability", "share correct")
