"""What solves a vote: one contract, so that anybody's solver serves wherever ours do."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterable

from ..validation import check_count, check_number
from .families import Array
from .problem import Solution, VoteProblem, Votes

TOLERANCE = 1e-7
"""The gap that is asked for by default; F(0) = 1, so it is relative to the objective without votes."""


class VoteSolver(abc.ABC):
    """Chooses how eq. (1) is solved, by value: settings only, so that one object serves many problems.

    A subclass supplies :meth:`solve`. Whatever it does inside, its :class:`kernel_embed.voting.Solution` carries both
    values of the certificate, F(α) from above and a dual bound from below.

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
            start: votes in a similar problem, from whose base functions the search may begin.
        """

    def solve_all(
        self, problem: VoteProblem, penalties: Iterable[Array], *, tolerance: float = TOLERANCE
    ) -> list[Solution]:
        """The votes for several penalties in turn; a solver that learns from one for the next does so here."""
        return [self.solve(problem, each, tolerance=tolerance) for each in penalties]


def check_max_rounds(max_rounds: int) -> None:
    """Raise unless a solver may price all base functions at least once."""
    check_count("max_rounds", max_rounds)


def check_tolerance(tolerance: float) -> None:
    """Raise unless ``tolerance`` is a gap that can be reached: in floating point no search ends at exactly 0."""
    if not 0.0 < check_number("tolerance", tolerance) < math.inf:
        raise ValueError(
            f"Expected a positive, finite tolerance, got {tolerance!r}. Take the gap that is small enough, such as "
            f"{TOLERANCE:g}."
        )
