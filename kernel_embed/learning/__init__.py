"""Learning: minimize an objective over the parameters of an embedding."""

from .fit import fit
from .lbfgs import LBFGS
from .maxima import LocalMaximum, local_maxima
from .problem import Problem
from .result import Evaluation, FitResult, Optimizer, Outcome, Progress, Visit
from .stochastic import Adam, TorchOptimizer

__all__ = [
    "LBFGS", "Adam", "Evaluation", "FitResult", "LocalMaximum", "Optimizer", "Outcome", "Problem", "Progress",
    "TorchOptimizer", "Visit", "fit", "local_maxima",
]  # fmt: skip
