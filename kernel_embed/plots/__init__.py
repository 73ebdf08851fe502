"""Pictures of classifiers, embeddings, posteriors, tests and comparisons; needs matplotlib, the extra ``plots``.

Every one is ``plot_…(thing, …, *, ax=None)`` and returns the axes it drew on. With axes given nothing but them is
touched; without, a new pyplot figure is made, which a notebook shows and its user closes.
"""

from .bayesian import plot_embedding, plot_witness
from .classes import plot_decision_map, plot_learning_curve, plot_relevance
from .compare import plot_probability_map, plot_ranking, plot_reliability
from .differences import plot_differences
from .learning import plot_convergence, plot_draws, plot_evidence_curve
from .null import plot_null
from .posterior import plot_density, plot_traces
from .speed import plot_ratios, plot_seconds
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
