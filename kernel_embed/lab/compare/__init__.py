"""Comparison of learners on a table. The code in a report imports its learners and their parts from here."""

from .comparison import Comparison, Settings, compare
from .embedding_classifiers import (
    CEN_1,
    CEN_2,
    PaperClassifier,
    PosteriorAverageClassifier,
    evidence_kernel,
    kernel_class,
    median_kernel,
    paper,
    paper_kernel,
    scaled_kernel,
)  # fmt: skip
from .reading import Categories
from .reference_classifiers import ReferenceClassifier
from .regressors import ReferenceRegressor, SingleKernelRegressor
from .result import ComparisonResult

__all__ = [
    "CEN_1", "CEN_2", "Categories", "Comparison", "ComparisonResult", "PaperClassifier", "PosteriorAverageClassifier",
    "ReferenceClassifier", "ReferenceRegressor", "Settings", "SingleKernelRegressor", "compare", "evidence_kernel",
    "kernel_class", "median_kernel", "paper", "paper_kernel", "scaled_kernel",
]  # fmt: skip
