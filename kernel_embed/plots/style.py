"""What all pictures share: where they are drawn, their colors, tensors as matplotlib likes them.

Every picture is ``plot_…(thing, …, *, ax=None)`` and returns the axes. With ``ax=None`` a new pyplot figure is made,
which notebooks show and the user closes; with axes given pyplot is not touched, and nothing stays open. Whoever writes
pictures to files draws on a :func:`free_figure`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..files import write_whole

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FIRST, SECOND, BAND = "black", "tab:red", "0.85"
"""Of the curve or the first sample, the second sample, and a credible band."""
COLORS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#e08214", "#1b7837", "#762a83",
)  # fmt: skip
"""Of classes and lines; the first seven can be told apart by readers who see fewer colors."""
CHOSEN, OTHER = "#c0392b", "#44546a"
"""Of what is recommended, and of the rest."""
NEEDS_MATPLOTLIB = "Plots need matplotlib: pip install 'kernel-embed[plots]'."


def axes_or_new(ax: Axes | None, width: float = 5.0, height: float = 3.2) -> Axes:
    """``ax``, or the axes of a new pyplot figure of this size in inches."""
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    new: Axes = pyplot.subplots(figsize=(width, height), layout="constrained")[1]
    return new


def free_figure(width: float, height: float) -> Figure:
    """A figure that pyplot does not know, for pictures that go to a file: it opens no window and stays in no list."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(NEEDS_MATPLOTLIB) from error
    return Figure(figsize=(width, height), layout="constrained")


def save_picture(figure: Figure, path: str | os.PathLike[str], dpi: int) -> None:
    """Write a figure as PNG, whole or not at all."""
    write_whole(path, lambda file: figure.savefig(file, format="png", dpi=dpi))


def array(tensor: Tensor) -> NDArray[np.float64]:
    """A tensor as matplotlib likes it."""
    return tensor.detach().cpu().double().numpy()


def color(number: int) -> str:
    """The color of a line or class by its number; they return after the last."""
    return COLORS[number % len(COLORS)]
