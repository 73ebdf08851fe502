"""Pictures of a comparison of learners; each draws on given matplotlib axes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]

COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#e08214", "#1b7837", "#762a83",
)  # fmt: skip
"""Of classes and lines; the first seven can be told apart by readers who see fewer colours."""
CHOSEN, OTHER = "#c0392b", "#44546a"
GRID_POINTS = 90
NUM_BINS = 10


def ranking(
    axes: Axes, names: Sequence[str], means: Sequence[float], errors: Sequence[float], chosen: str | None = None
) -> None:
    """A point with its standard error for each learner, the best on top; the band is one standard error of the best.

    Values far beyond the others are drawn at the edge, as an arrow with the number.
    """
    m, e = np.array(means), np.nan_to_num(np.array(errors))
    best = int(m.argmin())
    edge = max(float(np.quantile(m, 0.7)), float(m[best] + 4 * e[best])) * 1.15
    positions = np.arange(len(names))[::-1]
    axes.axvspan(m[best] - e[best], m[best] + e[best], color="#e6eef7", zorder=0)
    for name, mean, error, position in zip(names, m, e, positions, strict=True):
        colour = CHOSEN if name == chosen else OTHER
        if mean > edge:
            axes.annotate(f"{mean:.2f} →", (edge, position), ha="right", va="center", fontsize="small", color=colour)
            continue
        axes.errorbar(mean, position, xerr=error, fmt="o", color=colour, capsize=3, ms=6)
    axes.set_yticks(positions, names)
    axes.set_ylim(-0.7, len(names) - 0.3)
    for label, name in zip(axes.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name == chosen else "normal")
    axes.set_xlim(right=edge * 1.02)
    axes.set_xlabel("negative log probability of held-out labels (lower is better)")
    axes.grid(axis="x", color="0.9")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def reliability(axes: Axes, confidence: Array, correct: NDArray[np.bool_]) -> None:
    """How often the predicted label is right, for each tenth of the probability it was given; bars are counts."""
    bins = np.minimum((confidence * NUM_BINS).astype(int), NUM_BINS - 1)
    found = np.unique(bins)
    share = np.array([(bins == b).mean() for b in found])
    stated = np.array([confidence[bins == b].mean() for b in found])
    reached = np.array([correct[bins == b].mean() for b in found])
    axes.bar((found + 0.5) / NUM_BINS, share, width=0.9 / NUM_BINS, color="#dfe6ee", zorder=0)
    axes.plot([0, 1], [0, 1], color="0.6", lw=1, ls="--")
    axes.plot(stated, reached, "o-", color=CHOSEN, ms=4, lw=1.2)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    axes.set_aspect("equal")


def probability_map(
    axes: Axes, predict_proba: Callable[[Array], Array], x: Array, y: NDArray[np.int64], num_classes: int
) -> None:
    """Class colours over a plane, mixed by probability, with the data on top; ``y`` are class numbers."""
    low, high = x.min(axis=0), x.max(axis=0)
    margin = 0.08 * np.where(high > low, high - low, 1.0)
    low, high = low - margin, high + margin
    sides = [np.linspace(low[j], high[j], GRID_POINTS) for j in range(2)]
    grid = np.stack(np.meshgrid(*sides), axis=-1).reshape(-1, 2)
    palette = class_colours(num_classes)
    image = (predict_proba(grid) @ palette).reshape(GRID_POINTS, GRID_POINTS, 3)
    extent = (low[0], high[0], low[1], high[1])
    # Lighter than the points, which must stay visible.
    axes.imshow(np.clip(0.35 + 0.65 * image, 0, 1), origin="lower", extent=extent, aspect="auto")
    for number in range(num_classes):
        rows = y == number
        axes.scatter(x[rows, 0], x[rows, 1], s=14, color=palette[number], edgecolors="black", linewidths=0.4)


def class_colours(num_classes: int) -> Array:
    """RGB of each class: (m, 3)."""
    from matplotlib.colors import to_rgb

    return np.array([to_rgb(COLOURS[number % len(COLOURS)]) for number in range(num_classes)])


def histories(axes: Axes, lines: Mapping[str, Array]) -> None:
    """Each objective above its own end, by evaluation, on a logarithmic scale: how fast learning converges."""
    for number, (name, values) in enumerate(lines.items()):
        above = np.minimum.accumulate(values) - values.min()
        above = np.where(above > 0, above, np.nan)
        axes.plot(np.arange(1, len(values) + 1), above, label=name, color=COLOURS[number % len(COLOURS)], lw=1.4)
    axes.set_yscale("log")
    axes.set(xlabel="evaluations of objective and gradient", ylabel="objective above its end")
    axes.legend(fontsize="x-small", ncols=2, frameon=False)
    axes.grid(color="0.92")


def evidence_curve(
    axes: Axes, lengthscales: Array, values: Array, median: float | None = None, maxima: Sequence[float] = ()
) -> None:
    """The log evidence of the inputs over a common lengthscale, with the median heuristic and the maxima."""
    axes.semilogx(lengthscales, values, color="black", lw=1.5)
    for lengthscale in maxima:
        axes.axvline(lengthscale, color=CHOSEN, lw=1, label=f"maximum: {lengthscale:.2g}")
    if median is not None:
        axes.axvline(median, color="0.5", ls="--", lw=1, label=f"median heuristic: {median:.2g}")
    axes.set(xlabel="lengthscale (features of unit range)", ylabel="log evidence")
    finite = values[np.isfinite(values)]
    if len(finite):
        top = finite.max()
        # The short end falls by orders of magnitude; the maxima are what is looked for.
        axes.set_ylim(max(finite.min(), top - 3.0 * abs(top - np.median(finite)) - 1.0), top + 0.05 * abs(top) + 1.0)
    axes.legend(fontsize="small", frameon=False)


def traces(panels: Sequence[Axes], draws: Mapping[str, Array]) -> None:
    """One panel for each parameter: its draws in order, on a logarithmic scale, one line for each column."""
    for axes, (name, values) in zip(panels, draws.items(), strict=True):
        columns: Any = values.reshape(len(values), -1)
        for number in range(min(columns.shape[1], len(COLOURS))):
            axes.plot(columns[:, number], lw=0.9, color=COLOURS[number % len(COLOURS)])
        axes.set_yscale("log")
        axes.set(ylabel=name)
        axes.grid(color="0.92")
    panels[-1].set_xlabel("draw")


def speed(
    panels: Sequence[Axes], lines: Mapping[str, tuple[Sequence[float], Sequence[float]]], bars: Mapping[str, float]
) -> None:
    """Seconds by size, one line for each learner; and bars of how many times as long as ours the others take."""
    times, ratios = panels
    for number, (name, (sizes, seconds)) in enumerate(lines.items()):
        times.loglog(sizes, seconds, "o-", label=name, color=COLOURS[number % len(COLOURS)])
    times.set(xlabel="rows", ylabel="seconds to a learned classifier")
    times.grid(color="0.92", which="both")
    if lines:
        measured = sorted({size for sizes, _ in lines.values() for size in sizes})
        times.set_xticks(measured, [f"{size:g}" for size in measured])
        times.set_xticks([], minor=True)
        times.legend(fontsize="small", frameon=False)
    known = {name: value for name, value in bars.items() if np.isfinite(value)}
    ratios.barh(list(known)[::-1], list(known.values())[::-1], color=OTHER)
    ratios.axvline(1.0, color=CHOSEN, lw=1)
    if known:
        ratios.set_xscale("log")
    ratios.set_xlabel("times as long as ours")
    ratios.tick_params(axis="y", labelsize="x-small")
