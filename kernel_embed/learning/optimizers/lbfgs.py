"""Full batches: scipy's L-BFGS-B, with restarts, on the parameters as one vector.

scipy does not expose the state of a search. A checkpoint therefore records every value and gradient. On resumption they
are replayed without evaluations, so that the search takes the same path and then continues.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import NamedTuple, TypedDict, cast

import numpy as np
import torch
from torch import Tensor

from ...runtime import ProgressBar
from ...validation import check_at_least, check_count
from ..parameters import Vector
from ..problem import NO_VALUE, Optimizer, Problem
from ..result import Outcome, StopEarly

MAX_RECORDED = 2_000_000
"""Numbers that a checkpoint keeps of one start. A longer search resumes at its best point, and may take another way."""


@dataclasses.dataclass(frozen=True)
class LBFGS(Optimizer):
    """L-BFGS-B on all rows at once, from the current parameters and from further, noisy starts.

    Args:
        max_evaluations: a limit for each start, counted over resumptions.
        tolerance: it stops when the relative decrease of the objective is below ``1e-2 * tolerance`` or every entry of
            the gradient is below ``tolerance``.
        num_restarts: further starts.
        restart_spread: scale of the Gaussian noise that a restart adds to the raw parameters.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if ``max_evaluations`` is below 1, or another setting negative.

    Example:
        >>> LBFGS(num_restarts=2)
        LBFGS(max_evaluations=200, tolerance=1e-05, num_restarts=2, restart_spread=1.0)
    """

    max_evaluations: int = 200
    tolerance: float = 1e-5
    num_restarts: int = 0
    restart_spread: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(1, max_evaluations=self.max_evaluations)
        check_at_least(0, tolerance=self.tolerance, restart_spread=self.restart_spread)
        check_count("num_restarts", self.num_restarts, 0)

    def minimize(self, problem: Problem) -> Outcome:
        """Descend from every start; the outcome is that of the best one."""
        starts = self._starts(problem)
        saved = cast("_State | None", problem.saved_state or None)
        first = 0 if saved is None else saved["start"]
        again: list[_Evaluated] = []
        evaluated = None if saved is None else saved.get("evaluated")
        if evaluated is not None:
            again = _Evaluated.read(evaluated)
        elif problem.history and first < len(starts):
            starts[first] = problem.best_point if saved is None else saved["point"].numpy()
        made = 0 if saved is None or again else saved["evaluations"]
        outcome = None
        with problem.progress_bar(self.max_evaluations * len(starts)) as bar:
            for number in range(first, len(starts)):
                before = problem.best_value
                earlier = (made, again) if number == first else (0, [])
                result = _Descent(self, problem, number, bar, *earlier).run(starts[number])
                if outcome is None or problem.best_value < before:
                    outcome = result
        return outcome or Outcome(False, f"nothing left to do: the checkpoint holds start {first} already")

    def _starts(self, problem: Problem) -> list[Vector]:
        start = problem.start
        noise = [problem.generator.standard_normal(start.shape) for _ in range(self.num_restarts)]
        return [start, *(np.maximum(start + self.restart_spread * z, problem.lowest) for z in noise)]


class _State(TypedDict):
    """The state of the current start in a checkpoint: its number, evaluations, best point, and recorded values."""

    start: int
    evaluations: int
    point: Tensor
    evaluated: Tensor | None


class _Evaluated(NamedTuple):
    """A point with its recorded value and gradient."""

    point: Vector
    value: float
    gradient: Vector

    @staticmethod
    def read(rows: Tensor) -> list[_Evaluated]:
        """From rows of :meth:`row`."""
        d = (rows.shape[-1] - 1) // 2
        return [_Evaluated(row[:d], float(row[d]), row[d + 1 :]) for row in rows.numpy()]

    def row(self) -> Vector:
        """Point, value and gradient as one vector."""
        return np.concatenate([self.point, [self.value], self.gradient])


class _EnoughError(Exception):
    """The evaluations of one start are used up."""


class _OutsideError(Exception):
    """The search left the default bounds."""


class _Descent:
    """One start: counts its evaluations, and makes the line search step back where the objective does not exist.

    ``again`` has the values recorded before an interruption, which are replayed.
    """

    def __init__(
        self, settings: LBFGS, problem: Problem, number: int, bar: ProgressBar, made: int, again: list[_Evaluated]
    ) -> None:
        self._settings, self._problem, self._number, self._bar, self._made = settings, problem, number, bar, made
        self._again: Iterator[_Evaluated] = iter(again)
        self._recorded: list[Vector] | None = [] if made == 0 else None
        self._lowest: _Evaluated | None = None

    def run(self, point: Vector) -> Outcome:
        """Descend from ``point``."""
        from scipy.optimize import minimize

        limit, tolerance = self._settings.max_evaluations, self._settings.tolerance
        options = {"maxfun": limit, "maxiter": limit, "ftol": 1e-2 * tolerance, "gtol": tolerance}
        # Without the default bounds as long as they are not reached: scipy takes other steps inside bounds, too.
        self._is_bounded, bounds = False, self._problem.constraint_bounds
        while True:
            try:
                result = minimize(self._evaluate, point, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            except _EnoughError:
                return Outcome(False, f"stop: made all {limit} evaluations")
            except StopEarly as stop:
                return Outcome(True, str(stop))
            except _OutsideError:
                self._is_bounded, bounds = True, self._problem.bounds
                point = point if self._lowest is None else self._lowest.point
                continue
            lowest = self._lowest
            if lowest is None or lowest.value >= result.fun - tolerance * max(1.0, abs(lowest.value)):
                return Outcome(bool(result.success), str(result.message).lower())
            # The line search has stepped over a lower point: continue from there.
            point = lowest.point

    def _evaluate(self, point: Vector) -> tuple[float, Vector]:
        if self._made >= self._settings.max_evaluations:
            raise _EnoughError  # scipy checks its own limit only between line searches
        if not self._is_bounded and bool((point < self._problem.lowest).any()):
            raise _OutsideError
        self._made += 1
        self._bar.update()
        earlier = next(self._again, None)
        if earlier is not None and np.array_equal(earlier.point, point):
            self._remember(earlier)
            return earlier.value, earlier.gradient.copy()
        self._again = iter(())  # no further replay, also if another machine rounds differently
        problem = self._problem
        try:
            evaluation = problem.evaluate(point)
        except NO_VALUE:
            if not problem.history:
                raise
            # Such a point is reported to the line search as high and flat.
            evaluated = _Evaluated(
                point, problem.best_value + 10.0 * abs(problem.best_value) + 10.0, np.zeros_like(point)
            )
            self._remember(evaluated, exists=False)
            return evaluated.value, evaluated.gradient
        self._remember(_Evaluated(point.copy(), evaluation.value, evaluation.gradient.copy()))
        problem.record(evaluation, start=self._number, state=self._state)
        self._bar.set_postfix_str(f"{problem.best_value:.4f}", refresh=False)
        return evaluation.value, evaluation.gradient

    def _remember(self, evaluated: _Evaluated, exists: bool = True) -> None:
        if exists and (self._lowest is None or evaluated.value < self._lowest.value):
            self._lowest = evaluated
        if self._recorded is not None:
            self._recorded.append(evaluated.row())
            if len(self._recorded) * self._recorded[-1].size > MAX_RECORDED:
                self._recorded = None

    def _state(self) -> _State:
        assert self._lowest is not None
        return {
            "start": self._number,
            "evaluations": self._made,
            "point": torch.as_tensor(self._lowest.point, device="cpu"),
            "evaluated": None if self._recorded is None else torch.as_tensor(np.stack(self._recorded), device="cpu"),
        }
