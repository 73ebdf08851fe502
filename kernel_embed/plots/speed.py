"""Pictures of speed: seconds by the number of rows, and ratios to other libraries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..validation import check_number
from .style import CHOSEN, OTHER, array, axes_or_new, legend_outside, line_style, marker, same_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
