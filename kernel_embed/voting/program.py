r"""The restricted linear program of column generation, solved by the simplex method of HiGHS.

.. math::  \max_v \frac1m \sum_i v_i \quad\text{s.t.}\quad 0 \le v_i \le 1, \quad
           \Big|\frac{h_{k,j}^\top v}{m \Lambda_k}\Big| \le 1 \quad\text{for the base functions added so far.}

- Scaling. Rows reach :math:`10^{15}` for a polynomial of degree ten. With :math:`v = mu \in [0, 1]` and rows divided by
  their penalty, the solver's tolerance is relative to the penalty, and a new penalty starts from the old basis.
- Dropped points. Most points are beyond their margin, with :math:`v_i = 0`. A point with a margin above 2 has no column
  until its margin falls below 1. All variables are boxed, so any basis is dual feasible at the right bounds.
- Diversity. Neighboring points and degrees give nearly parallel functions. Of those whose cosine exceeds 0.99 only the
  most violated is added in one round.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .families import Array
from .problem import VoteProblem, Votes

if TYPE_CHECKING:  # import kernel_embed does not load HiGHS
    import highspy

Integers = NDArray[np.int64]

BATCH = 50  # rows added in one round; measured best between 25 and 100
POOL = 100  # the most violated rows, from which the batch is selected
COSINE = 0.99  # candidates more parallel than this are left for the next round
EXCESS_MARGIN = 1.0  # a point whose margin exceeds 1 by this much is dropped
MAX_ENTRY = 1e4  # rows with larger entries are scaled down with their bound, which would be lost to rounding
MAX_ITERATIONS = 5
"""Simplex iterations per row and column; regular programs took three at most. The simplex method can cycle on rows
whose entries differ by more orders of magnitude than a double has."""

OPTIONS = {
    "output_flag": False,
    "threads": 1,
    "solver": "simplex",
    "simplex_scale_strategy": 0,  # the rows are scaled already
    "presolve": "off",  # it would lose the basis, and finds nothing in dense rows
}

TOLERANCES = (1e-10, 1e-10, 1e-8)
"""Feasibility tolerances of HiGHS: the tightest it accepts, the same without a basis, and one for rows as parallel as
those of two wide Gaussians. The gap does not depend on them. If all three fail, the solve ends with its last point."""


class WarmStart(NamedTuple):
    """The tight rows of a solved program, its active points, and the basis over both."""

    rows: Integers
    active: Integers
    basis: highspy.HighsBasis | None


class Program:
    """The program of the base functions ``rows``, numbered k·n + j, and the points ``active``, for penalties Λ_k."""

    def __init__(self, problem: VoteProblem, penalties: Array, start: WarmStart | None) -> None:
        import highspy

        self.problem, self.penalties = problem, penalties
        self.width = problem.grams[0].shape[1]
        self.rows = np.zeros(0, dtype=np.int64)
        self.active = np.arange(problem.m) if start is None else start.active
        self.failed = False
        self._scale = np.zeros(0)
        self._has_row = np.zeros(len(problem.grams) * self.width, dtype=bool)
        self._restored = np.zeros(problem.m, dtype=bool)
        self._highs = highspy.Highs()
        for option, value in OPTIONS.items():
            self._highs.setOptionValue(option, value)
        n = len(self.active)
        self._highs.addVars(n, np.zeros(n), np.ones(n))
        self._highs.changeColsCost(n, np.arange(n, dtype=np.int32), np.full(n, -1.0 / problem.m))
        if start is not None and start.basis is not None:
            self.add(start.rows)
            self._highs.setBasis(start.basis)

    def _functions(self, rows: Integers, at: Integers | None = None) -> Array:
        return self.problem.columns(*np.divmod(rows, self.width), at)

    def add(self, rows: Integers) -> None:
        """Add those of these rows that are not in the program."""
        rows = rows[~self._has_row[rows]]
        if not len(rows):
            return
        scale = self.problem.m * self.penalties[rows // self.width]
        values = self._functions(rows) / scale[:, None]
        excess = np.maximum(np.abs(values).max(axis=1) / MAX_ENTRY, 1.0)
        values = values[:, self.active] / excess[:, None]
        self._highs.addRows(len(rows), -1.0 / excess, 1.0 / excess, *_sparse(values))
        self.rows = np.concatenate([self.rows, rows])
        self._scale = np.concatenate([self._scale, scale * excess])
        self._has_row[rows] = True

    def add_violated(self, violations: Array) -> bool:
        """Add the most violated rows; false if no row outside the program is violated."""
        violations = np.where(self._has_row, 0.0, violations.ravel())
        candidates = np.flatnonzero(violations > 1.0 + 1e-9)
        if not len(candidates):
            return False
        if len(candidates) > POOL:
            candidates = candidates[np.argpartition(-violations[candidates], POOL)[:POOL]]
        candidates = candidates[np.argsort(-violations[candidates], kind="stable")]
        self.add(candidates[_diverse(self._functions(candidates))])
        return True

    def restore_points(self, margins: Array) -> bool:
        """Add the columns of dropped points with a margin below 1; false if there is none."""
        is_dropped = np.ones(self.problem.m, dtype=bool)
        is_dropped[self.active] = False
        points = np.flatnonzero(is_dropped & (margins < 1.0 - 1e-9))
        if not len(points):
            return False
        columns = self._functions(self.rows, points) / self._scale[:, None]
        n = len(points)
        self._highs.addCols(n, np.full(n, -1.0 / self.problem.m), np.zeros(n), np.ones(n), *_sparse(columns.T))
        self.active = np.concatenate([self.active, points])
        self._restored[points] = True  # never dropped again, so that the two steps cannot cycle
        return True

    def drop_points(self, margins: Array, u: Array) -> None:
        """Remove the columns of points with a margin above 2 if that halves the linear program."""
        needed = _needed(margins, u) | self._restored
        if 2 * needed[self.active].sum() > len(self.active):
            return
        basis = self._highs.getBasis()
        keep = needed[self.active] | _in_basis(basis.col_status)
        basis.col_status = list(itertools.compress(basis.col_status, keep))
        columns = np.flatnonzero(~keep).astype(np.int32)
        self._highs.deleteCols(len(columns), columns)
        self._highs.setBasis(basis)
        self.active = self.active[keep]

    def run(self) -> tuple[Votes, Array]:
        """Solve: the multipliers of the rows, which are the coefficients α, and u."""
        from highspy import HighsModelStatus

        m = self.problem.m
        if not len(self.rows):
            return Votes.none(), np.full(m, 1.0 / m)
        self._highs.setOptionValue("simplex_iteration_limit", MAX_ITERATIONS * (m + len(self.rows)))
        for attempt, tolerance in enumerate(TOLERANCES):
            if attempt:
                self._highs.clearSolver()  # the basis may be singular: start without one
            self._highs.setOptionValue("primal_feasibility_tolerance", tolerance)
            self._highs.setOptionValue("dual_feasibility_tolerance", tolerance)
            self._highs.run()
            self.failed = self._highs.getModelStatus() != HighsModelStatus.kOptimal
            if not self.failed:
                break
        solution = self._highs.getSolution()
        u = np.zeros(m)
        u[self.active] = np.clip(np.array(solution.col_value), 0.0, 1.0) / m
        weight = -m * np.array(solution.row_dual) / self._scale
        voting = np.flatnonzero(weight)
        return Votes(*np.divmod(self.rows[voting], self.width), weight[voting]), u

    def warm_start(self, margins: Array, u: Array) -> WarmStart:
        """The tight rows and the needed points, with the basis over them."""
        if not len(self.rows):
            return WarmStart(self.rows, self.active, None)
        basis = self._highs.getBasis()
        tight = ~_in_basis(basis.row_status)
        keep = _needed(margins, u)[self.active] | _in_basis(basis.col_status)
        basis.row_status = list(itertools.compress(basis.row_status, tight))
        basis.col_status = list(itertools.compress(basis.col_status, keep))
        return WarmStart(self.rows[tight], self.active[keep], basis)


def _needed(margins: Array, u: Array) -> NDArray[np.bool_]:
    """The points that must not be dropped."""
    return np.asarray((margins < 1.0 + EXCESS_MARGIN) | (u > 0))


def _in_basis(statuses: list[highspy.HighsBasisStatus]) -> NDArray[np.bool_]:
    from highspy import HighsBasisStatus

    return np.array([status == HighsBasisStatus.kBasic for status in statuses], dtype=bool)


def _sparse(rows: Array) -> tuple[int, NDArray[np.int32], NDArray[np.int32], Array]:
    """Dense rows in the sparse format of HiGHS: number of entries, row starts, column numbers, values."""
    n, m = rows.shape
    return n * m, np.arange(0, n * m, m, dtype=np.int32), np.tile(np.arange(m, dtype=np.int32), n), rows.ravel()


def _diverse(h: Array) -> Integers:
    """The first ``BATCH`` rows, ordered by violation, that are not nearly parallel to an earlier one."""
    unit = (h / np.maximum(np.linalg.norm(h, axis=1, keepdims=True), np.finfo(float).tiny)).astype(np.float32)
    parallel = np.abs(unit @ unit.T) > COSINE
    batch: list[int] = []
    for t in range(len(h)):
        if len(batch) < BATCH and not parallel[t, batch].any():
            batch.append(t)
    return np.array(batch, dtype=np.int64)
