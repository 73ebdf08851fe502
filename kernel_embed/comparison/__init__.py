"""The ways to learn a kernel, side by side on one table."""

from .compared import Compared, compare
from .forms import Categories, ordinal, standardized, unit_range
from .learners import paper
from .networks import CEN_1, CEN_2, NetworkClassifier
from .one_law import EmbeddingLaw
from .posterior_average import PosteriorAverageClassifier
from .predictive import BoostedQuantiles, CatBoostLaw, ForestLaw, GaussianProcess, NGBoost, QuantileForest, RidgeLaw
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .starts import evidence_kernel, kernel_class, median_kernel, paper_kernel, scaled_kernel
from .study import Comparison, Settings
from .trees import Boosting, CatBoost, LightGBM, TunedLogistic

__all__ = [
    "CEN_1",
    "CEN_2",
    "BoostedQuantiles",
    "Boosting",
    "CatBoost",
    "CatBoostLaw",
    "Categories",
    "Compared",
    "Comparison",
    "DirichletClassifier",
    "EmbeddingLaw",
    "ForestLaw",
    "GaussianProcess",
    "GridSearchedSVC",
    "LaplaceGPC",
    "LightGBM",
    "NGBoost",
    "NetworkClassifier",
    "PosteriorAverageClassifier",
    "QuantileForest",
    "RidgeLaw",
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
