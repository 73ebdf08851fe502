"""The contract of the solvers, and their result: a vote with its duality gap."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Iterable

import numpy as np

from ..validation import check_array, check_number
from .families import Array
from .problem import VoteProblem, Votes

TOLERANCE = 1e-7
"""The default gap; F(0) = 1, so it is relative to the objective without votes."""


@dataclasses.dataclass(frozen=True)
class Solution:
    """A vote with its duality gap.

    Attributes:
        votes: the non-zero coefficients α.
        penalties: Λ_k, one per kernel.
        objective: F(α) of eq. (1), an upper bound of the optimum.
        bound: the value of the feasible dual point, a lower bound.
        u: the dual point before it is scaled into the feasible set, of shape (m,).
        num_rounds: how often the solver priced all base functions.
        converged: whether the gap is within the tolerance.

    Example:
        >>> import numpy as np, kernel_embed as ke
        >>> x = np.random.default_rng(0).normal(size=(30, 2))
        >>> point, = ke.voting.vote_path([lambda x, z: x @ z.T], x, x[:, 0] > 0, lams=[0.01], betas=[0.0])
        >>> point.solution.bound <= point.solution.objective, point.solution.gap < 1e-6
        (True, True)
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
        """The largest possible distance of F from the optimum, objective − bound, never negative."""
        return max(0.0, self.objective - self.bound)


class VoteSolver(abc.ABC):
    """A way of solving eq. (1). A solver holds settings only, so that one object serves many problems.

    A subclass supplies :meth:`solve`. Its :class:`kernel_embed.voting.Solution` carries F(α), an upper bound of the
    optimum, and a dual bound from below.

    Example:
        >>> import kernel_embed as ke
        >>> [issubclass(c, ke.voting.VoteSolver) for c in (ke.voting.ColumnGeneration, ke.voting.CoordinateDescent)]
        [True, True]
    """

    @abc.abstractmethod
    def solve(
        self, problem: VoteProblem, penalties: Array, *, tolerance: float = TOLERANCE, start: Votes | None = None
    ) -> Solution:
        """The vote for penalties Λ_k, one per kernel.

        Args:
            problem: the sample.
            penalties: Λ_k > 0.
            tolerance: the gap to reach between objective and dual bound, above 0.
            start: votes of a similar problem, whose base functions may start the search.
        """

    def solve_all(
        self, problem: VoteProblem, penalties: Iterable[Array], *, tolerance: float = TOLERANCE
    ) -> list[Solution]:
        """The votes for several penalties, in this order; override it to reuse one solution for the next."""
        return [self.solve(problem, each, tolerance=tolerance) for each in penalties]


def check_tolerance(tolerance: float) -> None:
    """Raise unless ``tolerance`` is a gap that can be reached: in floating point no search ends at exactly 0."""
    if not 0.0 < check_number("tolerance", tolerance) < math.inf:
        raise ValueError(f"tolerance must be positive and finite, for example {TOLERANCE:g}; it is {tolerance!r}.")


def check_penalties(penalties: Array, num_kernels: int) -> Array:
    """Λ_k as an array, one positive number per kernel."""
    penalties = check_array(penalties, "penalties")
    if penalties.shape != (num_kernels,):
        raise ValueError(f"penalties must have {num_kernels} numbers, one per kernel; its shape is {penalties.shape}.")
    bad = np.flatnonzero(~(np.isfinite(penalties) & (penalties > 0)))
    if len(bad):
        raise ValueError(
            f"Every penalty Λ_k = λ r_k + β must be positive and finite, or the coefficients of eq. (1) are not "
            f"bounded; it is {penalties[bad[0]]:g} for kernel {bad[0]}. Raise beta, or lam if the complexity is not 0."
        )
    return penalties
