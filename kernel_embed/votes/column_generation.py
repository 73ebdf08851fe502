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

import numpy as np
from numpy.typing import NDArray

from .families import Array
from .problem import Solution, VoteProblem, Votes, check_penalties
from .program import Core, Program

NEAREST = 3
"""Earlier solutions that start a new one: the basis of the nearest, and the tight rows of all."""

REMEMBERED = 100
"""Solutions that are kept for that."""


@dataclasses.dataclass(frozen=True)
class _End:
    """Where one solve ended: its solution, the last u with h_{k,j}ᵀu, and what its program came down to."""

    solution: Solution
    u: Array
    prices: Array
    core: Core

    def gap_under(self, penalties: Array) -> float:
        """The gap of this α and this u at other penalties: how near their optimum is."""
        votes, old = self.solution.votes, self.solution.penalties
        objective = self.solution.objective + (penalties - old)[votes.kernel] @ np.abs(votes.weight)
        return float(objective - _dual_bound(self.u, np.abs(self.prices) / penalties[:, None]))


def _dual_bound(u: Array, violations: Array) -> float:
    """Σ u_i after u is scaled into the feasible set; violations are |h_{k,j}ᵀu| / Λ_k."""
    return float(u.sum() / max(1.0, float(violations.max())))


class ColumnGeneration:
    """Solves one :class:`VoteProblem` for any penalties, each from where the nearest solved ones ended.

    Args:
        problem: the sample.
        tolerance: the gap to reach. F(0) = 1, so it is relative to the vote of nobody.
        max_rounds: how often to price all base functions at most.

    Example:
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> x = rng.normal(size=(40, 2))
        >>> y = np.where(x[:, 0] > 0, 1.0, -1.0)
        >>> solver = ColumnGeneration(VoteProblem([x @ x.T + 1], y))
        >>> solution = solver.solve(np.array([0.01]))
        >>> solution.converged, solution.gap < 1e-8, len(solution.votes) < 10
        (True, True, True)
    """

    def __init__(self, problem: VoteProblem, tolerance: float = 1e-8, max_rounds: int = 1000) -> None:
        self.problem, self.tolerance, self.max_rounds = problem, tolerance, max_rounds
        self._likely: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
        self._ends: list[_End] = []

    def start_from(self, kernel: NDArray[np.int64], point: NDArray[np.int64]) -> None:
        """Begin the next solve with these base functions, those that vote in a similar problem."""
        self._likely = kernel, point

    def solve(self, penalties: Array) -> Solution:
        """The vote for penalties Λ_k, one per kernel."""
        penalties = check_penalties(penalties, len(self.problem.grams))
        near = sorted(self._ends, key=lambda end: end.gap_under(penalties))[:NEAREST]
        program = Program(self.problem, penalties, near[0].core if near else None)
        likely = [(end.core.kernel, end.core.point) for end in near[1:]]
        if self._likely is not None:
            likely.append(self._likely)
            self._likely = None
        if likely:
            kernels, points = zip(*likely, strict=True)
            program.add_new(np.concatenate(kernels), np.concatenate(points))
        if near:
            # What the nearest solution would pay under these penalties tells who is going to join.
            program.price_in(np.abs(near[0].prices) / penalties[:, None])
        # Nobody's vote is one to fall back on: rows beyond double precision can end in coefficients that are far worse.
        best = Solution(Votes.none(), penalties, 1.0, 0.0, np.full(self.problem.m, 1.0 / self.problem.m), 0, False)
        for num_rounds in range(1, self.max_rounds + 1):
            votes, u = program.run()
            prices = np.stack(self.problem.prices(u))
            violations = np.abs(prices) / penalties[:, None]
            bound = _dual_bound(u, violations)
            margins = self.problem.margins(votes)
            objective = self.problem.objective(votes, penalties, margins)
            # Neither value is monotone over the rounds, but the best of each kind remains true.
            if objective <= best.objective:
                best = Solution(votes, penalties, objective, max(bound, best.bound), u, num_rounds, False)
            elif bound > best.bound:
                best = Solution(best.votes, penalties, best.objective, bound, best.u, num_rounds, False)
            converged = best.gap <= self.tolerance
            if converged or program.failed:
                break
            returned, joined = program.call_back(margins), program.price_in(violations)
            if not (returned or joined):
                break
            program.send_away(margins, u)
        solution = Solution(best.votes, penalties, best.objective, best.bound, best.u, num_rounds, converged)
        self._ends = [*self._ends[1 - REMEMBERED :], _End(solution, u, prices, program.core(margins, u))]
        return solution
