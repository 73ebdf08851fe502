"""Full batches: scipy's L-BFGS-B, with restarts, on the parameters as one vector.

scipy does not expose the state of a search. A checkpoint therefore records every value and gradient. On resumption they
are replayed without evaluations, so that the search takes the same path and then continues.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ..runtime import ProgressBar
from ..validation import check_at_least, check_count
from .parameters import Vector
from .problem import NO_VALUE, Problem
from .result import Evaluation, Optimizer, Outcome, StopEarly

MAX_RECORDED = 2_000_000  # numbers that a checkpoint keeps of one start; a longer search resumes at its best point


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
        start, outcome = problem.start, None
        noise = [problem.generator.standard_normal(start.shape) for _ in range(self.num_restarts)]
        starts = [start, *(np.maximum(start + self.restart_spread * z, problem.lowest) for z in noise)]
        saved: Any = problem.saved_state
        first, rows = saved.get("start", 0), saved.get("evaluated")
        if rows is None and problem.history and first < len(starts):
            starts[first] = saved["point"].numpy() if saved else problem.best_point
        with problem.progress_bar(self.max_evaluations * len(starts)) as bar:
            for number in range(first, len(starts)):
                before, descent = problem.best_value, _Descent(self, problem, number, bar)
                if number == first and rows is not None:
                    d = len(start)
                    descent.replayed = iter([Evaluation(r[:d], float(r[d]), {}, r[d + 1 :]) for r in rows.numpy()])
                elif number == first and saved.get("evaluations"):
                    descent.num_made, descent.recorded = saved["evaluations"], None
                result = descent.run(starts[number])
                if outcome is None or problem.best_value < before:
                    outcome = result
        return outcome or Outcome(False, f"nothing left to do: the checkpoint holds start {first} already")


class _EnoughError(Exception):
    """The evaluations of one start are used up."""


class _OutsideError(Exception):
    """The search left the default bounds."""


class _Descent:
    """One start: counts its evaluations, and makes the line search step back where the objective does not exist."""

    def __init__(self, settings: LBFGS, problem: Problem, number: int, bar: ProgressBar) -> None:
        self.settings, self.problem, self.number, self.bar = settings, problem, number, bar
        self.num_made, self.is_bounded = 0, False
        self.replayed: Iterator[Evaluation] = iter(())
        """The evaluations before an interruption."""
        self.recorded: list[Vector] | None = []
        self.lowest: Evaluation | None = None

    def run(self, point: Vector) -> Outcome:
        """Descend from ``point``."""
        from scipy.optimize import minimize

        limit, tolerance = self.settings.max_evaluations, self.settings.tolerance
        options = {"maxfun": limit, "maxiter": limit, "ftol": 1e-2 * tolerance, "gtol": tolerance}
        # The default bounds are added once they are reached: bounds change the steps of scipy even inside them.
        bounds = self.problem.constraint_bounds
        while True:
            try:
                result = minimize(self._evaluate, point, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            except _EnoughError:
                return Outcome(False, f"stop: made all {limit} evaluations")
            except StopEarly as stop:
                return Outcome(True, str(stop))
            except _OutsideError:
                self.is_bounded, bounds = True, self.problem.bounds
                point = point if self.lowest is None else self.lowest.point
                continue
            lowest = self.lowest
            if lowest is None or lowest.value >= result.fun - tolerance * max(1.0, abs(lowest.value)):
                return Outcome(bool(result.success), str(result.message).lower())
            # The line search has stepped over a lower point: continue from there.
            point = lowest.point

    def _evaluate(self, point: Vector) -> tuple[float, Vector]:
        problem = self.problem
        if self.num_made >= self.settings.max_evaluations:
            raise _EnoughError  # scipy checks its own limit only between line searches
        if not self.is_bounded and bool((point < problem.lowest).any()):
            raise _OutsideError
        self.num_made += 1
        self.bar.update()
        made, exists = next(self.replayed, None), True
        is_new = made is None or not np.array_equal(made.point, point)
        if made is None or is_new:
            self.replayed = iter(())  # no further replay, also if another machine rounds differently
            try:
                made = problem.evaluate(point)
            except NO_VALUE:
                if not problem.history:
                    raise
                # Such a point is reported to the line search as high and flat.
                high = problem.best_value + 10.0 * abs(problem.best_value) + 10.0
                made, exists = Evaluation(point, high, {}, np.zeros_like(point)), False
        if exists and (self.lowest is None or made.value < self.lowest.value):
            self.lowest = made
        if self.recorded is not None:
            self.recorded.append(np.concatenate([made.point, [made.value], made.gradient]))
            if len(self.recorded) * self.recorded[-1].size > MAX_RECORDED:
                self.recorded = None
        if is_new and exists:
            problem.record(made, start=self.number, state=self._state)
            self.bar.set_postfix_str(f"{problem.best_value:.4f}", refresh=False)
        return made.value, made.gradient.copy()

    def _state(self) -> dict[str, object]:
        """The number of the start, its evaluations, best point, and recorded values, for a checkpoint."""
        assert self.lowest is not None
        return {
            "start": self.number,
            "evaluations": self.num_made,
            "point": torch.as_tensor(self.lowest.point, device="cpu"),
            "evaluated": None if self.recorded is None else torch.as_tensor(np.stack(self.recorded), device="cpu"),
        }
