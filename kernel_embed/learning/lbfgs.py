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
from torch import Tensor

from ..runtime import ProgressBar
from ..validation import check_at_least, check_count
from .parameters import Vector
from .problem import NO_VALUE, Problem
from .result import Evaluation, Optimizer, Outcome, StopEarly

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
        start, outcome = problem.start, None
        noise = [problem.generator.standard_normal(start.shape) for _ in range(self.num_restarts)]
        starts = [start, *(np.maximum(start + self.restart_spread * z, problem.lowest) for z in noise)]
        saved: Any = problem.saved_state
        first, again = saved.get("start", 0), _read(saved.get("evaluated"))
        if not again and problem.history and first < len(starts):
            starts[first] = saved["point"].numpy() if saved else problem.best_point
        made = 0 if again else saved.get("evaluations", 0)
        with problem.progress_bar(self.max_evaluations * len(starts)) as bar:
            for number in range(first, len(starts)):
                before = problem.best_value
                earlier = (made, again) if number == first else (0, [])
                result = _Descent(self, problem, number, bar, *earlier).run(starts[number])
                if outcome is None or problem.best_value < before:
                    outcome = result
        return outcome or Outcome(False, f"nothing left to do: the checkpoint holds start {first} already")


def _read(rows: Tensor | None) -> list[Evaluation]:
    """What a checkpoint recorded of a start, one row of point, value and gradient for each evaluation."""
    if rows is None:
        return []
    d = (rows.shape[-1] - 1) // 2
    return [Evaluation(row[:d], float(row[d]), {}, row[d + 1 :]) for row in rows.numpy()]


class _EnoughError(Exception):
    """The evaluations of one start are used up."""


class _OutsideError(Exception):
    """The search left the default bounds."""


class _Descent:
    """One start: counts its evaluations, and makes the line search step back where the objective does not exist.

    ``again`` has the values recorded before an interruption, which are replayed.
    """

    def __init__(
        self, settings: LBFGS, problem: Problem, number: int, bar: ProgressBar, made: int, again: list[Evaluation]
    ) -> None:
        self._settings, self._problem, self._number, self._bar, self._made = settings, problem, number, bar, made
        self._again: Iterator[Evaluation] = iter(again)
        self._recorded: list[Vector] | None = [] if made == 0 else None
        self._lowest: Evaluation | None = None

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
            high = problem.best_value + 10.0 * abs(problem.best_value) + 10.0
            evaluation = Evaluation(point, high, {}, np.zeros_like(point))
            self._remember(evaluation, exists=False)
            return evaluation.value, evaluation.gradient
        self._remember(evaluation)
        problem.record(evaluation, start=self._number, state=self._state)
        self._bar.set_postfix_str(f"{problem.best_value:.4f}", refresh=False)
        return evaluation.value, evaluation.gradient.copy()

    def _remember(self, made: Evaluation, exists: bool = True) -> None:
        if exists and (self._lowest is None or made.value < self._lowest.value):
            self._lowest = made
        if self._recorded is not None:
            self._recorded.append(np.concatenate([made.point, [made.value], made.gradient]))
            if len(self._recorded) * self._recorded[-1].size > MAX_RECORDED:
                self._recorded = None

    def _state(self) -> dict[str, object]:
        """The number of the start, its evaluations, best point, and recorded values, for a checkpoint."""
        assert self._lowest is not None
        return {
            "start": self._number,
            "evaluations": self._made,
            "point": torch.as_tensor(self._lowest.point, device="cpu"),
            "evaluated": None if self._recorded is None else torch.as_tensor(np.stack(self._recorded), device="cpu"),
        }
