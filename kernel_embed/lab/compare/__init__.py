"""Comparison of learners on a table."""

import importlib
from typing import Any

from .classifiers import (
    DirichletClassifier,
    GridSearchedSVC,
    LaplaceGPC,
    TunedLogistic,
    evidence_kernel,
    kernel_class,
    median_kernel,
    paper,
    paper_kernel,
    scaled_kernel,
)
from .comparison import Comparison, Settings
from .result import ComparisonResult, compare

_LAZY = {
    "embedding_classifiers": "CEN_1 CEN_2 NetworkClassifier PosteriorAverageClassifier",
    "regressors": "GaussianProcess ProbabilisticRidge SingleKernelRegressor",
    "trees": (
        "BoostedQuantiles Boosting CatBoost CatBoostGaussian Categories LightGBM NGBoost QuantileForest "
        "QuantileForestPackage"
    ),
}
"""Learners by module, imported when one of them is first used."""

__all__ = [
    "Comparison", "ComparisonResult", "DirichletClassifier", "GridSearchedSVC", "LaplaceGPC", "Settings",
    "TunedLogistic", "compare", "evidence_kernel", "kernel_class", "median_kernel", "paper", "paper_kernel",
    "scaled_kernel",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _LAZY.items():
        if name in names.split():
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
