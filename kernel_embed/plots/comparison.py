"""Plots that compare learners and libraries: scores, seconds by size, ratios of times."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..validation import check_number
from .style import BAND, CHOSEN, OTHER, array, axes_or_new, legend_outside, line_style, marker, same_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_ranking(
    names: Sequence[str],
    means: Sequence[float],
    errors: Sequence[float],
    *,
    chosen: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a mean with its standard error for each learner, the best on top; the band is one error of the best.

    Values far beyond the others are numbers with an arrow at the edge.

    Args:
        names: of the learners, the best first.
        means: of their negative log probabilities.
        errors: the standard errors of those.
        chosen: the learner to highlight.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> names, means, errors = ["default", "logistic"], [0.21, 0.25], [0.02, 0.03]
        >>> ax = plots.plot_ranking(names, means, errors, chosen="default", ax=plots.free_figure(4, 3).subplots())
    """
    m, e = array(means, "means", 1), np.nan_to_num(array(errors, "errors", 1))
    same_length(names=names, means=m, errors=e)
    ax = axes_or_new(ax)
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
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name == chosen else "normal")
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
    ax.axvline(1.0, color=CHOSEN, lw=1)
    if finite:
        ax.set_xscale("log")
        ax.set_xlim(right=4.0 * max(finite.values()))
    ax.set_xlabel("time as a multiple of ours (log scale)")
    ax.tick_params(axis="y", labelsize="x-small")
    return ax
