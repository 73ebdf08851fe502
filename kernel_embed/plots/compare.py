"""Pictures of a comparison of learners."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..validation import check_count, check_number
from .style import (
    BAND,
    CHOSEN,
    COLORS,
    FIRST,
    OTHER,
    array,
    axes_or_new,
    certainty_colors,
    legend_outside,
    line_style,
    marker,
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
    ax: Axes | None = None,
) -> Axes:
    """Class probabilities over a plane: the hue says which class, lightness how certain; the data on top.

    Args:
        predict_proba: from points ``(m, 2)`` to probabilities ``(m, num_classes)``.
        x: the data, ``(n, 2)``.
        y: their class numbers, ``(n,)``.
        num_classes: the number of classes.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if ``num_classes`` is not a whole number.
        ValueError: if ``x`` is not finite with two columns, or ``num_classes`` is below 1.

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
    scatter_classes(ax, x, y, num_classes, size=14)
    ax.set(xlim=extent[:2], ylim=extent[2:], xlabel="first feature", ylabel="second feature")
    return ax


def plot_convergence(lines: Mapping[str, Array], *, ax: Axes | None = None) -> Axes:
    """Each objective above its own end, by evaluation, on a logarithmic scale: how fast learning converges.

    Args:
        lines: the values of the objective by the name of the learner.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> lines = {"default": np.array([3.0, 2.0, 1.5, 1.4])}
        >>> ax = plots.plot_convergence(lines, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    for number, (name, values) in enumerate(lines.items()):
        values = array(values, name, 1)
        above = np.minimum.accumulate(values) - values.min()
        above = np.where(above > 0, above, np.nan)
        ax.plot(np.arange(1, len(values) + 1), above, label=name, lw=1.4, **line_style(number))
    ax.set_yscale("log")
    ax.set(xlabel="evaluations of objective and gradient", ylabel="objective above its final value")
    legend_outside(ax, fontsize="x-small")
    ax.grid(color="0.92")
    return ax


def plot_evidence_curve(
    lengthscales: Array,
    values: Array,
    *,
    median: float | None = None,
    maxima: Sequence[float] = (),
    ax: Axes | None = None,
) -> Axes:
    """The log evidence of the inputs over a common lengthscale, with the median heuristic and the maxima.

    Args:
        lengthscales: where it was evaluated.
        values: the log evidence there.
        median: the lengthscale of the median heuristic.
        maxima: the lengthscales of the maxima.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> lengthscales = np.geomspace(0.1, 10, 30)
        >>> curve = -np.log(lengthscales) ** 2
        >>> ax = plots.plot_evidence_curve(lengthscales, curve, median=2.0, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    lengthscales, values = array(lengthscales, "lengthscales", 1), array(values, "values", 1)
    same_length(lengthscales=lengthscales, values=values)
    ax.semilogx(lengthscales, values, color=FIRST, lw=1.5)
    for lengthscale in maxima:
        ax.axvline(lengthscale, color=CHOSEN, lw=1, label=f"maximum: {lengthscale:.2g}")
    if median is not None:
        ax.axvline(median, color="0.5", ls="--", lw=1, label=f"median heuristic: {median:.2g}")
    ax.set(xlabel="lengthscale (features of unit range)", ylabel="log evidence (nats)")
    finite = values[np.isfinite(values)]
    if len(finite):
        top = finite.max()
        # The short end falls by orders of magnitude; the maxima are what is looked for.
        ax.set_ylim(max(finite.min(), top - 3.0 * abs(top - np.median(finite)) - 1.0), top + 0.05 * abs(top) + 1.0)
    legend_outside(ax, fontsize="small")
    return ax


def plot_draws(values: Array, name: str, *, ax: Axes | None = None) -> Axes:
    """The draws of a parameter in order, on a logarithmic scale, one line for each of its entries.

    Args:
        values: ``(num_draws, …)``.
        name: of the parameter.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> ax = plots.plot_draws(np.exp(np.arange(20) % 3), "lengthscale", ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    values = array(values, name)
    entries = values.reshape(len(values), -1) if values.ndim else values.reshape(1, 1)
    for number in range(min(entries.shape[1], len(COLORS))):
        ax.plot(entries[:, number], lw=0.9, **line_style(number))
    ax.set_yscale("log")
    ax.set(ylabel=name)
    ax.grid(color="0.92")
    return ax


def plot_seconds(lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], *, ax: Axes | None = None) -> Axes:
    """Seconds by size, one line for each learner.

    Args:
        lines: sizes and seconds by the name of the learner.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_seconds({"default": ([100, 1000], [0.1, 2.0])}, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    for number, (name, (sizes, seconds)) in enumerate(lines.items()):
        same_length(sizes=array(sizes, name, 1), seconds=array(seconds, name, 1))
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
    """Bars of how many times as long as ours the others take, the longest on top, each with its number.

    Args:
        bars: the ratio by name; those that are not finite are left out.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if a ratio is not a number.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_ratios({"another library": 3.5}, ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    known = {name: value for name, value in bars.items() if math.isfinite(check_number(name, value))}
    order = sorted(known, key=lambda name: known[name])
    drawn = ax.barh(order, [known[name] for name in order], color=OTHER)
    ax.bar_label(drawn, [f"{known[name]:.3g}×" for name in order], padding=3, fontsize="x-small")
    ax.axvline(1.0, color=CHOSEN, lw=1)
    if known:
        ax.set_xscale("log")
        ax.set_xlim(right=4.0 * max(known.values()))
    ax.set_xlabel("time as a multiple of ours (log scale)")
    ax.tick_params(axis="y", labelsize="x-small")
    return ax
