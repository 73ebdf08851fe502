"""The picture of where two samples differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

from .style import BAND, FIRST, SECOND, array, axes_or_new, same_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_differences(x: Tensor, witness: Tensor, band: Tensor, *, level: float = 0.95, ax: Axes | None = None) -> Axes:
    """The witness at points of one column, red outside the band in which it would stay for one distribution.

    Args:
        x: the column, ``(t,)``.
        witness: μ̂_P − μ̂_Q there, ``(t,)``.
        band: how far it may go from 0, ``(t,)``.
        level: of the band, for the legend.
        ax: where to draw; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> from kernel_embed import plots
        >>> x = torch.linspace(0, 1, 50)
        >>> ax = plots.plot_differences(x, x - 0.5, torch.full((50,), 0.3), ax=plots.free_figure(4, 3).subplots())
    """
    ax = axes_or_new(ax)
    at, w, half = array(x, "x", 1), array(witness, "witness", 1), array(band, "band", 1)
    same_length(x=at, witness=w, band=half)
    order = at.argsort()
    at, w, half = at[order], w[order], half[order]
    ax.fill_between(at, -half, half, color=BAND, linewidth=0, label=f"{level:.0%} of permutations, everywhere")
    outside = abs(w) > half
    ax.scatter(at[~outside], w[~outside], s=6, color=FIRST)
    ax.scatter(at[outside], w[outside], s=6, color=SECOND, label="outside")
    ax.axhline(0.0, color="0.5", linewidth=0.8)
    ax.set_ylabel("witness")
    ax.legend(fontsize=8)
    return ax
