"""The style of all plots: colors, axes, legends.

With ``ax=None`` a plot makes a new pyplot figure, which notebooks show and the user closes; with axes given it does not
use pyplot, and no figure stays open. Plots that go to files are drawn on a :func:`free_figure`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Sized
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
"""Of classes and lines: the palette of Okabe and Ito without its yellow, which is too light for a line.

Color-blind readers can distinguish them (``tests/plots/test_style.py`` simulates it). Markers and dashes differ too, so
that plots are readable without colors.
"""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
FIRST, SECOND, BAND = COLORS[6], COLORS[5], "0.82"
"""The colors of a curve or the first sample, the second sample, and a credible band."""
ACCENT, OTHER = COLORS[5], "#44546a"
"""The colors of a highlighted item, and of the rest."""
TINT = 0.6
"""The strength of a class's color on a map at probability 1; points have the full color."""
MAP, DIVERGING = "viridis", "PuOr_r"
"""The color maps of positive and of signed quantities."""
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


def axes_or_new(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """``ax``, or the axes of a new pyplot figure of this size in inches; call it after all checks."""
    if ax is not None:
        return ax
    with styled():
        from matplotlib import pyplot

        new: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return new


def styled() -> AbstractContextManager[None]:
    """A context in which matplotlib uses the style of the library.

    Returns:
        A context manager.

    Raises:
        ImportError: if matplotlib is not installed.

    Example:
        >>> import matplotlib
        >>> before = matplotlib.rcParams["axes.spines.top"]
        >>> with styled():
        ...     matplotlib.rcParams["axes.spines.top"]
        False
        >>> matplotlib.rcParams["axes.spines.top"] == before
        True
    """
    scope: AbstractContextManager[None] = _matplotlib().rc_context(STYLE)
    return scope


def free_figure(width: float, height: float) -> Figure:
    """A figure for a file, independent of pyplot: it opens no window and needs no closing.

    Args:
        width: inches.
        height: inches.

    Returns:
        The figure.

    Raises:
        ImportError: if matplotlib is not installed.

    Example:
        >>> from kernel_embed import plots
        >>> plots.free_figure(4, 3).get_size_inches()
        array([4., 3.])
    """
    figure: Figure = _matplotlib().figure.Figure(figsize=(width, height), layout="constrained")
    return figure


def save_picture(figure: Figure, path: str | os.PathLike[str], dpi: int) -> None:
    """Write a figure as a PNG file, atomically.

    Args:
        figure: any matplotlib figure.
        path: the file.
        dpi: pixels per inch.

    Returns:
        Nothing.

    Example:
        >>> import pathlib, tempfile
        >>> from kernel_embed import plots
        >>> figure = plots.free_figure(4, 3)
        >>> ax = plots.plot_null(torch.randn(100), 2.5, ax=figure.subplots())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     plots.save_picture(figure, f"{folder}/null.png", dpi=80)
        ...     pathlib.Path(folder, "null.png").stat().st_size > 0
        True
    """
    write_whole(path, lambda file: figure.savefig(file, format="png", dpi=dpi))


def array(values: Tensor | ArrayLike, name: str = "values", dim: int | None = None) -> NDArray[np.float64]:
    """A tensor or numbers as a non-empty array with ``dim`` dimensions."""
    numbers = check_array(values, name, dim)
    if not numbers.size:
        raise ValueError(f"There are no numbers in {name}.")
    return numbers


def same_length(**lines: Sized) -> None:
    """Raise unless all have the same length."""
    if len({len(line) for line in lines.values()}) > 1:
        got = ", ".join(f"{len(line)} in {name}" for name, line in lines.items())
        raise ValueError(f"The arguments must have equal lengths, but there are {got}.")


def color(number: int) -> str:
    """The color of a line or class by its number, cyclically."""
    return COLORS[number % len(COLORS)]


def marker(number: int) -> str:
    """The marker of a class by its number, cyclically."""
    return MARKERS[number % len(MARKERS)]


def line_style(number: int) -> dict[str, Any]:
    """Color and dash of a line by its number; where colors repeat, dashes differ."""
    return {"color": color(number), "linestyle": DASHES[(number + number // len(COLORS)) % len(DASHES)]}


def legend_outside(ax: Axes, **options: Any) -> None:
    """Put the legend to the right of the axes."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False, **options)


def legend_below(ax: Axes, num_columns: int = 3) -> None:
    """Put the legend below the axes."""
    options = {"frameon": False, "columnspacing": 1.0, "handlelength": 1.6}
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=num_columns, **options)


def certainty_colors(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """RGB of class probabilities ``(…, m)``: the hue shows the class, lightness the uncertainty.

    White means equal probabilities, and certainty a tint of the color of the class, on which points in full color are
    visible.

    Example:
        >>> certainty_colors(np.array([0.5, 0.5])).tolist()
        [1.0, 1.0, 1.0]
    """
    from matplotlib.colors import to_rgb

    m = p.shape[-1]
    palette = np.array([to_rgb(color(number)) for number in range(m)])
    logs = np.log(np.clip(p, 1e-12, 1.0))
    certainty = np.clip(1.0 + (p * logs).sum(-1, keepdims=True) / np.log(max(m, 2)), 0.0, 1.0)
    return np.asarray(np.clip(1.0 - TINT * certainty * (1.0 - p @ palette), 0.0, 1.0))


def scatter_classes(
    ax: Axes,
    x: NDArray[np.float64],
    y: NDArray[np.int64],
    num_classes: int,
    class_names: Sequence[object] | None = None,
    size: float = 18,
) -> None:
    """Points of each class in its color and shape, with a legend outside."""
    names = [f"class {number}" for number in range(num_classes)] if class_names is None else list(map(str, class_names))
    if len(names) != num_classes:
        raise ValueError(f"class_names needs a name for each of {num_classes} classes, but it has {len(names)}.")
    if len(x) != len(y):
        raise ValueError(f"Each of {len(x)} points needs a class number, but there are {len(y)}.")
    for number, name in enumerate(names):
        look: dict[str, Any] = {"edgecolors": "white", "linewidths": 0.6, "label": name, "s": size}
        ax.scatter(*x[y == number].T, marker=marker(number), color=color(number), **look)
    legend_outside(ax)
