"""Full batches: scipy's L-BFGS-B, with restarts, on the parameters as one vector."""

from __future__ import annotations

import numpy as np
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.optimize import minimize
from torch import Tensor

from ...kernels import DiagonalBoundError
from ...progress import progress_bar
from ..parameters import Vector
from ..state import Search


def lbfgs(
    search: Search,
    x: Tensor,
    y: Tensor | None,
    max_evaluations: int,
    tolerance: float,
    num_restarts: int,
    spread: float,
    generator: np.random.Generator,
    progress: bool | None,
) -> None:
    """Minimise over all rows at once, from the parameters as they are and from ``num_restarts`` noisy starts."""
    origin = search.origin
    starts = [origin] + [origin + spread * generator.standard_normal(origin.shape) for _ in range(num_restarts)]
    bounds = search.vector.bounds()
    left = max_evaluations
    with progress_bar(max_evaluations * len(starts), "fit", progress) as bar:

        def evaluate(point: Vector) -> tuple[float, Vector]:
            nonlocal left
            if left == 0:
                raise _EnoughError  # scipy looks at its own limit only between line searches
            left -= 1
            search.vector.set(point)
            search.vector.clear_gradient()
            search.num_evaluations += 1
            bar.update()
            first = not any(record["start"] == search.start for record in search.history)
            try:
                loss, terms = search.loss(x, y)
                search.backward(loss)
            except (NotPSDError, NanError, DiagonalBoundError):
                if first and search.start == 0:
                    raise
                return _refusal(search)
            gradient = search.vector.gradient()
            if not (np.isfinite(loss.item()) and np.isfinite(gradient).all()):
                if first and search.start == 0:
                    raise NanError(
                        f"Expected a finite objective and gradient at the starting parameters, got {loss.item()}. "
                        "Start from lengthscales near the distances in x, or scale the features."
                    )
                return _refusal(search)
            search.record(loss.item(), terms, point)
            bar.set_postfix_str(f"{search.best_value:.4f}", refresh=False)
            return loss.item(), gradient

        first_start = search.start
        for start in range(first_start, len(starts)):
            search.start = start
            resumed = bool(search.history) and search.history[-1]["start"] == start
            point = search.best if resumed else starts[start]
            options = {
                "maxfun": max_evaluations,
                "maxiter": max_evaluations,
                "ftol": 1e-2 * tolerance,
                "gtol": tolerance,
            }
            best_before, left = search.best_value, max_evaluations
            try:
                answer = minimize(evaluate, point, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
                converged, message = bool(answer.success), str(answer.message).lower()
            except _EnoughError:
                converged, message = False, f"stop: made all {max_evaluations} evaluations"
            if start == first_start or search.best_value < best_before:
                search.converged, search.message = converged, message


class _EnoughError(Exception):
    """The evaluations of one start are used up."""


def _refusal(search: Search) -> tuple[float, Vector]:
    """What the line search is told of a point where the objective does not exist: high, and no slope."""
    return search.best_value + 10.0 * abs(search.best_value) + 10.0, np.zeros_like(search.best)
