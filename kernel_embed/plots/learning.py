"""Plots of learning: objectives and evidence, relevances and importances, and the ranking of learners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ..validation import check_count, check_number
from .style import ACCENT, BAND, FIRST, OTHER, array, arrays, axes_or_new, finished, line_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Array = NDArray[np.float64]


def plot_learning_curve(history: Sequence[Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Plot every term of the objective over the evaluations of :func:`kernel_embed.fit`.

    Args:
        history: ``result.history``.
        ax: the axes; a new figure by default.

    Raises:
        ValueError: if the history is empty.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plot_learning_curve([{"value": 2.0}, {"value": 1.0}], ax=plots.free_figure(4, 3).subplots())
    """
    if not history:
        raise ValueError("The history has no records. Pass result.history of fit.")
    ax = axes_or_new(ax, 5.0, 4.0)
    names = [name for name in history[-1] if name not in ("start", "value")]
    for number, name in enumerate(["value", *names] if len(names) > 1 else ["value"]):
        look = {"color": FIRST, "linewidth": 2.0} if name == "value" else line_style(number - 1)
        ax.plot([record.get(name, float("nan")) for record in history], label=name, **look)
    return finished(ax, "evaluation", "objective (nats)")


def plot_convergence(lines: Mapping[str, Array], *, ax: Axes | None = None) -> Axes:
    """Plot the distance of each objective to its final value by evaluation, for lines of values by name."""
    vectors = {name: array(values, name, 1) for name, values in lines.items()}
    ax = axes_or_new(ax)
    for number, (name, values) in enumerate(vectors.items()):
        above = np.minimum.accumulate(values) - values.min()
        look = {"label": name, "lw": 1.4, **line_style(number)}
        ax.plot(np.arange(1, len(values) + 1), np.where(above > 0, above, np.nan), **look)
    ax.set_yscale("log")
    return finished(ax, "evaluations of objective and gradient", "objective above its final value", grid=True)


def plot_evidence_curve(
    lengthscales: Array,
    values: Array,
    *,
    median: float | None = None,
    maxima: Sequence[float] = (),
    ax: Axes | None = None,
) -> Axes:
    """Plot the log evidence over a common lengthscale, with those of the median heuristic and the maxima."""
    lengthscales, values = arrays(lengthscales=lengthscales, values=values)
    median = None if median is None else check_number("median", median)
    ax = axes_or_new(ax)
    ax.semilogx(lengthscales, values, color=FIRST, lw=1.5)
    for lengthscale in maxima:
        ax.axvline(lengthscale, color=ACCENT, lw=1, label=f"maximum: {lengthscale:.2g}")
    if median is not None:
        ax.axvline(median, color="0.5", ls="--", lw=1, label=f"median heuristic: {median:.2g}")
    finite = values[np.isfinite(values)]
    if len(finite):
        top = finite.max()  # show the maxima: the curve falls by orders of magnitude at short lengthscales
        ax.set_ylim(max(finite.min(), top - 3.0 * abs(top - np.median(finite)) - 1.0), top + 0.05 * abs(top) + 1.0)
    return finished(ax, "lengthscale (features of unit range)", "log evidence (nats)")


def plot_relevance(lengthscale: Tensor, names: Sequence[str] | None = None, *, ax: Axes | None = None) -> Axes:
    """Plot the relevance 1/ℓ of each feature (for features on one scale), the most relevant on top.

    Args:
        lengthscale: one for each feature.
        names: of the features; x0, x1, … by default.
        ax: the axes; a new figure by default.

    Raises:
        TypeError: if an estimator is given instead of lengthscales.

    Example:
        >>> from kernel_embed import plots
        >>> ax = plots.plot_relevance(torch.tensor([0.5, 2.0]), ax=plots.free_figure(4, 3).subplots())
    """
    if hasattr(lengthscale, "inverse_lengthscales_"):
        kind = type(lengthscale).__name__
        raise TypeError(f"Expected lengthscales, got {kind}. Use plot_importances(model.permutation_importance()).")
    relevance = 1.0 / array(lengthscale, "lengthscale").ravel()
    ax = axes_or_new(ax, 5.0, 4.0)
    names = names or [f"x{j}" for j in range(len(relevance))]
    order = relevance.argsort()
    ax.barh([names[j] for j in order], relevance[order], color=OTHER)
    return finished(ax, "relevance 1/ℓ")


def plot_importances(importances: Any, most: int = 20, *, ax: Axes | None = None) -> Axes:
    """Plot the importance of each column with twice its standard error, the most important on top.

    Args:
        importances: what ``permutation_importance()`` of an estimator returned.
        most: columns drawn, at most.
        ax: the axes; a new figure by default.

    Raises:
        TypeError: if ``importances`` has no means and standard errors.

    Example:
        >>> from kernel_embed import estimators, plots
        >>> town = estimators.FeatureImportances(("town",), np.array([0.5]), np.array([0.1]), "loss", 80)
        >>> ax = plot_importances(town, ax=plots.free_figure(4, 3).subplots())
    """
    if not hasattr(importances, "standard_error"):
        raise TypeError(f"Expected importances, got {type(importances).__name__}. Give model.permutation_importance().")
    if np.shape(importances.mean) != (len(importances.names),):
        shape, number = np.shape(importances.mean), len(importances.names)
        raise ValueError(f"Expected one importance for each of {number} columns, got shape {shape}.")
    order = np.argsort(importances.mean, kind="stable")[-check_count("most", most) :]
    ax = axes_or_new(ax, 5.0, 4.0)
    names = [importances.names[j] for j in order]
    ax.barh(names, importances.mean[order], xerr=2.0 * importances.standard_error[order], color=OTHER)
    return finished(ax, f"increase in {importances.loss}")


def plot_ranking(
    names: Sequence[str],
    means: Sequence[float],
    errors: Sequence[float],
    *,
    highlight: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Plot a mean with its standard error for each learner, the best on top; far values are numbers at the edge."""
    m, e, positions = arrays(means=means, errors=errors, names=np.arange(len(names))[::-1])
    e = np.nan_to_num(e)
    ax = axes_or_new(ax)
    best = int(m.argmin())
    edge = max(float(np.quantile(m, 0.7)), float(m[best] + 4 * e[best])) * 1.15
    ax.axvspan(m[best] - e[best], m[best] + e[best], color=BAND, alpha=0.5, zorder=0)
    for name, mean, error, position in zip(names, m, e, positions, strict=True):
        shade = ACCENT if name == highlight else OTHER
        if mean > edge:
            ax.annotate(f"{mean:.2f} →", (edge, position), ha="right", va="center", fontsize="small", color=shade)
            continue
        ax.errorbar(mean, position, xerr=error, fmt="D" if name == highlight else "o", color=shade, capsize=3, ms=6)
    ax.set_yticks(positions, names)
    for label, name in zip(ax.get_yticklabels(), names, strict=True):
        label.set_fontweight("bold" if name == highlight else "normal")
    ax.set(ylim=(-0.7, len(names) - 0.3))
    ax.set_xlim(right=edge * 1.02)
    ax.grid(axis="x", color="0.9")
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    return finished(ax, "negative log probability of held-out labels (lower is better)")
