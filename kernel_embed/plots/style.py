"""What all pictures share: where they are drawn, their colors, tensors as matplotlib likes them.

Every picture is ``plot_…(thing, …, *, ax=None)`` and returns the axes. With ``ax=None`` a new pyplot figure is made,
which notebooks show and the user closes; with axes given pyplot is not touched, and nothing stays open. Whoever writes
pictures to files draws on a :func:`free_figure`.
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
"""Of classes and lines: the palette of Okabe and Ito, but for its yellow, which is too light for a line.

Readers who do not see red or green tell them apart (``tests/plots/test_style.py`` simulates it). Shape and dash say
the same once more, so that a picture can be read without colors.
"""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", "--", "-.", ":", (0, (6, 1.5)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 1)))
FIRST, SECOND, BAND = COLORS[6], COLORS[5], "0.82"
"""Of the curve or the first sample, the second sample, and a credible band."""
CHOSEN, OTHER = COLORS[5], "#44546a"
"""Of what is recommended, and of the rest."""
TINT = 0.6
"""Of a class on a map, where the probability is one; its points have the full color."""
MAP, DIVERGING = "viridis", "PuOr_r"
"""Of a quantity that is positive, and of one with a sign."""
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
"""Fonts, sizes and a white background, which is legible on a dark page too."""
NEEDS_MATPLOTLIB = "Plots need matplotlib: pip install 'kernel-embed[plots]'."


def axes_or_new(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """``ax``, or the axes of a new pyplot figure of this size in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    with styled():
        new: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return new


def styled() -> AbstractContextManager[None]:
    """A scope in which matplotlib draws in the style of the library; outside, everything is as it was.

    Returns:
        a context manager.

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
    try:
        import matplotlib
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    scope: AbstractContextManager[None] = matplotlib.rc_context(STYLE)
    return scope


def free_figure(width: float, height: float) -> Figure:
    """A figure that pyplot does not know, for pictures that go to a file: it opens no window and stays in no list.

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
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: Figure, path: str | os.PathLike[str], dpi: int) -> None:
    """Write a figure as PNG, whole or not at all.

    Args:
        figure: from :func:`free_figure`, or any other.
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
    """A tensor, or numbers, as matplotlib likes them: at least one, with ``dim`` dimensions."""
    numbers = check_array(values, name, dim)
    if not numbers.size:
        raise ValueError(f"Expected at least one number in {name}, got none. Give data.")
    return numbers


def same_length(**lines: Sized) -> None:
    """Raise unless all arrays have as many rows."""
    if len({len(line) for line in lines.values()}) > 1:
        got = ", ".join(f"{len(line)} in {name}" for name, line in lines.items())
        raise ValueError(f"Expected as many numbers in each, got {got}. Give one for each point.")


def color(number: int) -> str:
    """The color of a line or class by its number; they return after the last."""
    return COLORS[number % len(COLORS)]


def marker(number: int) -> str:
    """The marker of a class by its number; they return after the last."""
    return MARKERS[number % len(MARKERS)]


def line_style(number: int) -> dict[str, Any]:
    """Color and dash of a line by its number, as matplotlib takes them; where colors return, dashes are others."""
    return {"color": color(number), "linestyle": DASHES[(number + number // len(COLORS)) % len(DASHES)]}


def legend_outside(ax: Axes, **options: Any) -> None:
    """The legend at the right of the axes, where it covers no data."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False, **options)


def legend_below(ax: Axes, num_columns: int = 3) -> None:
    """The legend below the axes and the label of x, where it covers no data and costs no width."""
    options = {"frameon": False, "columnspacing": 1.0, "handlelength": 1.6}
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=num_columns, **options)


def certainty_colors(p: NDArray[np.float64]) -> NDArray[np.float64]:
    """RGB of class probabilities ``(…, m)``: the hue says which class, and lightness how certain it is.

    White is complete ignorance, all classes equally probable. Certainty is a tint of the color of the class, so that
    its points, in full color, stay visible.

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
        raise ValueError(
            f"Expected a name for each of {num_classes} classes, got {len(names)}. Give class_names in the order of "
            "the class numbers."
        )
    if len(x) != len(y):
        raise ValueError(f"Expected a class number for each of {len(x)} points, got {len(y)}. Give as many of each.")
    for number, name in enumerate(names):
        rows = y == number
        shape: dict[str, Any] = {
            "marker": marker(number),
            "color": color(number),
            "edgecolors": "white",
            "linewidths": 0.6,
        }
        ax.scatter(x[rows, 0], x[rows, 1], s=size, label=name, **shape)
    legend_outside(ax)
