"""The picture of a test: its null distribution and the statistic in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from ..validation import check_number
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

    Returns:
        The axes.

    Raises:
        TypeError: if ``statistic`` is not a number.
        ValueError: if the statistics are not finite, or all the same.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_null(torch.randn(100), 2.5, ax=plots.free_figure(4, 3).subplots())
    """
    statistic = check_number("statistic", statistic)
    values = array(null).ravel()
    try:
        counts, edges = np.histogram(values, bins=40)
    except ValueError as error:
        raise ValueError(
            f"Expected finite statistics that differ by more than rounding, got {len(values)} of which no histogram "
            f"can be made ({error}). Look at result.null."
        ) from error
    ax = axes_or_new(ax)
    ax.stairs(counts, edges, fill=True, color="0.75", label="permutations")
    ax.axvline(statistic, color=SECOND, label=label)
    ax.set_xlabel("statistic")
    ax.set_ylabel("permutations")
    legend_outside(ax)
    return ax
