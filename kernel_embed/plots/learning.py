"""Pictures of learning: how an objective falls, the evidence over lengthscales, draws of a hyperparameter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..validation import check_number
from .style import CHOSEN, COLORS, FIRST, array, axes_or_new, legend_outside, line_style, same_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]


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

    Raises:
        TypeError: if ``median`` is not a number.

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
        median = check_number("median", median)
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
