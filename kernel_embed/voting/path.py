r"""The regularization path over (λ, β).

The penalties :math:`\Lambda_k = \lambda r_k + \beta` only scale the rows of the dual program, so the basis at one
pair starts another: the pair whose α and u have the smallest gap under the new penalties.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence

from numpy.typing import ArrayLike

from .families import Array, KernelFamily, Kernels, Points, check_not_empty
from .penalties import complexities, penalties
from .predictions import check_classes, one_against_rest
from .problem import TOLERANCE, Solution, VoteProblem, VoteSolver, check_tolerance
from .solvers import ColumnGeneration, CoordinateDescent

GRID = tuple(10.0**-i for i in range(7))
"""The paper's values of λ and of β: 1, 0.1, …, 1e-6."""


@dataclasses.dataclass(frozen=True)
class PathPoint:
    """The vote at one pair (λ, β).

    Attributes:
        lam: λ.
        beta: β.
        solution: the vote.

    Example:
        >>> import numpy as np, kernel_embed as ke
        >>> x = np.random.default_rng(0).normal(size=(30, 2))
        >>> point, = ke.voting.vote_path([lambda x, z: x @ z.T], x, x[:, 0] > 0, lams=[0.01], betas=[0.0])
        >>> point.lam, point.solution.converged
        (0.01, True)
    """

    lam: float
    beta: float
    solution: Solution


def vote_path(
    kernels: Kernels,
    x: ArrayLike,
    y: ArrayLike,
    *,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    complexity: str | ArrayLike = "trace",
    radius: float | None = None,
    elastic: float = 0.0,
    solver: VoteSolver | None = None,
    tolerance: float = TOLERANCE,
    seed: int | None = 0,
) -> list[PathPoint]:
    """The votes for all pairs (λ, β), λ outermost, each started from the nearest earlier solution.

    Args:
        kernels: GPyTorch kernels or callables ``(x, z) -> matrix``; ``None`` for polynomials of degree 1 to 10.
        x: points.
        y: labels of two classes; votes for the second are positive.
        lams: values of λ; ``[0.0]`` is the norm-1 SVM.
        betas: values of β.
        complexity: as in :class:`kernel_embed.VotedKernelClassifier`.
        radius: r of the local complexity, likewise.
        elastic: μ, the weight of the squares of the costs Λ_k α_{k,j}.
        solver: by default :class:`kernel_embed.voting.ColumnGeneration`, for ``elastic`` > 0
            :class:`kernel_embed.voting.CoordinateDescent`.
        tolerance: the gap to reach at every pair.
        seed: of Monte Carlo complexities.

    Returns:
        One point for each pair.

    Raises:
        ValueError: if the labels are not of two classes, or not one for each point.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> path = vote_path([lambda x, z: x @ z.T + 1], x, x[:, 0] > 0, lams=[0.1, 0.01], betas=[0.0])
        >>> [(point.lam, len(point.solution.votes) > 0) for point in path]
        [(0.1, True), (0.01, True)]
    """
    family = KernelFamily.of(kernels)
    points = family.points(x)
    classes, codes = check_classes(y, len(points))
    if len(classes) > 2:
        raise ValueError(
            f"y must have two classes; it has {len(classes)}. Use one class against the rest, y == c, or "
            "cross_validate_votes or VotedKernelClassifier, which do so for every class."
        )
    settings = PathSettings(lams, betas, complexity, radius, elastic, solver, tolerance, seed)
    return settings.paths(family, points, one_against_rest(codes, 2))[0]


@dataclasses.dataclass(frozen=True)
class PathSettings:
    """The settings of a path; the fields are those of :func:`vote_path`."""

    lams: Sequence[float]
    betas: Sequence[float]
    complexity: str | ArrayLike
    radius: float | None
    elastic: float
    solver: VoteSolver | None
    tolerance: float
    seed: int | None

    def __post_init__(self) -> None:
        check_tolerance(self.tolerance)

    def paths(self, family: KernelFamily, x: Points, targets: Sequence[Array]) -> list[list[PathPoint]]:
        """One path for each array of labels ±1, on the same Gram matrices."""
        grams = family.grams(x, x)
        r = complexities(family, x, self.complexity, grams=grams, radius=self.radius, seed=self.seed).values
        problem = VoteProblem(grams, targets[0], self.elastic)
        return [
            problem_path(problem.with_labels(y), r, self.lams, self.betas, solver=self.solver, tolerance=self.tolerance)
            for y in targets
        ]


def default_solver(elastic: float) -> VoteSolver:
    """Column generation, the faster one, if the problem is a linear program; otherwise coordinate descent."""
    return CoordinateDescent() if elastic else ColumnGeneration()


def problem_path(
    problem: VoteProblem,
    r: Array,
    lams: Sequence[float] = GRID,
    betas: Sequence[float] = GRID,
    *,
    solver: VoteSolver | None = None,
    tolerance: float = TOLERANCE,
) -> list[PathPoint]:
    """:func:`vote_path` for Gram matrices and complexities ``r`` that are already computed.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> problem = VoteProblem([x @ x.T + 1], np.where(x[:, 0] > 0, 1.0, -1.0))
        >>> len(problem_path(problem, np.array([1.0]), lams=[0.1, 0.01], betas=[0.0]))
        2
    """
    # Large penalties first: their programs are small, and the number of votes grows.
    lams, betas = check_not_empty("lams", lams), check_not_empty("betas", betas)
    pairs = sorted(itertools.product(lams, betas), reverse=True)
    solver = default_solver(problem.elastic) if solver is None else solver
    if not isinstance(solver, VoteSolver):
        raise TypeError(f"solver must be a VoteSolver, such as ColumnGeneration(), or None, not {solver!r}.")
    solutions = solver.solve_all(problem, [penalties(*pair, r) for pair in pairs], tolerance=tolerance)
    solution_of = dict(zip(pairs, solutions, strict=True))
    return [PathPoint(lam, beta, solution_of[lam, beta]) for lam, beta in itertools.product(lams, betas)]
