"""The ways to learn a kernel, side by side on one table."""

from .compared import Compared, compare
from .forms import Categories, ordinal, standardized, unit_range
from .learners import paper
from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .starts import evidence_kernel, kernel_class, median_kernel, paper_kernel, scaled_kernel
from .study import Comparison, Settings
from .trees import Boosting, CatBoost, LightGBM, TunedLogistic

__all__ = [
    "CEN_1",
    "CEN_2",
    "Boosting",
    "CatBoost",
    "Categories",
    "Compared",
    "Comparison",
    "DirichletClassifier",
    "GridSearchedSVC",
    "LaplaceGPC",
    "LightGBM",
    "NetworkClassifier",
    "PosteriorAverageClassifier",
    "Settings",
    "TunedLogistic",
    "compare",
    "evidence_kernel",
    "kernel_class",
    "median_kernel",
    "ordinal",
    "paper",
    "paper_kernel",
    "scaled_kernel",
    "standardized",
    "unit_range",
]
