r"""The linear program of column generation: a few rows, a few points, and the simplex method of HiGHS.

.. math::  \max_v \frac1m \sum_i v_i \quad\text{s.t.}\quad 0 \le v_i \le 1, \quad
           \Big|\frac{h_{k,j}^\top v}{m \Lambda_k}\Big| \le 1 \quad\text{for the base functions that have joined.}

Three things keep it fast and exact.

- Scale. Rows reach :math:`10^{15}` for a polynomial of degree ten. In :math:`v = mu \in [0, 1]` and divided by their
  penalty the solver's tolerance is relative to the penalty, whatever its size. Scaling rows keeps a basis a basis, so a
  new penalty starts from the old solution.
- Size. At the optimum as many points lie strictly inside the box as there are votes; most are beyond their margin, with
  :math:`v_i = 0`. A point whose margin is twice what it needs sits out, without a column, and is called back when its
  margin falls below 1. All variables are boxed, so any basis is dual feasible at the right bounds, whatever joins.
- Variety. Neighboring points and degrees give nearly parallel functions. Of those whose cosine exceeds 0.99 only the
  most violated joins in one round.
"""

from __future__ import annotations

import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from .families import Array
from .problem import VoteProblem, Votes

if TYPE_CHECKING:  # HiGHS is loaded by the first program, not by everybody who imports the package
    import highspy

BATCH = 50
"""Rows that join in one round; measured best between 25 and 100."""

POOL = 100
"""The most violated rows, of which the batch is chosen."""

COSINE = 0.99
"""Candidates more parallel than this wait for the next round."""

BEYOND = 1.0
"""A point whose margin exceeds 1 by this much sits out."""

LARGEST = 1e4
"""Entries of a row at most: a row of larger ones is scaled down together with its bound."""

ITERATIONS = 5
"""Simplex iterations for each row and column; a healthy program was seen to take three at most. Rows whose entries
differ by more orders of magnitude than a double has can send the simplex method in circles."""

OPTIONS = {
    "threads": 1,
    "solver": "simplex",
    "simplex_scale_strategy": 0,  # the rows are scaled already
    "presolve": "off",  # it would lose the basis, and finds nothing in dense rows
}

TOLERANCES = (1e-10, 1e-10, 1e-8)
"""Feasibility asked of HiGHS: the tightest it accepts, the same from nothing, and one that rows as parallel as those of
two wide Gaussians can meet. The certificate does not believe any of them. A program that none of the three brings to
its optimum ends the solve, and the certificate says how good its last point is."""


@dataclasses.dataclass(frozen=True)
class Core:
    """The rows of a program that are at their bounds, the points that do not sit out, and the basis over both."""

    kernel: NDArray[np.int64]
    point: NDArray[np.int64]
    active: NDArray[np.int64]
    basis: highspy.HighsBasis | None


class Program:
    """The rows ``kernel``, ``point`` and the columns ``active`` of the program for penalties Λ_k.

    Args:
        problem: the sample.
        penalties: Λ_k, one per kernel.
        core: what a program with other penalties came down to; all points and no row by default.
    """

    def __init__(self, problem: VoteProblem, penalties: Array, core: Core | None) -> None:
        import highspy

        m = problem.m
        self.problem, self.penalties = problem, penalties
        self.kernel = np.zeros(0, dtype=np.int64)
        self.point = np.zeros(0, dtype=np.int64)
        self.active = np.arange(m) if core is None else core.active
        self.failed = False
        self._scale = np.zeros(0)
        self._inside = np.zeros((len(problem.grams), problem.grams[0].shape[1]), dtype=bool)
        self._stays = np.zeros(m, dtype=bool)
        self._highs = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        for option, value in OPTIONS.items():
            self._highs.setOptionValue(option, value)
        n = len(self.active)
        self._highs.addVars(n, np.zeros(n), np.ones(n))
        self._highs.changeColsCost(n, np.arange(n, dtype=np.int32), np.full(n, -1.0 / m))
        if core is not None and core.basis is not None:
            self.add(core.kernel, core.point)
            self._highs.setBasis(core.basis)

    def add(self, kernel: NDArray[np.int64], point: NDArray[np.int64]) -> None:
        """Let the rows of these base functions join."""
        scale = self.problem.m * self.penalties[kernel]
        rows = self.problem.columns(kernel, point) / scale[:, None]
        # Rows beyond this size drown the bound 1 in rounding; they are scaled to it, bound and all.
        excess = np.maximum(np.abs(rows).max(axis=1) / LARGEST, 1.0)
        rows = rows[:, self.active] / excess[:, None]
        self._highs.addRows(len(rows), -1.0 / excess, 1.0 / excess, *_sparse(rows))
        self.kernel = np.concatenate([self.kernel, kernel])
        self.point = np.concatenate([self.point, point])
        self._scale = np.concatenate([self._scale, scale * excess])
        self._inside[kernel, point] = True

    def call_back(self, margins: Array) -> bool:
        """Let the points return that sit out with a margin below 1; false when there is none."""
        out = np.ones(self.problem.m, dtype=bool)
        out[self.active] = False
        points = np.flatnonzero(out & (margins < 1.0 - 1e-9))
        if not len(points):
            return False
        columns = self.problem.columns(self.kernel, self.point, points) / self._scale[:, None]
        n = len(points)
        self._highs.addCols(n, np.full(n, -1.0 / self.problem.m), np.zeros(n), np.ones(n), *_sparse(columns.T))
        self.active = np.concatenate([self.active, points])
        self._stays[points] = True  # once only, lest the two go on for ever
        return True

    def send_away(self, margins: Array, u: Array) -> None:
        """Let the points beyond their margin sit out, when that halves the program."""
        near = _near(margins, u) | self._stays
        if 2 * near[self.active].sum() > len(self.active):
            return
        basis = self._highs.getBasis()
        kept = near[self.active] | _in_basis(basis.col_status)
        basis.col_status = _chosen(basis.col_status, kept)
        gone = np.flatnonzero(~kept).astype(np.int32)
        self._highs.deleteCols(len(gone), gone)
        self._highs.setBasis(basis)
        self.active = self.active[kept]

    def add_new(self, kernel: NDArray[np.int64], point: NDArray[np.int64]) -> None:
        """Let those of these rows join that are not in the program, each once."""
        width = self._inside.shape[1]
        kernel, point = np.divmod(np.unique(kernel * width + point), width)
        new = ~self._inside[kernel, point]
        if new.any():
            self.add(kernel[new], point[new])

    def price_in(self, violations: Array) -> bool:
        """Let the most violated rows join; false when no row outside the program is violated."""
        outside = np.where(self._inside, 0.0, violations).ravel()
        candidates = np.flatnonzero(outside > 1.0 + 1e-9)
        if not len(candidates):
            return False
        if len(candidates) > POOL:
            candidates = candidates[np.argpartition(-outside[candidates], POOL)[:POOL]]
        candidates = candidates[np.argsort(-outside[candidates], kind="stable")]
        kernel, point = np.divmod(candidates, self._inside.shape[1])
        chosen = _varied(self.problem.columns(kernel, point))
        self.add(kernel[chosen], point[chosen])
        return True

    def run(self) -> tuple[Votes, Array]:
        """Solve: the multipliers of the rows, which are the votes α, and u."""
        from highspy import HighsModelStatus

        if not len(self.kernel):
            return Votes.none(), np.full(self.problem.m, 1.0 / self.problem.m)
        self._highs.setOptionValue("simplex_iteration_limit", ITERATIONS * (self.problem.m + len(self.kernel)))
        for attempt, tolerance in enumerate(TOLERANCES):
            if attempt:
                self._highs.clearSolver()  # a basis gone bad: once more from nothing
            self._highs.setOptionValue("primal_feasibility_tolerance", tolerance)
            self._highs.setOptionValue("dual_feasibility_tolerance", tolerance)
            self._highs.run()
            status = self._highs.getModelStatus()
            if status == HighsModelStatus.kOptimal:
                break
        self.failed = status != HighsModelStatus.kOptimal
        solution = self._highs.getSolution()
        u = np.zeros(self.problem.m)
        u[self.active] = np.clip(np.array(solution.col_value), 0.0, 1.0) / self.problem.m
        weight = -self.problem.m * np.array(solution.row_dual) / self._scale
        voting = np.flatnonzero(weight)
        return Votes(self.kernel[voting], self.point[voting], weight[voting]), u

    def core(self, margins: Array, u: Array) -> Core:
        """What remains without the rows that are not at their bounds and the points that may sit out."""
        if not len(self.kernel):
            return Core(self.kernel, self.point, self.active, None)
        basis = self._highs.getBasis()
        rows, columns = basis.row_status, basis.col_status
        tight = ~_in_basis(rows)
        kept = _near(margins, u)[self.active] | _in_basis(columns)
        basis.row_status, basis.col_status = _chosen(rows, tight), _chosen(columns, kept)
        return Core(self.kernel[tight], self.point[tight], self.active[kept], basis)


def _near(margins: Array, u: Array) -> NDArray[np.bool_]:
    """The points that may not sit out."""
    return np.asarray((margins < 1.0 + BEYOND) | (u > 0))


def _in_basis(statuses: list[highspy.HighsBasisStatus]) -> NDArray[np.bool_]:
    from highspy import HighsBasisStatus

    return np.array([status == HighsBasisStatus.kBasic for status in statuses], dtype=bool)


def _chosen(statuses: list[highspy.HighsBasisStatus], kept: NDArray[np.bool_]) -> list[highspy.HighsBasisStatus]:
    return list(itertools.compress(statuses, kept))


def _sparse(rows: Array) -> tuple[int, NDArray[np.int32], NDArray[np.int32], Array]:
    """Number of entries, where each row starts, their columns and values, as HiGHS takes them."""
    n, m = rows.shape
    return n * m, np.arange(0, n * m, m, dtype=np.int32), np.tile(np.arange(m, dtype=np.int32), n), rows.ravel()


def _varied(h: Array) -> NDArray[np.int64]:
    """Of rows ordered by violation, the first ``BATCH`` that are not nearly parallel to an earlier one."""
    unit = (h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), np.finfo(float).tiny)).astype(np.float32)
    parallel = np.abs(unit @ unit.T) > COSINE
    waiting = np.zeros(len(h), dtype=bool)
    chosen: list[int] = []
    for t in range(len(h)):
        if not waiting[t]:
            chosen.append(t)
            waiting |= parallel[t]
            if len(chosen) == BATCH:
                break
    return np.array(chosen, dtype=np.int64)
