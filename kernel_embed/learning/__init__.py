"""Learning: minimize an objective over the parameters of an embedding."""

from .fit import fit
from .maxima import LocalMaximum, local_maxima
from .optimizers import LBFGS, Adam, Optimizer, Outcome, TorchOptimizer
from .problem import Problem
from .result import Evaluation, FitResult, Progress, Visit

__all__ = [
    "LBFGS",
    "Adam",
    "Evaluation",
    "FitResult",
    "LocalMaximum",
    "Optimizer",
    "Outcome",
    "Problem",
    "Progress",
    "TorchOptimizer",
    "Visit",
    "fit",
    "local_maxima",
]
