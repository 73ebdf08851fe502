"""Ways to learn, compared on one table."""

from .classifiers import Boosting, CatBoost, DirichletClassifier, GridSearchedSVC, LaplaceGPC, LightGBM, TunedLogistic
from .comparison import Comparison, Settings
from .embedding_classifiers import (
    CEN_1,
    CEN_2,
    NetworkClassifier,
    PosteriorAverageClassifier,
    evidence_kernel,
    kernel_class,
    median_kernel,
    paper,
    paper_kernel,
    scaled_kernel,
)
from .preprocessing import Categories, ordinal, standardized, unit_range
from .regressors import (
    BoostedQuantiles,
    CatBoostGaussian,
    GaussianProcess,
    NGBoost,
    ProbabilisticRidge,
    QuantileForest,
    QuantileForestPackage,
    SingleKernelRegressor,
)
from .result import ComparisonResult, compare

__all__ = [
    "CEN_1", "CEN_2", "BoostedQuantiles", "Boosting", "CatBoost", "CatBoostGaussian", "Categories", "Comparison",
    "ComparisonResult", "DirichletClassifier", "GaussianProcess", "GridSearchedSVC", "LaplaceGPC", "LightGBM",
    "NGBoost", "NetworkClassifier", "PosteriorAverageClassifier", "ProbabilisticRidge", "QuantileForest",
    "QuantileForestPackage", "Settings", "SingleKernelRegressor", "TunedLogistic", "compare", "evidence_kernel",
    "kernel_class", "median_kernel", "ordinal", "paper", "paper_kernel", "scaled_kernel", "standardized", "unit_range",
]  # fmt: skip
