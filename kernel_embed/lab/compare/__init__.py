"""Comparison of learners on a table."""

import importlib
from typing import Any

from .comparison import Comparison, Settings, compare
from .result import ComparisonResult

_LEARNERS = {
    "embedding_classifiers": (
        "CEN_1 CEN_2 PaperClassifier PosteriorAverageClassifier evidence_kernel kernel_class median_kernel paper "
        "paper_kernel scaled_kernel"
    ),
    "reading": "Categories",
    "reference_classifiers": "ReferenceClassifier",
    "regressors": "ReferenceRegressor SingleKernelRegressor",
}
"""Learners and their parts by module, which is imported when one of them is first used."""

__all__ = ["Comparison", "ComparisonResult", "Settings", "compare"]


def __getattr__(name: str) -> Any:
    for module, names in _LEARNERS.items():
        if name in names.split():
            return getattr(importlib.import_module(f".{module}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
