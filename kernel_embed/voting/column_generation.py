r"""Linear programming by column generation.

The dual of eq. (1) has one boxed variable per point and one row per base function, pm rows in all, of which only those
with a vote matter at the optimum. So a small program is solved again and again: at its solution all base functions are
priced with one matrix product per kernel, the most violated rows :math:`|h_{k,j}^\top u| > \Lambda_k` join it, and the
simplex method goes on from the basis it has. The multipliers of the rows are the coefficients :math:`\alpha_{k,j}`.

It stops when the gap between F(α) and the scaled dual point is small, whatever the program believes. A new solve starts
from the solutions found before: the certificates tell which of them are nearest, those whose α and u have the least gap
under the new penalties.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

import numpy as np

from .families import Array
from .problem import Solution, VoteProblem, Votes, check_penalties, dual_bound
from .program import Core, Program
from .solver import TOLERANCE, VoteSolver, check_max_rounds, check_tolerance

NEAREST = 3
"""Earlier solutions that start a new one: the basis of the nearest, and the tight rows of all."""

REMEMBERED = 100
"""Solutions that are kept for that."""


@dataclasses.dataclass(frozen=True)
class End:
    """Where one solve ended: its solution, the last u with h_{k,j}ᵀu, and what its program came down to."""

    solution: Solution
    u: Array
    prices: Array
    core: Core

    def gap_under(self, penalties: Array) -> float:
        """The gap of this α and this u at other penalties: how near their optimum is."""
        votes, old = self.solution.votes, self.solution.penalties
        objective = self.solution.objective + (penalties - old)[votes.kernel] @ np.abs(votes.weight)
        return float(objective - dual_bound(float(self.u.sum()), np.abs(self.prices) / penalties[:, None]))


@dataclasses.dataclass(frozen=True)
class ColumnGeneration(VoteSolver):
    """Linear programming by column generation, with HiGHS.

    Args:
        max_rounds: how often to price all base functions at most.

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
        check_max_rounds(self.max_rounds)

    def solve(
        self, problem: VoteProblem, penalties: Array, *, tolerance: float = TOLERANCE, start: Votes | None = None
    ) -> Solution:
        """The vote for penalties Λ_k; ``start`` names the base functions of the first program."""
        return Generation(problem, tolerance, self.max_rounds).solve(penalties, start)

    def solve_all(
        self, problem: VoteProblem, penalties: Iterable[Array], *, tolerance: float = TOLERANCE
    ) -> list[Solution]:
        """The votes for several penalties in turn, each from where the nearest before it ended."""
        generation = Generation(problem, tolerance, self.max_rounds)
        return [generation.solve(each) for each in penalties]


class Generation:
    """Column generation at work on one problem: it remembers where earlier penalties ended.

    Args:
        problem: the sample.
        tolerance: the gap to reach.
        max_rounds: how often to price all base functions at most.
    """

    def __init__(self, problem: VoteProblem, tolerance: float = TOLERANCE, max_rounds: int = 1000) -> None:
        check_tolerance(tolerance)
        if problem.elastic:
            raise ValueError(
                f"Expected a linear program, elastic = 0, got elastic = {problem.elastic:g}. Use CoordinateDescent(), "
                "or solver=None, which chooses."
            )
        self.problem, self.tolerance, self.max_rounds = problem, tolerance, max_rounds
        self.ends: list[End] = []

    def solve(self, penalties: Array, start: Votes | None = None) -> Solution:
        """The vote for penalties Λ_k, one per kernel."""
        penalties = check_penalties(penalties, len(self.problem.grams))
        program = self._program(penalties, start)
        # Fall back on α = 0: rows beyond double precision can end in coefficients that are far worse.
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
            returned, joined = program.call_back(margins), program.price_in(violations)
            if not (returned or joined):
                break
            program.send_away(margins, u)
        self.ends = [*self.ends[1 - REMEMBERED :], End(best, u, prices, program.core(margins, u))]
        return best

    def _program(self, penalties: Array, start: Votes | None) -> Program:
        """The program of the first round: what the nearest solutions before came down to, and ``start``."""
        near = sorted(self.ends, key=lambda end: end.gap_under(penalties))[:NEAREST]
        program = Program(self.problem, penalties, near[0].core if near else None)
        likely = [(end.core.kernel, end.core.point) for end in near[1:]]
        if start is not None:
            likely.append((start.kernel, start.point))
        if likely:
            kernels, points = zip(*likely, strict=True)
            program.add_new(np.concatenate(kernels), np.concatenate(points))
        if near:
            # What the nearest solution would pay under these penalties tells who is going to join.
            program.price_in(np.abs(near[0].prices) / penalties[:, None])
        return program


def _better(best: Solution, votes: Votes, objective: float, u: Array, bound: float) -> Solution:
    """The best of each kind: neither value is monotone over the rounds, but each remains true."""
    if objective <= best.objective:
        return dataclasses.replace(best, votes=votes, objective=objective, u=u, bound=max(bound, best.bound))
    return dataclasses.replace(best, bound=max(bound, best.bound))
