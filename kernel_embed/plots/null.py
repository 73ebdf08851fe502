"""The picture of a test: its null distribution and the statistic in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from .style import SECOND, array, axes_or_new, legend_outside

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_null(null: Tensor, statistic: float, *, label: str = "observed", ax: Axes | None = None) -> Axes:
    """A histogram of the statistic under the null hypothesis, and its value on the data as a line.

    Args:
        null: ``(B,)``, such as ``result.null`` of a test.
        statistic: on the data.
        label: of the line.
        ax: where to draw; a new figure by default.
    """
    ax = axes_or_new(ax)
    ax.hist(array(null), bins=40, color="0.75", label="permutations")
    ax.axvline(statistic, color=SECOND, label=label)
    ax.set_xlabel("statistic")
    ax.set_ylabel("permutations")
    legend_outside(ax)
    return ax
