r"""Linear programming by column generation.

The dual of eq. (1) has one boxed variable per point and one constraint per base function, pm in all, of which only
those with a vote matter at the optimum. So a restricted program is solved repeatedly: its solution prices all base
functions with one matrix product per kernel, the most violated constraints :math:`|h_{k,j}^\top u| > \Lambda_k` are
added, and the simplex method continues from its basis. The multipliers of the constraints are the :math:`\alpha_{k,j}`.

It stops when the gap between F(α) and the scaled dual point is small, independently of the status of the linear
program. A new solve starts from the nearest earlier solutions: those whose α and u have the smallest gap under the new
penalties.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from ..validation import check_count
from .descent import Block, Descent, Stream
from .families import Array
from .problem import (
    TOLERANCE,
    Solution,
    VoteProblem,
    Votes,
    VoteSolver,
    check_elastic,
    check_penalties,
    check_tolerance,
    dual_bound,
)
from .program import Program, WarmStart

NEAREST = 3
"""Earlier solutions that start a new one: the basis of the nearest, and the tight constraints of all."""

MAX_HISTORY = 100
"""Solutions kept for warm starts."""


@dataclasses.dataclass(frozen=True)
class Finished:
    """A finished solve: its solution, the last u with its prices h_{k,j}ᵀu, and a warm start for the next."""

    solution: Solution
    u: Array
    prices: Array
    warm_start: WarmStart

    def gap_under(self, penalties: Array) -> float:
        """The gap of this α and this u at other penalties, as a distance between problems."""
        votes, old = self.solution.votes, self.solution.penalties
        objective = self.solution.objective + (penalties - old)[votes.kernel] @ np.abs(votes.weight)
        return float(objective - dual_bound(float(self.u.sum()), np.abs(self.prices) / penalties[:, None]))


@dataclasses.dataclass(frozen=True)
class ColumnGeneration(VoteSolver):
    """Linear programming by column generation, with HiGHS.

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
        >>> solution = ColumnGeneration().solve(problem, np.array([0.01]), tolerance=1e-8)
        >>> solution.converged, solution.gap < 1e-8, len(solution.votes) < 10
        (True, True, True)
    """

    max_rounds: int = 1000

    def __post_init__(self) -> None:
        check_count("max_rounds", self.max_rounds)

    def solve(
        self, problem: VoteProblem, penalties: Array, *, tolerance: float = TOLERANCE, start: Votes | None = None
    ) -> Solution:
        """The vote for penalties Λ_k; the base functions of ``start`` are in the first restricted program."""
        return WarmStartedSolver(problem, tolerance, self.max_rounds).solve(penalties, start)

    def solve_all(
        self, problem: VoteProblem, penalties: Iterable[Array], *, tolerance: float = TOLERANCE
    ) -> list[Solution]:
        """The votes for several penalties, each started from the nearest earlier solution."""
        solver = WarmStartedSolver(problem, tolerance, self.max_rounds)
        return [solver.solve(each) for each in penalties]


class WarmStartedSolver:
    """Column generation on one problem, with the earlier solutions that start later ones."""

    def __init__(self, problem: VoteProblem, tolerance: float = TOLERANCE, max_rounds: int = 1000) -> None:
        check_tolerance(tolerance)
        if problem.elastic:
            raise ValueError(
                f"ColumnGeneration solves linear programs only, elastic = 0; this problem has elastic = "
                f"{problem.elastic:g}. Use CoordinateDescent(), or solver=None."
            )
        self.problem, self.tolerance, self.max_rounds = problem, tolerance, max_rounds
        self.history: list[Finished] = []

    def solve(self, penalties: Array, start: Votes | None = None) -> Solution:
        """The vote for penalties Λ_k, one per kernel."""
        penalties = check_penalties(penalties, len(self.problem.grams))
        program = self._program(penalties, start)
        # Start from α = 0: rows beyond double precision can give coefficients that are far worse.
        best = Solution(Votes.none(), penalties, 1.0, 0.0, np.full(self.problem.m, 1.0 / self.problem.m), 0, False)
        for num_rounds in range(1, self.max_rounds + 1):
            votes, u = program.run()
            prices = np.stack(self.problem.prices(u))
            violations = np.abs(prices) / penalties[:, None]
            margins = self.problem.margins(votes)
            objective = self.problem.objective(votes, penalties, margins)
            best = _better(best, votes, objective, u, dual_bound(float(u.sum()), violations))
            best = dataclasses.replace(best, num_rounds=num_rounds, converged=best.gap <= self.tolerance)
            if best.converged or program.failed:
                break
            restored, added = program.restore_points(margins), program.add_violated(violations)
            if not (restored or added):
                break
            program.drop_points(margins, u)
        finished = Finished(best, u, prices, program.warm_start(margins, u))
        self.history = [*self.history[1 - MAX_HISTORY :], finished]
        return best

    def _program(self, penalties: Array, start: Votes | None) -> Program:
        """The restricted program of the first round, from the nearest solutions and ``start``."""
        nearest = sorted(self.history, key=lambda finished: finished.gap_under(penalties))[:NEAREST]
        program = Program(self.problem, penalties, nearest[0].warm_start if nearest else None)
        likely = [(finished.warm_start.kernel, finished.warm_start.point) for finished in nearest[1:]]
        if start is not None:
            likely.append((start.kernel, start.point))
        if likely:
            kernels, points = zip(*likely, strict=True)
            program.add_new(np.concatenate(kernels), np.concatenate(points))
        if nearest:  # its prices under these penalties show which constraints will be violated
            program.add_violated(np.abs(nearest[0].prices) / penalties[:, None])
        return program


def _better(best: Solution, votes: Votes, objective: float, u: Array, bound: float) -> Solution:
    """The best objective and the best bound: neither is monotone over the rounds, but each remains valid."""
    if objective <= best.objective:
        return dataclasses.replace(best, votes=votes, objective=objective, u=u, bound=max(bound, best.bound))
    return dataclasses.replace(best, bound=max(bound, best.bound))


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
