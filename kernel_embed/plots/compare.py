"""Pictures of a comparison of learners."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..validation import check_count
from .style import (
    BAND,
    CHOSEN,
    OTHER,
    array,
    axes_or_new,
    certainty_colors,
    same_length,
    scatter_classes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

GRID_POINTS = 90
NUM_BINS = 10


def plot_ranking(
    names: Sequence[str],
    means: Sequence[float],
    errors: Sequence[float],
    *,
    chosen: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A point with its standard error for each learner, the best on top; the band is one standard error of the best.

    Values far beyond the others are drawn at the edge, as an arrow with the number.

    Args:
        names: of the learners, the best first.
        means: of their negative log probabilities.
        errors: the standard errors of those.
        chosen: the learner to point out.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> names, means, errors = ["default", "logistic"], [0.21, 0.25], [0.02, 0.03]
        >>> ax = plots.plot_ranking(names, means, errors, chosen="default", ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    m, e = array(means, "means", 1), np.nan_to_num(array(errors, "errors", 1))
    same_length(names=names, means=m, errors=e)
    best = int(m.argmin())
    edge = max(float(np.quantile(m, 0.7)), float(m[best] + 4 * e[best])) * 1.15
    positions = np.arange(len(names))[::-1]
    ax.axvspan(m[best] - e[best], m[best] + e[best], color=BAND, alpha=0.5, zorder=0)
    for name, mean, error, position in zip(names, m, e, positions, strict=True):
        shade = CHOSEN if name == chosen else OTHER
        if mean > edge:
            ax.annotate(f"{mean:.2f} →", (edge, position), ha="right", va="center", fontsize="small", color=shade)
            continue
        ax.errorbar(mean, position, xerr=error, fmt="D" if name == chosen else "o", color=shade, capsize=3, ms=6)
    ax.set_yticks(positions, names)
    ax.set_ylim(-0.7, len(names) - 0.3)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name == chosen else "normal")
    ax.set_xlim(right=edge * 1.02)
    ax.set_xlabel("negative log probability of held-out labels (lower is better)")
    ax.grid(axis="x", color="0.9")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return ax


def plot_reliability(confidence: Array, correct: NDArray[np.bool_], *, ax: Axes | None = None) -> Axes:
    """How often the predicted label is right, for each tenth of the probability it was given; bars are counts.

    Each point has its 90 % interval (Wilson's). Tenths with fewer than ten predictions are joined with the next one up,
    because a share of three rows says nothing.

    Args:
        confidence: the probability of each predicted label, ``(n,)``.
        correct: whether it was right, ``(n,)``.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if ``confidence`` has values outside 0 to 1.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> confidence = np.linspace(0.5, 1.0, 100)
        >>> ax = plots.plot_reliability(confidence, confidence > 0.7, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    confidence, correct = array(confidence, "confidence", 1), np.asarray(correct, dtype=bool)
    same_length(confidence=confidence, correct=correct)
    if not ((confidence >= 0) & (confidence <= 1)).all():
        raise ValueError("Expected probabilities in confidence, got others. Give numbers from 0 to 1.")
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    found = np.unique(bins)
    ax.bar((found + 0.5) / NUM_BINS, [(bins == b).mean() for b in found], width=0.9 / NUM_BINS, color=BAND, zorder=0)
    joined = _joined(bins)
    groups = [joined == b for b in np.unique(joined)]
    stated = np.array([confidence[group].mean() for group in groups])
    reached = np.array([correct[group].mean() for group in groups])
    low, high = wilson(reached, np.array([group.sum() for group in groups]))
    ax.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
    ax.vlines(stated, low, high, color=CHOSEN, lw=1, alpha=0.6)
    ax.plot(stated, reached, "o-", color=CHOSEN, ms=4, lw=1.2)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    ax.set(xlabel="stated probability", ylabel="share correct")
    ax.set_aspect("equal")
    return ax


def wilson(share: Array, count: Array, deviations: float = 1.645) -> tuple[Array, Array]:
    """Wilson's interval of a share that was found in ``count`` trials, of 90 % by default.

    Example:
        >>> low, high = wilson(np.array([0.5]), np.array([10]))
        >>> low.round(2), high.round(2)
        (array([0.27]), array([0.73]))
    """
    z2 = deviations**2 / count
    middle = (share + z2 / 2) / (1 + z2)
    half = np.sqrt(share * (1 - share) * z2 + z2**2 / 4) / (1 + z2)
    return middle - half, middle + half


def _joined(bins: NDArray[np.int64], fewest: int = 10) -> NDArray[np.int64]:
    """Bins so that each has at least ``fewest`` members: a small one goes to the next above, the last one below."""
    joined: NDArray[np.int64] = bins.copy()
    for b in np.unique(bins):
        above = joined[joined > b]
        if 0 < (joined == b).sum() < fewest and len(above):
            joined[joined == b] = above.min()
    last = joined.max()
    below = joined[joined < last]
    if (joined == last).sum() < fewest and len(below):
        joined[joined == last] = below.max()
    return joined


def plot_probability_map(
    predict_proba: Callable[[Array], Array],
    x: Array,
    y: NDArray[np.int64],
    num_classes: int,
    *,
    class_names: Sequence[object] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Class probabilities over a plane: the hue says which class, lightness how certain; the data on top.

    Args:
        predict_proba: from points ``(m, 2)`` to probabilities ``(m, num_classes)``.
        x: the data, ``(n, 2)``.
        y: their class numbers, ``(n,)``.
        num_classes: the number of classes.
        class_names: for the legend, by class number; class 0, class 1, … by default.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if ``num_classes`` is not a whole number.
        ValueError: if ``x`` is not finite with two columns, ``num_classes`` is below 1, or names are missing.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> x, y = np.random.default_rng(0).random((20, 2)), np.arange(20) % 2
        >>> ax = plots.free_figure(4, 3).subplots()
        >>> ax = plots.plot_probability_map(lambda z: np.full((len(z), 2), 0.5), x, y, 2, ax=ax)
    """
    ax = axes_or_new(ax)
    x = array(x, "x", 2)
    if x.shape[1] != 2 or not np.isfinite(x).all():
        raise ValueError(f"Expected finite points of a plane, got shape {x.shape}. Give two columns.")
    check_count("num_classes", num_classes)
    low, high = x.min(axis=0), x.max(axis=0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)
    low, high = low - margin, high + margin
    sides = [np.linspace(low[j], high[j], GRID_POINTS) for j in range(2)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    image = certainty_colors(predict_proba(grid)).reshape(GRID_POINTS, GRID_POINTS, 3)
    extent = (low[0], high[0], low[1], high[1])
    ax.imshow(image, origin="lower", extent=extent, aspect="auto")
    scatter_classes(ax, x, y, num_classes, class_names, size=14)
    ax.set(xlim=extent[:2], ylim=extent[2:], xlabel="first feature", ylabel="second feature")
    return ax
