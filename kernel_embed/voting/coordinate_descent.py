"""Coordinate descent as a solver: one block of base functions per kernel, or a user's stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ..validation import check_count
from .descent import Block, Descent, Stream
from .families import Array
from .problem import VoteProblem, Votes, check_elastic
from .solver import TOLERANCE, Solution, VoteSolver, check_penalties


@dataclasses.dataclass(frozen=True)
class CoordinateDescent(VoteSolver):
    """Coordinate descent (Appendix C), which stores only the base functions that vote.

    Args:
        max_rounds: the most pricing rounds.

    Raises:
        TypeError: if ``max_rounds`` is not a whole number.
        ValueError: if it is below 1.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.voting import VoteProblem
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(40, 2))
        >>> problem = VoteProblem([x @ x.T + 1], np.where(x[:, 0] > 0, 1.0, -1.0))
        >>> solution = CoordinateDescent().solve(problem, np.array([0.01]))
        >>> solution.converged, solution.gap < 1e-7
        (True, True)
    """

    max_rounds: int = 2000

    def __post_init__(self) -> None:
        check_count("max_rounds", self.max_rounds)

    def solve(
        self, problem: VoteProblem, penalties: Array, *, tolerance: float = TOLERANCE, start: Votes | None = None
    ) -> Solution:
        """The vote for penalties Λ_k; the search starts from α = 0 and ignores ``start``."""
        penalties = check_penalties(penalties, len(problem.grams))

        def stream() -> Iterable[Block]:
            for k, K in enumerate(problem.grams):
                yield [(k, j) for j in range(K.shape[1])], (K * problem.y[:, None]).T, np.full(K.shape[1], penalties[k])

        run = self.solve_stream(stream, problem.m, tolerance=tolerance, elastic=problem.elastic)
        names = np.array(list(run.weights), dtype=np.int64).reshape(-1, 2)
        votes = Votes(names[:, 0], names[:, 1], np.array(list(run.weights.values()), dtype=np.float64))
        return Solution(votes, penalties, run.objective, run.bound, run.u, run.num_rounds, run.converged)

    def solve_stream(self, stream: Stream, m: int, *, tolerance: float = TOLERANCE, elastic: float = 0.0) -> Descent:
        """The vote over a stream of base functions on ``m`` points, which are never in memory all at once.

        Args:
            stream: called in every round; see :class:`~kernel_embed.voting.descent.Descent`.
            m: the number of points.
            tolerance: the gap to reach.
            elastic: μ, the weight of the squares.

        Returns:
            The finished :class:`~kernel_embed.voting.descent.Descent`; its ``weights`` map the names of base functions
            with a vote to their coefficients.

        Raises:
            TypeError: if ``elastic`` is not a number.
            ValueError: if it is negative or not finite.

        Example:
            >>> import numpy as np
            >>> rng = np.random.default_rng(0)
            >>> x = rng.normal(size=(50, 2))
            >>> y = np.where(x[:, 0] > 0, 1.0, -1.0)
            >>> def stumps():
            ...     for column in range(2):
            ...         names = [(column, i) for i in range(50)]
            ...         yield names, y * np.where(x[:, column] > x[:, column, None], 1.0, -1.0), np.full(50, 0.01)
            >>> run = CoordinateDescent().solve_stream(stumps, m=50)
            >>> run.converged, sorted({column for column, _ in run.weights})
            (True, [0])
        """
        return Descent(stream, m, tolerance, self.max_rounds, check_elastic(elastic)).run()
