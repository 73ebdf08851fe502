"""The ways to learn a kernel, side by side on one table."""

from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .starts import evidence_kernel, median_kernel, paper_kernel
from .study import Comparison, Settings

__all__ = [
    "CEN_1",
    "CEN_2",
    "Comparison",
    "DirichletClassifier",
    "GridSearchedSVC",
    "LaplaceGPC",
    "NetworkClassifier",
    "PosteriorAverageClassifier",
    "Settings",
    "evidence_kernel",
    "median_kernel",
    "paper_kernel",
]
