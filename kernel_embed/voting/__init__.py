"""Voted kernel regularization: a sparse vote over the functions of many kernels, each penalized by its complexity.

families → complexity → problem → solvers (program, descent) → path, with cross validation; predictions has the fitted
vote and its probabilities, generalization its bounds.
"""

from .complexity import (
    Complexities,
    complexities,
    dimension_bound,
    feature_dimension,
    local_bound,
    massart_bound,
    monte_carlo,
    own_radius,
    penalties,
    trace_bound,
)
from .families import KernelFamily, gaussian_kernels, polynomial_kernels
from .generalization import BaseFunctions, margin_bound, vote_guarantee
from .path import GRID, CrossValidation, PathPoint, cross_validate_votes, problem_path, vote_path
from .predictions import SparseVote
from .problem import VoteProblem, Votes
from .solvers import ColumnGeneration, CoordinateDescent, Solution, VoteSolver

__all__ = [
    "GRID",
    "BaseFunctions",
    "ColumnGeneration",
    "Complexities",
    "CoordinateDescent",
    "CrossValidation",
    "KernelFamily",
    "PathPoint",
    "Solution",
    "SparseVote",
    "VoteProblem",
    "VoteSolver",
    "Votes",
    "complexities",
    "cross_validate_votes",
    "dimension_bound",
    "feature_dimension",
    "gaussian_kernels",
    "local_bound",
    "margin_bound",
    "massart_bound",
    "monte_carlo",
    "own_radius",
    "penalties",
    "polynomial_kernels",
    "problem_path",
    "trace_bound",
    "vote_guarantee",
    "vote_path",
]
