"""Voted kernel regularization: a sparse vote over the functions of many kernels, each penalized by its complexity.

families → complexity → penalties → problem → solver (column_generation, coordinate_descent) → path, cross_validation;
predictions has the fitted vote and its probabilities, generalization its bounds.
"""

from .complexity import (
    dimension_bound,
    feature_dimension,
    local_bound,
    massart_bound,
    monte_carlo,
    own_radius,
    trace_bound,
)
from .cross_validation import CrossValidation, cross_validate_votes
from .descent import Descent
from .families import KernelFamily, gaussian_kernels, polynomial_kernels
from .generalization import BaseFunctions, theorem_1, theorem_2, vote_guarantee
from .path import GRID, PathPoint, problem_path, vote_path
from .penalties import Complexities, complexities, penalties
from .predictions import SparseVote
from .problem import Solution, VoteProblem, Votes, VoteSolver
from .solvers import ColumnGeneration, CoordinateDescent

__all__ = [
    "GRID",
    "BaseFunctions",
    "ColumnGeneration",
    "Complexities",
    "CoordinateDescent",
    "CrossValidation",
    "Descent",
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
    "massart_bound",
    "monte_carlo",
    "own_radius",
    "penalties",
    "polynomial_kernels",
    "problem_path",
    "theorem_1",
    "theorem_2",
    "trace_bound",
    "vote_guarantee",
    "vote_path",
]
