"""The ways to learn a kernel, side by side on one table."""

from .initialization import evidence_kernel, kernel_class, median_kernel, paper_kernel, scaled_kernel
from .learners import paper
from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .predictive import (
    BoostedQuantiles,
    CatBoostGaussian,
    ForestRegressor,
    GaussianProcess,
    NGBoost,
    ProbabilisticRidge,
    QuantileForest,
)
from .preprocessing import Categories, ordinal, standardized, unit_range
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .result import ComparisonResult, compare
from .runner import Comparison, Settings
from .single_kernel_regressor import SingleKernelRegressor
from .trees import Boosting, CatBoost, LightGBM, TunedLogistic

__all__ = [
    "CEN_1",
    "CEN_2",
    "BoostedQuantiles",
    "Boosting",
    "CatBoost",
    "CatBoostGaussian",
    "Categories",
    "Comparison",
    "ComparisonResult",
    "DirichletClassifier",
    "ForestRegressor",
    "GaussianProcess",
    "GridSearchedSVC",
    "LaplaceGPC",
    "LightGBM",
    "NGBoost",
    "NetworkClassifier",
    "PosteriorAverageClassifier",
    "ProbabilisticRidge",
    "QuantileForest",
    "Settings",
    "SingleKernelRegressor",
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
