"""Plots of classifiers, embeddings, posteriors, tests and comparisons; needs matplotlib, the extra ``plots``.

Every plot is ``plot_…(thing, …, *, ax=None)`` and returns the axes. With ``ax=`` it draws on those axes and changes
nothing else; without, it makes a new pyplot figure.
"""

from .classification import plot_decision_map, plot_probability_map, plot_reliability
from .embeddings import plot_differences, plot_embedding, plot_null, plot_witness
from .posterior import plot_density, plot_draws, plot_ranking, plot_ratios, plot_seconds, plot_traces
from .style import free_figure, save_picture, styled
from .training import plot_convergence, plot_evidence_curve, plot_importances, plot_learning_curve, plot_relevance

__all__ = [
    "free_figure",
    "plot_convergence",
    "plot_decision_map",
    "plot_density",
    "plot_differences",
    "plot_draws",
    "plot_embedding",
    "plot_evidence_curve",
    "plot_importances",
    "plot_learning_curve",
    "plot_null",
    "plot_probability_map",
    "plot_ranking",
    "plot_ratios",
    "plot_relevance",
    "plot_reliability",
    "plot_seconds",
    "plot_traces",
    "plot_witness",
    "save_picture",
    "styled",
]
