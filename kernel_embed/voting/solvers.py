r"""Solvers of eq. (1): linear programming by column generation, and coordinate descent.

**Column generation.** The dual of eq. (1) has one constraint per base function, of which only those with a vote matter
at the optimum. A restricted program (:mod:`kernel_embed.voting.program`) is solved repeatedly: its solution u prices
all base functions, the most violated constraints :math:`|h_{k,j}^\top u| > \Lambda_k` are added, and the simplex method
continues from its basis. The multipliers of the constraints are the :math:`\alpha_{k,j}`.

**Coordinate descent**: see :mod:`kernel_embed.voting.descent`.
"""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Iterable

import numpy as np

from ..validation import check_count
from .descent import Block, Descent, Stream
from .families import Array
from .problem import TOLERANCE, VoteProblem, Votes, check_penalties, check_tolerance, dual_bound
from .program import Program, WarmStart

NEAREST = 3  # earlier solutions that start a new one: the basis of the nearest, and the tight constraints of all
MAX_HISTORY = 100  # solutions kept for warm starts


@dataclasses.dataclass(frozen=True)
class Solution:
    """A vote with its duality gap.

    Attributes:
        votes: the non-zero coefficients α; ``weight[t]`` is that of point ``point[t]`` and kernel ``kernel[t]``.
        penalties: Λ_k, one per kernel.
        objective: F(α) of eq. (1), an upper bound of the optimum.
        bound: the value of the feasible dual point, a lower bound.
        u: the dual point before it is scaled into the feasible set, of shape (m,).
        num_rounds: how often the solver priced all base functions.
        converged: whether the gap is within the tolerance.

    Example:
        >>> import numpy as np
        >>> problem = VoteProblem([np.eye(2)], np.array([1.0, -1.0]))
        >>> solution = ColumnGeneration().solve(problem, np.array([0.1]))
        >>> solution.votes.weight, round(solution.objective, 6), round(solution.gap, 6)
        (array([ 1., -1.]), 0.2, 0.0)
    """

    votes: Votes
    penalties: Array
    objective: float
    bound: float
    u: Array
    num_rounds: int
    converged: bool

    @property
    def gap(self) -> float:
        """objective − bound, the largest possible distance from the optimum, never negative."""
        return max(0.0, self.objective - self.bound)


class VoteSolver(abc.ABC):
    """A way of solving eq. (1). A solver holds settings only, so that one object serves many problems.

    Example:
        >>> issubclass(ColumnGeneration, VoteSolver), issubclass(CoordinateDescent, VoteSolver)
        (True, True)
    """

    @abc.abstractmethod
    def solve(
        self, problem: VoteProblem, penalties: Array, *, tolerance: float = TOLERANCE, start: Votes | None = None
    ) -> Solution:
        """The vote for penalties Λ_k > 0 with a gap of at most ``tolerance`` between objective and dual bound.

        ``start`` are votes of a similar problem, whose base functions may start the search.
        """

    def solve_all(
        self, problem: VoteProblem, penalties: Iterable[Array], *, tolerance: float = TOLERANCE
    ) -> list[Solution]:
        """The votes for several penalties, in this order; override it to reuse one solution for the next."""
        return [self.solve(problem, each, tolerance=tolerance) for each in penalties]


@dataclasses.dataclass(frozen=True)
class FinishedSolve:
    """A solution, the last u with its prices h_{k,j}ᵀu, and a warm start for the next solve."""

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
        max_rounds: the most pricing rounds, at least 1.

    Raises:
        ValueError: if ``max_rounds`` is below 1.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> problem = VoteProblem([x @ x.T + 1], np.where(x[:, 0] > 0, 1.0, -1.0))
        >>> solution = ColumnGeneration().solve(problem, np.array([0.01]), tolerance=1e-8)
        >>> solution.converged, len(solution.votes)
        (True, 3)
    """

    max_rounds: int = 1000

    def __post_init__(self) -> None:
        check_count("max_rounds", self.max_rounds)

    def solve(
        self, problem: VoteProblem, penalties: Array, *, tolerance: float = TOLERANCE, start: Votes | None = None
    ) -> Solution:
        """The vote for penalties Λ_k; the base functions of ``start`` are in the first restricted program."""
        return self.solve_next([], problem, penalties, tolerance, start)

    def solve_all(
        self, problem: VoteProblem, penalties: Iterable[Array], *, tolerance: float = TOLERANCE
    ) -> list[Solution]:
        """The votes for several penalties, each started from the nearest earlier solutions."""
        history: list[FinishedSolve] = []
        return [self.solve_next(history, problem, each, tolerance) for each in penalties]

    def solve_next(
        self, history: list[FinishedSolve], problem: VoteProblem, penalties: Array, tolerance: float,
        start: Votes | None = None,
    ) -> Solution:  # fmt: skip
        """The vote for penalties Λ_k, started from the nearest in ``history``, to which it is added."""
        check_tolerance(tolerance)
        if problem.elastic:
            problem_has = f"this problem has elastic = {problem.elastic:g}. Use CoordinateDescent()"
            raise ValueError(f"ColumnGeneration solves linear programs only, elastic = 0; {problem_has}.")
        penalties = check_penalties(penalties, len(problem.grams))
        program = _first_program(history, problem, penalties, start)
        # Start from α = 0: rows beyond double precision can give coefficients that are far worse.
        best = Solution(Votes.none(), penalties, 1.0, 0.0, np.full(problem.m, 1.0 / problem.m), 0, False)
        for num_rounds in range(1, self.max_rounds + 1):
            votes, u = program.run()
            prices = np.stack(problem.prices(u))
            violations = np.abs(prices) / penalties[:, None]
            margins = problem.margins(votes)
            objective = problem.objective(votes, penalties, margins)
            # Neither the objective nor the bound is monotone over the rounds, but the best of each remains valid.
            if objective <= best.objective:
                best = dataclasses.replace(best, votes=votes, objective=objective, u=u)
            bound = max(best.bound, dual_bound(float(u.sum()), violations))
            best = dataclasses.replace(best, bound=bound, num_rounds=num_rounds)
            if best.gap <= tolerance or program.failed:
                break
            restored, added = program.restore_points(margins), program.add_violated(violations)
            if not (restored or added):
                break
            program.drop_points(margins, u)
        best = dataclasses.replace(best, converged=best.gap <= tolerance)
        history.append(FinishedSolve(best, u, prices, program.warm_start(margins, u)))
        del history[:-MAX_HISTORY]
        return best


def _first_program(
    history: list[FinishedSolve], problem: VoteProblem, penalties: Array, start: Votes | None
) -> Program:
    """The restricted program of the first round, from the nearest solutions and ``start``."""
    nearest = sorted(history, key=lambda finished: finished.gap_under(penalties))[:NEAREST]
    program = Program(problem, penalties, nearest[0].warm_start if nearest else None)
    likely = [finished.warm_start.rows for finished in nearest[1:]]
    if start is not None:
        likely.append(start.kernel * program.width + start.point)
    if likely:
        program.add(np.unique(np.concatenate(likely)))
    if nearest:  # its prices under these penalties show which constraints will be violated
        program.add_violated(np.abs(nearest[0].prices) / penalties[:, None])
    return program


@dataclasses.dataclass(frozen=True)
class CoordinateDescent(VoteSolver):
    """Coordinate descent (Appendix C), which stores only the base functions that vote.

    Args:
        max_rounds: the most pricing rounds, at least 1.

    Raises:
        ValueError: if ``max_rounds`` is below 1.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=(40, 2))
        >>> problem = VoteProblem([x @ x.T + 1], np.where(x[:, 0] > 0, 1.0, -1.0))
        >>> CoordinateDescent().solve(problem, np.array([0.01])).converged
        True
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
            stream: called in every round; returns blocks ``(names, h, penalties)``, with ``h`` of shape (block size,
                m), rows already multiplied by the labels. The same names must come with the same functions each time.
            m: the number of points.
            tolerance: the gap to reach.
            elastic: μ, the weight of the squares.

        Returns:
            The finished search, with ``weights`` by name, ``objective``, ``bound``, ``gap`` and ``converged``.

        Example:
            >>> import numpy as np
            >>> x = np.random.default_rng(0).normal(size=(50, 2))
            >>> y = np.where(x[:, 0] > 0, 1.0, -1.0)
            >>> def stumps():
            ...     for column in range(2):
            ...         names = [(column, i) for i in range(50)]
            ...         yield names, y * np.where(x[:, column] > x[:, column, None], 1.0, -1.0), np.full(50, 0.01)
            >>> run = CoordinateDescent().solve_stream(stumps, m=50)
            >>> run.converged, sorted({column for column, _ in run.weights})
            (True, [0])
        """
        return Descent(stream, m, tolerance, self.max_rounds, elastic).run()


def default_solver(elastic: float) -> VoteSolver:
    """Column generation, the faster one, if the problem is a linear program; otherwise coordinate descent."""
    return CoordinateDescent() if elastic else ColumnGeneration()
