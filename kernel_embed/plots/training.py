"""Plots of learning: the objective over evaluations, the evidence over lengthscales, relevances and importances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..validation import check_count, check_number
from .style import ACCENT, FIRST, OTHER, array, axes_or_new, legend_outside, line_style, same_length

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]


class Importances(Protocol):
    """What is drawn of :class:`kernel_embed.estimators.FeatureImportances`."""

    @property
    def names(self) -> Sequence[str]:
        """Of the columns."""

    @property
    def mean(self) -> Array:
        """The increase in loss."""

    @property
    def standard_error(self) -> Array:
        """Its standard error."""

    @property
    def loss(self) -> str:
        """Which loss."""


def plot_learning_curve(history: Sequence[Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Plot every term of the objective over the evaluations of :func:`kernel_embed.fit`.

    Args:
        history: ``result.history``.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Raises:
        ValueError: if the history is empty.

    Example:
        >>> from kernel_embed import plots
        >>> history = [{"start": 0.0, "value": 1.0 / step} for step in range(1, 6)]
        >>> ax = plots.plot_learning_curve(history, ax=plots.free_figure(4, 3).subplots())
    """
    if not history:
        raise ValueError("The history has no records. Pass result.history of fit.")
    ax = axes_or_new(ax, 5.0, 4.0)
    names = [name for name in history[-1] if name not in ("start", "value")]
    for number, name in enumerate(["value", *names] if len(names) > 1 else ["value"]):
        values = [record.get(name, float("nan")) for record in history]
        look = {"color": FIRST, "linewidth": 2.0} if name == "value" else line_style(number - 1)
        ax.plot(values, label=name, **look)
    ax.set(xlabel="evaluation", ylabel="objective (nats)")
    legend_outside(ax, fontsize="small")
    return ax


def plot_convergence(lines: Mapping[str, Array], *, ax: Axes | None = None) -> Axes:
    """Plot the distance of each objective to its final value by evaluation, on a logarithmic scale.

    Args:
        lines: the values of the objective by the name of the learner.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Example:
        >>> import numpy as np
        >>> from kernel_embed import plots
        >>> lines = {"default": np.array([3.0, 2.0, 1.5, 1.4])}
        >>> ax = plots.plot_convergence(lines, ax=plots.free_figure(4, 3).subplots())
    """
    arrays = {name: array(values, name, 1) for name, values in lines.items()}
    ax = axes_or_new(ax)
    for number, (name, values) in enumerate(arrays.items()):
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
    """Plot the log evidence over a common lengthscale, with the median heuristic and the maxima.

    Args:
        lengthscales: where it was evaluated.
        values: the log evidence there.
        median: the lengthscale of the median heuristic.
        maxima: the lengthscales of the maxima.
        ax: the axes; a new figure by default.

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
    lengthscales, values = array(lengthscales, "lengthscales", 1), array(values, "values", 1)
    same_length(lengthscales=lengthscales, values=values)
    median = None if median is None else check_number("median", median)
    ax = axes_or_new(ax)
    ax.semilogx(lengthscales, values, color=FIRST, lw=1.5)
    for lengthscale in maxima:
        ax.axvline(lengthscale, color=ACCENT, lw=1, label=f"maximum: {lengthscale:.2g}")
    if median is not None:
        ax.axvline(median, color="0.5", ls="--", lw=1, label=f"median heuristic: {median:.2g}")
    ax.set(xlabel="lengthscale (features of unit range)", ylabel="log evidence (nats)")
    finite = values[np.isfinite(values)]
    if len(finite):
        top = finite.max()
        # The curve falls by orders of magnitude at short lengthscales; show the maxima.
        ax.set_ylim(max(finite.min(), top - 3.0 * abs(top - np.median(finite)) - 1.0), top + 0.05 * abs(top) + 1.0)
    legend_outside(ax, fontsize="small")
    return ax


def plot_relevance(lengthscale: Tensor, names: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance 1/ℓ of each feature (for features on one scale), the most relevant on top.

    Args:
        lengthscale: one for each feature.
        names: of the features; x0, x1, … by default.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if an estimator is given instead of lengthscales.

    Example:
        >>> from kernel_embed import plots
        >>> names = ["age", "height"]
        >>> ax = plots.plot_relevance(torch.tensor([0.5, 2.0]), names, ax=plots.free_figure(4, 3).subplots())
    """
    if hasattr(lengthscale, "inverse_lengthscales_"):
        raise TypeError(
            f"Expected lengthscales, got {type(lengthscale).__name__}. Plot its importances, "
            "plot_importances(model.permutation_importance()), or give the lengthscales of one of its kernels."
        )
    relevance = 1.0 / array(lengthscale, "lengthscale").ravel()
    ax = axes_or_new(ax, 5.0, 4.0)
    names = names or [f"x{j}" for j in range(len(relevance))]
    order = relevance.argsort()
    ax.barh([names[j] for j in order], relevance[order], color=OTHER)
    ax.set_xlabel("relevance 1/ℓ")
    return ax


def plot_importances(importances: Importances, most: int = 20, *, ax: Axes | None = None) -> Axes:
    """Plot the importance of each column with twice its standard error, the most important on top.

    Args:
        importances: what ``permutation_importance()`` of an estimator returned.
        most: columns drawn, at most.
        ax: the axes; a new figure by default.

    Returns:
        The axes.

    Raises:
        TypeError: if ``importances`` has no means and standard errors, for example because an estimator is given.
        ValueError: if there is not one mean for each name.

    Example:
        >>> from kernel_embed import plots
        >>> from kernel_embed.estimators import FeatureImportances
        >>> importances = FeatureImportances(("age", "town"), np.array([0.1, 0.5]), np.array([0.1, 0.1]), "loss", 80)
        >>> ax = plots.plot_importances(importances, ax=plots.free_figure(4, 3).subplots())
    """
    if not hasattr(importances, "standard_error"):
        raise TypeError(f"Expected importances, got {type(importances).__name__}. Give model.permutation_importance().")
    if np.shape(importances.mean) != (len(importances.names),):
        shape, number = np.shape(importances.mean), len(importances.names)
        raise ValueError(f"Expected one importance for each of {number} columns, got shape {shape}.")
    ax = axes_or_new(ax, 5.0, 4.0)
    order = np.argsort(importances.mean, kind="stable")[-check_count("most", most) :]
    names = [importances.names[j] for j in order]
    ax.barh(names, importances.mean[order], xerr=2.0 * importances.standard_error[order], color=OTHER)
    ax.set_xlabel(f"increase in {importances.loss}")
    return ax
