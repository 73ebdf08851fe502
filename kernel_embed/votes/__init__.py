"""Voted kernel regularization: a sparse vote over the functions of many kernels, each penalised by its complexity.

families → complexity → penalties → problem → column_generation, coordinate_descent → path, sparse, guarantee
"""

from .column_generation import ColumnGeneration
from .complexity import (
    dimension_bound,
    feature_dimension,
    local_bound,
    massart_bound,
    monte_carlo,
    own_radius,
    trace_bound,
)
from .coordinate_descent import CoordinateDescent, descend
from .families import KernelFamily, gaussian_kernels, polynomial_kernels
from .guarantee import Guarantee, theorem_1, theorem_2
from .path import CrossValidation, PathPoint, cross_validate_votes, vote_path
from .penalties import complexities, penalties
from .problem import Solution, VoteProblem, Votes
from .sparse import SparseVote

__all__ = [
    "ColumnGeneration",
    "CoordinateDescent",
    "CrossValidation",
    "Guarantee",
    "KernelFamily",
    "PathPoint",
    "Solution",
    "SparseVote",
    "VoteProblem",
    "Votes",
    "complexities",
    "cross_validate_votes",
    "descend",
    "dimension_bound",
    "feature_dimension",
    "gaussian_kernels",
    "local_bound",
    "massart_bound",
    "monte_carlo",
    "own_radius",
    "penalties",
    "polynomial_kernels",
    "theorem_1",
    "theorem_2",
    "trace_bound",
    "vote_path",
]
