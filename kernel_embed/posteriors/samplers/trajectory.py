r"""One draw of the No-U-Turn sampler from a flat vector, in NumPy: no graph, no dictionary, no tensor of one number.

With :math:`\Sigma = F F^\top` the inverse mass matrix and momenta :math:`r \sim \mathcal N(0, I)`, a leapfrog step of
size ε is

.. math::  r \leftarrow r - \tfrac\varepsilon2 F^\top \nabla U(u), \qquad u \leftarrow u + \varepsilon F r, \qquad
           r \leftarrow r - \tfrac\varepsilon2 F^\top \nabla U(u), \qquad H = U(u) + \tfrac12 \lVert r \rVert^2 .

A trajectory is doubled until it turns back, :math:`r \cdot \rho \le 0` at one of its ends with ρ the sum of its
momenta, and a state of it is chosen by weight :math:`e^{-H}`, later halves preferred (Betancourt 2017, appendix A). Two
more checks look across the seam of each pair of halves, as Stan has them: without them trajectories of a nearly
Gaussian density come back to where they began.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...learning.parameters import Vector

LARGEST_ERROR = 1000.0
"""Of H along a trajectory: beyond it the trajectory has diverged."""

Evaluate = Callable[[Vector], tuple[float, Vector]]


class State(NamedTuple):
    """A place on a trajectory: u, r, U(u), ∂U/∂u, F' ∂U/∂u and H."""

    u: Vector
    r: Vector
    value: float
    slope: Vector
    pull: Vector
    energy: float


class Draw(NamedTuple):
    """What a trajectory ended in.

    Attributes:
        u: the chosen point.
        value: U there.
        slope: ∂U/∂u there.
        energy: H there.
        depth: doublings.
        accept_prob: mean of min(1, exp(H₀ − H)) over all states, what the step size is adapted to.
        diverging: whether H left its place by more than :data:`LARGEST_ERROR`.
        moved: whether the point is another than the start.
    """

    u: Vector
    value: float
    slope: Vector
    energy: float
    depth: int
    accept_prob: float
    diverging: bool
    moved: bool


class _Piece(NamedTuple):
    """A piece of a trajectory, in the order it was walked: its two ends, ρ, log weight, and the state chosen of it."""

    first: State
    last: State
    rho: Vector
    weight: float
    chosen: State
    is_whole: bool = True


class Trajectory:
    """Draws with one step size and one mass matrix.

    Args:
        evaluate: U and ∂U/∂u; ∞ where U does not exist.
        factor: F, a matrix, or a vector where it is diagonal.
        step_size: ε.
        max_depth: doublings at the most.
        generator: of random numbers.
        multinomial: choose by weight; else by slices (Hoffman and Gelman 2014).
    """

    def __init__(
        self,
        evaluate: Evaluate,
        factor: Vector,
        step_size: float,
        max_depth: int,
        generator: np.random.Generator,
        multinomial: bool = True,
    ) -> None:
        self.evaluate, self.factor, self.step_size, self.max_depth = evaluate, factor, step_size, max_depth
        self.generator, self.multinomial = generator, multinomial
        self.level = self.start = self.acceptance = 0.0
        self.count, self.diverging = 0, False

    def draw(self, u: Vector, value: float, slope: Vector) -> Draw:
        """A draw from ``u``, where U and ∂U/∂u are ``value`` and ``slope``."""
        r = self.generator.standard_normal(len(u))
        self.start = self.level = value + 0.5 * float(r @ r)
        if not self.multinomial:
            self.level += self.generator.exponential()
        self.acceptance, self.count, self.diverging = 0.0, 0, False
        origin = State(u, r, value, slope, self._pulled(slope), self.start)
        whole, depth = _Piece(origin, origin, r, 0.0, origin), 0
        while depth < self.max_depth:
            step = self.step_size if self.generator.random() < 0.5 else -self.step_size
            if step < 0:
                whole = whole._replace(first=whole.last, last=whole.first)
            new = self._walk(whole.last, step, depth)
            depth += 1
            if not new.is_whole:
                break
            # Later halves are preferred: the chosen state moves away from the start.
            prefer = new.weight >= whole.weight or self.generator.random() < math.exp(new.weight - whole.weight)
            joined = self._joined(whole, new, new.chosen if prefer else whole.chosen)
            whole = joined._replace(first=joined.last, last=joined.first) if step < 0 else joined
            if not joined.is_whole:
                break
        end = whole.chosen
        share = self.acceptance / max(1, self.count)
        return Draw(end.u, end.value, end.slope, end.energy, depth, share, self.diverging, end is not origin)

    def _walk(self, state: State, step: float, depth: int) -> _Piece:
        """2^depth steps from ``state``; not whole where they turn or diverge."""
        if depth == 0:
            return self._leap(state, step)
        near = self._walk(state, step, depth - 1)
        if not near.is_whole:
            return near
        far = self._walk(near.last, step, depth - 1)
        if not far.is_whole:
            return far
        total = _log_sum(near.weight, far.weight)
        takes_far = total > -math.inf and self.generator.random() < math.exp(far.weight - total)
        return self._joined(near, far, far.chosen if takes_far else near.chosen)

    def _leap(self, state: State, step: float) -> _Piece:
        r = state.r - 0.5 * step * state.pull
        u = state.u + step * (self.factor * r if self.factor.ndim == 1 else self.factor @ r)
        value, slope = self.evaluate(u)
        pull = self._pulled(slope)
        r = r - 0.5 * step * pull
        energy = value + 0.5 * float(r @ r)
        if not energy < math.inf:
            energy = math.inf
        self.count += 1
        self.acceptance += math.exp(min(0.0, self.start - energy))
        diverging = energy - self.level > LARGEST_ERROR
        self.diverging |= diverging
        weight = self.start - energy if self.multinomial else (0.0 if energy <= self.level else -math.inf)
        new = State(u, r, value, slope, pull, energy)
        return _Piece(new, new, r, weight, new, not diverging)

    def _pulled(self, slope: Vector) -> Vector:
        pulled: Vector = self.factor * slope if self.factor.ndim == 1 else slope @ self.factor
        return pulled

    def _joined(self, near: _Piece, far: _Piece, chosen: State) -> _Piece:
        rho = near.rho + far.rho
        straight = (
            _goes_on(near.first.r, far.last.r, rho)
            and _goes_on(near.first.r, far.first.r, near.rho + far.first.r)
            and _goes_on(near.last.r, far.last.r, far.rho + near.last.r)
        )
        return _Piece(near.first, far.last, rho, _log_sum(near.weight, far.weight), chosen, straight)


def _goes_on(first: Vector, last: Vector, rho: Vector) -> bool:
    return bool(first @ rho > 0.0 and last @ rho > 0.0)


def _log_sum(a: float, b: float) -> float:
    largest = max(a, b)
    return largest if largest == -math.inf else largest + math.log1p(math.exp(-abs(a - b)))
