"""Learned kernel embeddings for GPyTorch and Pyro.

Data go one way: kernel → embedding → objective → fit → condition → predict. Every public name is here.
"""

from .bounds import GeneralizationBound, generalization_bound
from .embeddings import ConditionalEmbedding, ConditionedEmbedding, ConditionedMulticlass, MulticlassEmbedding
from .estimators import MulticlassEmbeddingClassifier
from .kernels import (
    DeltaKernel,
    SupDiagonal,
    default_kernel,
    gram,
    median_distance,
    set_lengthscales_by_median,
    sup_diagonal,
)
from .learning import FitResult, fit
from .objectives import (
    BatchValidationRisk,
    CalibratedLeaveOneOutRisk,
    ConditionalEvidence,
    CrossValidationRisk,
    EmpiricalRisk,
    LeaveOneOutRisk,
    Objective,
    RademacherComplexity,
    SoftmaxCalibration,
    calibrate,
    default_objective,
)
from .votes import VotedKernelClassifier, cross_validate_votes, gaussian_kernels, polynomial_kernels, vote_path

__version__ = "0.1.0"

__all__ = [
    "BatchValidationRisk",
    "CalibratedLeaveOneOutRisk",
    "ConditionalEmbedding",
    "ConditionalEvidence",
    "ConditionedEmbedding",
    "ConditionedMulticlass",
    "CrossValidationRisk",
    "DeltaKernel",
    "EmpiricalRisk",
    "FitResult",
    "GeneralizationBound",
    "LeaveOneOutRisk",
    "MulticlassEmbedding",
    "MulticlassEmbeddingClassifier",
    "Objective",
    "RademacherComplexity",
    "SoftmaxCalibration",
    "SupDiagonal",
    "VotedKernelClassifier",
    "calibrate",
    "cross_validate_votes",
    "default_kernel",
    "default_objective",
    "fit",
    "gaussian_kernels",
    "generalization_bound",
    "gram",
    "median_distance",
    "polynomial_kernels",
    "set_lengthscales_by_median",
    "sup_diagonal",
    "vote_path",
]
