r"""Coordinate descent (Appendix C), for many kernels and for streams of base functions.

Only the non-zero coefficients and their base functions are stored; the others are read in blocks. Each round prices the
stream, adds the coordinates of steepest descent, and moves each coordinate to its minimum by an exact line search.

At the kinks of the hinge two coordinates together may improve where no single one does. So each round descends on the
hinge with its corner rounded around a dual centre :math:`c`,

.. math::  \varphi_i(z) = \max_{0 \le u \le 1/m} \; u (1 - z) - \frac{(u - c_i)^2}{2\sigma} ,
           \qquad -\varphi_i'(z) = u_i(z) = \min\big(\tfrac1m, \max(0, c_i + \sigma (1 - z))\big) ,

and then moves the centre, :math:`c_i \leftarrow u_i(z_i)`: the proximal point method on the dual. The centres converge
to a dual optimum, at which the rounding has no effect. As :math:`\sigma \to \infty` it is Appendix C itself. The
squares :math:`\frac\mu2 (\Lambda_j \alpha_j)^2` of the elastic penalty only add to slope and curvature.

With :math:`v = c + \sigma (1 - z)` and a step a along a direction with values h, the slope is
:math:`-h^\top \operatorname{clip}(v - a \sigma h, 0, \tfrac1m)` plus that of the penalty: piecewise linear in a.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable

import numpy as np

from .families import Array
from .problem import TOLERANCE, check_elastic, check_tolerance, dual_bound

Block = tuple[list[Hashable], Array, Array]
"""Names of base functions, the functions as rows y_i h(x_i) of a matrix, and their penalties Λ."""

Stream = Callable[[], Iterable[Block]]
"""Called in every round; returns the same names with the same functions each time."""

BATCH = 20  # coordinates of steepest descent added in one round
GROWTH, MAX_SIGMA = 1.5, 300.0
"""Growth factor of σ, which starts at 1/m (the rounded corner is as wide as the margin), and its largest multiple."""
PATIENCE, PROGRESS = 10, 0.9
"""Below the default tolerance, the search stops unless this many rounds reduce the gap to this share."""


class Descent:
    """Coordinate descent on eq. (1) over a stream of base functions; see ``CoordinateDescent.solve_stream``."""

    def __init__(
        self, stream: Stream, m: int, tolerance: float = TOLERANCE, max_rounds: int = 2000, elastic: float = 0.0
    ) -> None:
        check_tolerance(tolerance)
        check_elastic(elastic)
        self.stream, self.m = stream, m
        self.tolerance, self.max_rounds, self.elastic = tolerance, max_rounds, elastic
        self.weights: dict[Hashable, float] = {}
        self.objective, self.bound, self.num_rounds, self.converged = 1.0, 0.0, 0, False
        self.u = np.full(m, 1.0 / m)
        self._functions: dict[Hashable, tuple[Array, float]] = {}
        self._z = np.zeros(m)
        self._centre = np.full(m, 0.5 / m)
        self._sigma = 1.0 / m
        self._accuracy = 0.1
        self._least, self._since = np.inf, 0

    @property
    def gap(self) -> float:
        """objective − bound, never negative."""
        return max(0.0, self.objective - self.bound)

    def run(self) -> Descent:
        """Descend until the gap is within the tolerance or stops falling, or the rounds are used up."""
        while self.num_rounds < self.max_rounds and not self.converged:
            self.num_rounds += 1
            steepness = self._price()
            self.converged = self.gap <= self.tolerance
            if self.converged or self._is_stalled():
                break
            if steepness <= self._accuracy:  # minimum for this centre: no function of the stream descends
                self._centre = self._u()
                self._sigma = min(GROWTH * self._sigma, MAX_SIGMA / self.m)
                self._accuracy = max(self._accuracy / 3.0, 1e-9)
                self._functions = {name: f for name, f in self._functions.items() if name in self.weights}
            self._descend(0.3 * self._accuracy)
        return self

    def _is_stalled(self) -> bool:
        """Whether rounding errors keep the gap from falling."""
        if self.gap > TOLERANCE or self.gap < PROGRESS * self._least:
            self._least, self._since = self.gap, 0
        else:
            self._since += 1
        return self._since >= PATIENCE

    def _u(self) -> Array:
        """u_i(z_i), minus the slope of the rounded hinge."""
        return np.clip(self._centre + self._sigma * (1.0 - self._z), 0.0, 1.0 / self.m)

    def _price(self) -> float:
        """Price the stream at u: update the dual bound, add the steepest coordinates. Returns the steepest slope."""
        u = self._u()
        steepest, violations = 0.0, []
        candidates: list[tuple[float, Hashable, Array, float]] = []
        for names, h, penalties in self.stream():
            ratio = np.abs(h @ u) / penalties
            above = np.flatnonzero(ratio > 1.0)
            violations.append(ratio[above])
            # μΛ|α| is the slope of the squares, by which a price may exceed the penalty of a function that votes.
            slopes = [self.elastic * penalties[t] * abs(self.weights.get(names[t], 0.0)) for t in above]
            steepest = max(steepest, float(np.abs(ratio[above] - 1.0 - slopes).max(initial=0.0)))
            new = [t for t in above[np.argsort(-ratio[above])] if names[t] not in self._functions]
            candidates += [(float(ratio[t]), names[t], h[t], float(penalties[t])) for t in new[:BATCH]]
            candidates = sorted(candidates, key=lambda candidate: -candidate[0])[:BATCH]
        for _, name, h_t, penalty in candidates:
            self._functions[name] = (h_t.copy(), penalty)
        bound = dual_bound(float(u.sum()), np.concatenate(violations), self.elastic)
        if bound > self.bound:
            self.bound, self.u = bound, u
        costs = np.array([self._functions[name][1] * abs(weight) for name, weight in self.weights.items()])
        penalty_term = costs.sum() + 0.5 * self.elastic * (costs**2).sum()
        self.objective = float(np.maximum(0.0, 1.0 - self._z).mean() + penalty_term)
        return steepest

    def _descend(self, accuracy: float, max_sweeps: int = 20, max_moves: int = 40) -> None:
        """Sweep over the stored coordinates until none is steeper than ``accuracy`` relative to its penalty."""
        for _ in range(max_sweeps):
            steepness = [self._line_search(name, h, penalty) for name, (h, penalty) in self._functions.items()]
            if max(steepness, default=0.0) <= accuracy:
                return
            for _ in range(max_moves):
                if self._move_together() <= accuracy:
                    break

    def _move_together(self) -> float:
        """One exact line search along Newton's direction over the coefficients that vote, signs kept.

        Base functions of neighboring points are nearly parallel, so single coordinates converge slowly. Returns how
        steep the direction was.
        """
        names = list(self.weights)
        if len(names) < 2:
            return 0.0
        alpha = np.array([self.weights[name] for name in names])
        H = np.stack([self._functions[name][0] for name in names])
        penalties = np.array([self._functions[name][1] for name in names])
        squares = self.elastic * penalties**2
        slopes = penalties * np.sign(alpha) + squares * alpha
        v = self._centre + self._sigma * (1.0 - self._z)
        top = 1.0 / self.m
        descent = H @ np.clip(v, 0.0, top) - slopes
        direction = _newton_direction(self._sigma, H[:, (v > 0.0) & (v < top)], descent, squares)
        if direction is None:
            return 0.0
        along = direction @ H
        # The penalty is linear until the first coefficient reaches zero.
        with np.errstate(divide="ignore", invalid="ignore"):
            lengths = np.where(alpha * direction < 0.0, -alpha / direction, np.inf)
        first = int(np.argmin(lengths))
        ridge = float(squares @ direction**2)
        minimum_along = _root(v, self._sigma * along, along, float(slopes @ direction), top, ridge)
        length = min(minimum_along, float(lengths[first]))
        if not (np.isfinite(length) and length > 0.0):
            return 0.0
        moved = alpha + length * direction
        if length == lengths[first]:
            moved[first] = 0.0
        self.weights = {name: float(weight) for name, weight in zip(names, moved, strict=True) if weight}
        self._z = moved @ H
        return float(np.max(np.abs(descent / slopes)))

    def _line_search(self, name: Hashable, h: Array, penalty: float) -> float:
        """Move one coefficient to its minimum exactly; returns how steep it was, relative to its penalty."""
        old = self.weights.get(name, 0.0)
        ridge = self.elastic * penalty**2
        slope = float(h @ self._u()) - ridge * old
        steepness = abs(slope - np.sign(old) * penalty) / penalty if old else max(0.0, abs(slope) / penalty - 1.0)
        if steepness <= 1e-13:
            return 0.0
        rest = self._centre + self._sigma * (1.0 - self._z + old * h)  # u before clipping, at coefficient 0
        slope = float(h @ np.clip(rest, 0.0, 1.0 / self.m))
        new = 0.0
        if abs(slope) > penalty:
            new = _root(rest, self._sigma * h, h, math.copysign(penalty, slope), 1.0 / self.m, ridge)
        if new != old:
            self._z += (new - old) * h
            if new:
                self.weights[name] = new
            else:
                self.weights.pop(name, None)
        return steepness


def _root(rest: Array, step: Array, h: Array, target: float, top: float, ridge: float = 0.0) -> float:
    """The a at which hᵀ clip(rest − a·step, 0, top) − ridge · a = target, where step is a positive multiple of h.

    A Newton step on one linear piece ends in its root; a bracket prevents cycling between pieces.
    """
    a, low, high = 0.0, -np.inf, np.inf
    for _ in range(200):
        v = rest - a * step
        excess = float(h @ np.clip(v, 0.0, top)) - ridge * a - target
        low, high = (a, high) if excess > 0 else (low, a)
        if abs(excess) <= 1e-14 * abs(target) or high - low <= 1e-15 * abs(a):
            return a
        inside = (v > 0.0) & (v < top)
        curvature = float(h[inside] @ step[inside]) + ridge
        if curvature > 0 and low < a + excess / curvature < high:
            new = a + excess / curvature
        elif np.isfinite(low) and np.isfinite(high):
            new = 0.5 * (low + high)
        else:
            new = _end_of_piece(rest, step, top, a, forward=excess > 0)
        if new == a:
            return a
        a = new
    return a


def _end_of_piece(rest: Array, step: Array, top: float, a: float, forward: bool) -> float:
    """The end of a flat piece without a bracket: the next a at which an entry enters or leaves [0, top]."""
    moving = step != 0.0
    breaks = np.concatenate([rest[moving] / step[moving], (rest[moving] - top) / step[moving]])
    ahead = breaks[breaks > a] if forward else breaks[breaks < a]
    return float((ahead.min if forward else ahead.max)()) if len(ahead) else a


def _newton_direction(sigma: float, inner: Array, descent: Array, squares: Array) -> Array | None:
    """Newton's direction for several coefficients, or ``None``.

    ``inner`` are the base functions at the points on a rounded corner, ``squares`` the curvatures of the penalty.
    """
    curvature = sigma * (inner**2).sum(axis=1) + squares
    curved = curvature > 0.0  # a function that is zero on every rounded corner has no Newton step
    if not curved.any():
        return None
    scale = np.sqrt(curvature[curved])
    hessian = sigma * (inner[curved] @ inner[curved].T) / np.outer(scale, scale)
    hessian.flat[:: len(scale) + 1] += 1e-10 + squares[curved] / curvature[curved]
    direction = np.zeros(len(inner))
    direction[curved] = np.linalg.solve(hessian, descent[curved] / scale) / scale
    return direction if np.isfinite(direction).all() else None
