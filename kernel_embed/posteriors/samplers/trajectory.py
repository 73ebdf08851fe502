r"""One transition of the No-U-Turn sampler on a flat vector, in NumPy: no graph, no dictionaries, no small tensors.

With :math:`\Sigma = F F^\top` the inverse mass matrix and momenta :math:`r \sim \mathcal N(0, I)`, a leapfrog step of
size ε is

.. math::  r \leftarrow r - \tfrac\varepsilon2 F^\top \nabla U(u), \qquad u \leftarrow u + \varepsilon F r, \qquad
           r \leftarrow r - \tfrac\varepsilon2 F^\top \nabla U(u), \qquad H = U(u) + \tfrac12 \lVert r \rVert^2 .

A trajectory is doubled until it turns back, :math:`r \cdot \rho \le 0` at one of its ends with ρ the sum of its
momenta, and one of its states is selected with weight :math:`e^{-H}`, later halves preferred (Betancourt 2017, appendix
A). Two more checks span the seam of each pair of halves, as in Stan: without them trajectories of a nearly Gaussian
density return to their start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...learning.parameters import Vector

MAX_ENERGY_ERROR = 1000.0
"""A trajectory whose H changes by more has diverged."""

Evaluate = Callable[[Vector], tuple[float, Vector]]


class State(NamedTuple):
    """A point of a trajectory: u, r, U(u), ∂U/∂u, F' ∂U/∂u and H."""

    u: Vector
    r: Vector
    value: float
    slope: Vector
    scaled_slope: Vector
    energy: float


class Draw(NamedTuple):
    """The result of a trajectory.

    Attributes:
        u: the selected point.
        value: U there.
        slope: ∂U/∂u there.
        energy: H there.
        depth: doublings.
        accept_prob: mean of min(1, exp(H₀ − H)) over all states, which the step size is adapted to.
        diverging: whether H changed by more than :data:`MAX_ENERGY_ERROR`.
        moved: whether the point differs from the start.
    """

    u: Vector
    value: float
    slope: Vector
    energy: float
    depth: int
    accept_prob: float
    diverging: bool
    moved: bool


class _Tree(NamedTuple):
    """Part of a trajectory, in the order of its steps: its two ends, ρ, log weight, and the state selected from it."""

    first: State
    last: State
    rho: Vector
    weight: float
    selected: State
    is_valid: bool = True

    def reversed(self) -> _Tree:
        return self._replace(first=self.last, last=self.first)


class Trajectory:
    """Transitions with one step size and one mass matrix.

    Args:
        evaluate: U and ∂U/∂u; ∞ where U does not exist.
        factor: F, a matrix, or a vector if it is diagonal.
        step_size: ε.
        max_depth: largest number of doublings.
        generator: of random numbers.
        multinomial: select states by weight; otherwise by slices (Hoffman and Gelman 2014).
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
        """A draw starting at ``u``, where U and ∂U/∂u are ``value`` and ``slope``."""
        r = self.generator.standard_normal(len(u))
        self.start = self.level = value + 0.5 * float(r @ r)
        if not self.multinomial:
            self.level += self.generator.exponential()
        self.acceptance, self.count, self.diverging = 0.0, 0, False
        origin = State(u, r, value, slope, self._scaled(slope), self.start)
        tree, depth = _Tree(origin, origin, r, 0.0, origin), 0
        while depth < self.max_depth:
            step = self.step_size if self.generator.random() < 0.5 else -self.step_size
            if step < 0:
                tree = tree.reversed()
            new = self._extend(tree.last, step, depth)
            depth += 1
            if not new.is_valid:
                break
            # Later halves are preferred: the selected state moves away from the start.
            prefer = new.weight >= tree.weight or self.generator.random() < math.exp(new.weight - tree.weight)
            tree = self._join(tree, new, new.selected if prefer else tree.selected)
            if not tree.is_valid:
                break
            if step < 0:
                tree = tree.reversed()
        end = tree.selected
        accept_prob = self.acceptance / max(1, self.count)
        return Draw(end.u, end.value, end.slope, end.energy, depth, accept_prob, self.diverging, end is not origin)

    def _extend(self, state: State, step: float, depth: int) -> _Tree:
        """2^depth steps from ``state``; not valid if they turn or diverge."""
        if depth == 0:
            return self._leapfrog(state, step)
        near = self._extend(state, step, depth - 1)
        if not near.is_valid:
            return near
        far = self._extend(near.last, step, depth - 1)
        if not far.is_valid:
            return far
        total = _log_sum(near.weight, far.weight)
        takes_far = total > -math.inf and self.generator.random() < math.exp(far.weight - total)
        return self._join(near, far, far.selected if takes_far else near.selected)

    def _leapfrog(self, state: State, step: float) -> _Tree:
        r = state.r - 0.5 * step * state.scaled_slope
        u = state.u + step * (self.factor * r if self.factor.ndim == 1 else self.factor @ r)
        value, slope = self.evaluate(u)
        scaled_slope = self._scaled(slope)
        r = r - 0.5 * step * scaled_slope
        energy = value + 0.5 * float(r @ r)
        if not energy < math.inf:
            energy = math.inf
        self.count += 1
        self.acceptance += math.exp(min(0.0, self.start - energy))
        diverging = energy - self.level > MAX_ENERGY_ERROR
        self.diverging |= diverging
        weight = self.start - energy if self.multinomial else (0.0 if energy <= self.level else -math.inf)
        new = State(u, r, value, slope, scaled_slope, energy)
        return _Tree(new, new, r, weight, new, not diverging)

    def _scaled(self, slope: Vector) -> Vector:
        scaled: Vector = self.factor * slope if self.factor.ndim == 1 else slope @ self.factor
        return scaled

    def _join(self, near: _Tree, far: _Tree, selected: State) -> _Tree:
        rho = near.rho + far.rho
        straight = (
            _continues(near.first.r, far.last.r, rho)
            and _continues(near.first.r, far.first.r, near.rho + far.first.r)
            and _continues(near.last.r, far.last.r, far.rho + near.last.r)
        )
        return _Tree(near.first, far.last, rho, _log_sum(near.weight, far.weight), selected, straight)


def _continues(first: Vector, last: Vector, rho: Vector) -> bool:
    """Whether a trajectory with these momenta at its ends has not turned back."""
    return bool(first @ rho > 0.0 and last @ rho > 0.0)


def _log_sum(a: float, b: float) -> float:
    largest = max(a, b)
    return largest if largest == -math.inf else largest + math.log1p(math.exp(-abs(a - b)))
