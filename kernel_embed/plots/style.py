"""The style of all plots: colors, axes, legends."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ..files import write_whole
from ..validation import check_array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#000000")
"""Of classes and lines: the palette of Okabe and Ito without its yellow; markers and dashes differ, too."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
FIRST, SECOND, BAND = COLORS[6], COLORS[5], "0.82"
"""The colors of a curve or the first sample, the second sample, and a credible band."""
ACCENT, OTHER = COLORS[5], "#44546a"
"""The colors of a highlighted item, and of the rest."""
TINT = 0.6  # the strength of a class's color on a map at probability 1; points have the full color
MAP, DIVERGING = "viridis", "PuOr_r"  # the color maps of positive and of signed quantities
STYLE = {
    "axes.grid": False,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 10,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "savefig.dpi": 120,
    "savefig.facecolor": "white",
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


def _matplotlib() -> Any:
    try:
        import matplotlib.figure
    except ImportError as error:
        raise ImportError("Plots need matplotlib: pip install 'kernel-embed[plots]'.") from error
    return matplotlib


def styled() -> AbstractContextManager[None]:
    """A context in which matplotlib uses the style of the library.

    Raises:
        ImportError: if matplotlib is not installed.

    Example:
        >>> import matplotlib
        >>> with styled():
        ...     matplotlib.rcParams["axes.spines.top"]
        False
    """
    scope: AbstractContextManager[None] = _matplotlib().rc_context(STYLE)
    return scope


def free_figure(width: float, height: float) -> Figure:
    """A figure for a file, independent of pyplot: it opens no window and needs no closing.

    Args:
        width: inches.
        height: inches.

    Raises:
        ImportError: if matplotlib is not installed.

    Example:
        >>> free_figure(4, 3).get_size_inches()
        array([4., 3.])
    """
    figure: Figure = _matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_picture(figure: Figure, path: str | os.PathLike[str], dpi: int) -> None:
    """Write a figure as a PNG file, atomically."""
    write_whole(path, lambda file: figure.savefig(file, format="png", dpi=dpi))


def axes_or_new(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """``ax``, or the axes of a new pyplot figure of this size in inches; call it after all checks."""
    if ax is not None:
        return ax
    with styled():
        from matplotlib import pyplot

        new: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return new


def finished(ax: Axes, xlabel: str | None = None, ylabel: str | None = None, *, grid: bool = False) -> Axes:
    """``ax`` with labels, and the legend to the right of it if there is something to name."""
    ax.set(**{name: label for name, label in (("xlabel", xlabel), ("ylabel", ylabel)) if label is not None})
    if grid:
        ax.grid(color="0.92")
    legend_outside(ax)
    return ax


def legend_outside(ax: Axes) -> None:
    """Add a legend to the right of the axes, if anything in them has a label."""
    if ax.get_legend_handles_labels()[0]:
        options = {"borderaxespad": 0.0, "frameon": False, "fontsize": "small"}
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), **options)


def legend_below(ax: Axes, num_columns: int = 3) -> None:
    """Add a legend below the axes, in ``num_columns`` columns."""
    options = {"frameon": False, "columnspacing": 1.0, "handlelength": 1.6}
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=num_columns, **options)


def array(values: Tensor | ArrayLike, name: str = "values", dim: int | None = None) -> NDArray[np.float64]:
    """A tensor or numbers as a non-empty array with ``dim`` dimensions."""
    numbers = check_array(values, name, dim)
    if not numbers.size:
        raise ValueError(f"There are no numbers in {name}.")
    return numbers


def arrays(**lines: Tensor | ArrayLike) -> list[NDArray[np.float64]]:
    """Vectors of equal length."""
    vectors = {name: array(values, name, 1) for name, values in lines.items()}
    if len({len(vector) for vector in vectors.values()}) > 1:
        got = ", ".join(f"{len(vector)} in {name}" for name, vector in vectors.items())
        raise ValueError(f"The arguments must have equal lengths, but there are {got}.")
    return list(vectors.values())


def color(number: int) -> str:
    """The color of a line or class by its number, cyclically."""
    return COLORS[number % len(COLORS)]


def marker(number: int) -> str:
    """The marker of a class by its number, cyclically."""
    return MARKERS[number % len(MARKERS)]


def line_style(number: int) -> dict[str, Any]:
    """Color and dash of a line by its number; where colors repeat, dashes differ."""
    return {"color": color(number), "linestyle": DASHES[(number + number // len(COLORS)) % len(DASHES)]}


def certainty_colors(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """RGB of class probabilities ``(…, m)``: the hue shows the class, and white means equal probabilities."""
    from matplotlib.colors import to_rgb

    m = p.shape[-1]
    palette = np.array([to_rgb(color(number)) for number in range(m)])
    logs = np.log(np.clip(p, 1e-12, 1.0))
    certainty = np.clip(1.0 + (p * logs).sum(-1, keepdims=True) / np.log(max(m, 2)), 0.0, 1.0)
    return np.asarray(np.clip(1.0 - TINT * certainty * (1.0 - p @ palette), 0.0, 1.0))
