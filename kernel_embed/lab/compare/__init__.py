"""Ways to learn, compared on one table."""

from .comparison import Comparison, Settings
from .initialization import evidence_kernel, kernel_class, median_kernel, paper, paper_kernel, scaled_kernel
from .networks import CEN_1, CEN_2, NetworkClassifier
from .posterior_average import PosteriorAverageClassifier
from .predictive import (
    BoostedQuantiles,
    CatBoostGaussian,
    GaussianProcess,
    NGBoost,
    ProbabilisticRidge,
    QuantileForest,
    QuantileForestPackage,
)
from .preprocessing import Categories, ordinal, standardized, unit_range
from .references import DirichletClassifier, GridSearchedSVC, LaplaceGPC
from .result import ComparisonResult, compare
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
    "GaussianProcess",
    "GridSearchedSVC",
    "LaplaceGPC",
    "LightGBM",
    "NGBoost",
    "NetworkClassifier",
    "PosteriorAverageClassifier",
    "ProbabilisticRidge",
    "QuantileForest",
    "QuantileForestPackage",
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
