"""Plots of classifiers, embeddings, posteriors, tests and comparisons; needs matplotlib, the extra ``plots``.

Every plot is ``plot_…(thing, …, *, ax=None)`` and returns the axes. With ``ax=`` it draws on those axes and changes
nothing else; without, it makes a new pyplot figure, which notebooks show and you close.
"""

from .classification import plot_decision_map, plot_probability_map, plot_reliability
from .embeddings import plot_density, plot_differences, plot_draws, plot_embedding, plot_null, plot_traces, plot_witness
from .learning import (
    plot_convergence,
    plot_evidence_curve,
    plot_importances,
    plot_learning_curve,
    plot_ranking,
    plot_relevance,
)
from .style import free_figure, save_picture, styled

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
    "plot_relevance",
    "plot_reliability",
    "plot_traces",
    "plot_witness",
    "save_picture",
    "styled",
]
