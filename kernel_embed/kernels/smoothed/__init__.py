"""The smoothed kernel r = ∫ k(·, u) k(u, ·) ν(du) of any kernel, and the measures ν."""

from .kernel import SmoothedKernel
from .measures import DiscreteMeasure, GaussianMeasure, LebesgueMeasure, Measure

__all__ = ["DiscreteMeasure", "GaussianMeasure", "LebesgueMeasure", "Measure", "SmoothedKernel"]
