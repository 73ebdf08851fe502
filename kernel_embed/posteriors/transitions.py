r"""Transitions of a chain on a flat vector, in NumPy: trajectories of the No-U-Turn sampler, and Metropolis steps.

With :math:`\Sigma = F F^\top` the inverse mass matrix and momenta :math:`r \sim \mathcal N(0, I)`, a leapfrog step of
size ε is

.. math::  r \leftarrow r - \tfrac\varepsilon2 F^\top \nabla U(u), \qquad u \leftarrow u + \varepsilon F r, \qquad
           r \leftarrow r - \tfrac\varepsilon2 F^\top \nabla U(u), \qquad H = U(u) + \tfrac12 \lVert r \rVert^2 .

A trajectory is doubled until it makes a U-turn, :math:`r \cdot \rho \le 0` at one of its ends with ρ the sum of its
momenta, and one of its states is selected with weight :math:`e^{-H}`, later halves preferred (Betancourt 2017, appendix
A). Two more checks span the boundary of each pair of halves, as in Stan.

**Metropolis steps** supplement NUTS before its first draw and, with few parameters, between draws: a random walk, and
an independent proposal from a t distribution q with the mean and covariance of the warm-up, accepted with probability
:math:`\min(1, e^{U(u) - U(u')} q(u) / q(u'))`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..learning.parameters import Vector
from .potential import Potential

MAX_ENERGY_ERROR = 1000.0  # a trajectory whose H changes by more has diverged
ACCEPTED_STEP = math.log(0.8)  # log acceptance probability of a single step at the initial step size
SMALLEST_STEP, LARGEST_STEP = 1e-10, 1e10
ACCEPTANCE = 0.3
DEGREES_OF_FREEDOM = 5.0  # of independent proposals, whose tails are usually heavier than those of the posterior
SETTLING_STEPS = 30
SETTLING_SCALES = (0.3, 0.1, 0.03)

Evaluate = Callable[[Vector], tuple[float, Vector]]
Point = tuple[Vector, float]  # u and U(u)


class State(NamedTuple):
    """A point of a trajectory: u, r, U(u), ∂U/∂u, F' ∂U/∂u and H."""

    u: Vector
    r: Vector
    value: float
    slope: Vector
    scaled_slope: Vector
    energy: float


class Draw(NamedTuple):
    """The state selected from a trajectory, its doublings, and the mean of min(1, exp(H₀ − H)) over all states."""

    state: State
    depth: int
    accept_prob: float
    diverging: bool


class _Tree(NamedTuple):
    """Part of a trajectory, in the order of its steps: its two ends, ρ, log weight, and the state selected from it."""

    first: State
    last: State
    rho: Vector
    weight: float
    selected: State
    is_valid: bool = True

    def reversed(self) -> _Tree:
        """The same trajectory, traversed backwards."""
        return self._replace(first=self.last, last=self.first)


class Trajectory:
    """Transitions with one step size ε and one factor F of the mass matrix, a vector if it is diagonal.

    With ``multinomial`` states are selected by weight, otherwise by slices (Hoffman and Gelman 2014).
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
        origin = self._state(u, self.generator.standard_normal(len(u)), value, slope)
        self.start = self.level = origin.energy
        if not self.multinomial:
            self.level += self.generator.exponential()
        self.acceptance, self.count, self.diverging = 0.0, 0, False
        tree, depth = _Tree(origin, origin, origin.r, 0.0, origin), 0
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
        return Draw(tree.selected, depth, self.acceptance / max(1, self.count), self.diverging)

    def reasonable_step_size(self, u: Vector, value: float, slope: Vector, momenta: Callable[[], Vector]) -> float:
        """ε doubled or halved until single steps from ``u`` are just accepted (Hoffman and Gelman 2014)."""
        step_size, direction = self.step_size, 0.0
        while SMALLEST_STEP < step_size < LARGEST_STEP:
            origin = self._state(u, momenta(), value, slope)
            is_accepted = origin.energy - self._leapfrog(origin, step_size).last.energy > ACCEPTED_STEP
            new = 1.0 if is_accepted else -1.0
            if direction == -new:
                break
            direction = new
            step_size *= 2.0**direction
        return min(max(step_size, SMALLEST_STEP), LARGEST_STEP)

    def _state(self, u: Vector, r: Vector, value: float, slope: Vector) -> State:
        return State(u, r, value, slope, self._scaled(slope), value + 0.5 * float(r @ r))

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


class RandomWalk:
    """Metropolis steps between the draws of NUTS: where the density has ripples, they step over them.

    Each costs one value of U, a draw of NUTS several gradients. They are adapted in the warm-up.
    """

    def __init__(self, dimension: int, generator: np.random.Generator) -> None:
        self.generator = generator
        self.factor, self.log_scale = 0.1 * np.eye(dimension), math.log(2.38 / math.sqrt(dimension))
        self.centre: Vector | None = None
        self.past: list[Vector] = []
        self.num_proposals = 0

    def move(self, potential: Potential, at: Point, steps_left: int) -> Point:
        """One step of each kind; they are adapted while the warm-up has ``steps_left``."""
        u = at[0]
        step = math.exp(self.log_scale) * (self.factor @ self.generator.standard_normal(len(u)))
        at = metropolis(potential, at, u + step, self.generator)
        if steps_left > 0:
            self.num_proposals += 1
            self.log_scale += ((at[0] is not u) - ACCEPTANCE) * 2.0 / math.sqrt(self.num_proposals)
        if self.centre is not None:
            z = self.generator.standard_normal(len(u))
            z *= math.sqrt(DEGREES_OF_FREEDOM / self.generator.chisquare(DEGREES_OF_FREEDOM))
            here = np.asarray(np.linalg.solve(self.factor, at[0] - self.centre), np.float64)
            proposal = self.centre + self.factor @ z
            at = metropolis(potential, at, proposal, self.generator, _log_t(here) - _log_t(z))
        if steps_left > 0:
            self._adapt(at[0], is_last=steps_left == 1)
        return at

    def _adapt(self, u: Vector, is_last: bool) -> None:
        """Centre and spread are those of the later half of the draws so far, at 10, 16, 32, … and the last draw."""
        self.past.append(u)
        count = len(self.past)
        if count >= 10 and (count == 10 or is_last or count & (count - 1) == 0):
            later = np.stack(self.past[count // 2 :])
            covariance = np.atleast_2d(np.cov(later.T))
            self.centre = later.mean(0)
            self.factor = np.asarray(np.linalg.cholesky(covariance + 1e-10 * np.eye(len(u))), np.float64)

    def state(self) -> dict[str, Any]:
        """The adapted quantities, to :meth:`restore` in another process."""
        return {**vars(self), "generator": None, "past": np.array(self.past)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        vars(self).update({**state, "generator": self.generator, "past": list(state["past"])})


def metropolis(
    potential: Potential, at: Point, proposal: Vector, generator: np.random.Generator, log_ratio: float = 0.0
) -> Point:
    """The proposal if it is accepted, else the same point; ``log_ratio`` is log q(u) − log q(u')."""
    value = potential.value(proposal)
    return (proposal, value) if math.log(generator.uniform()) < at[1] - value + log_ratio else at


def _log_t(z: Vector) -> float:
    """log density of the t distribution around 0, up to a constant."""
    return -0.5 * (DEGREES_OF_FREEDOM + len(z)) * math.log1p(float(z @ z) / DEGREES_OF_FREEDOM)


def settle(potential: Potential, u: Vector, generator: np.random.Generator) -> Vector:
    """A few Metropolis steps before the warm-up: NUTS would adapt to the ripple that a start lies on."""
    at = u, potential.value(u)
    for step in range(SETTLING_STEPS):
        scale = SETTLING_SCALES[step % len(SETTLING_SCALES)] / math.sqrt(len(u))
        at = metropolis(potential, at, at[0] + scale * generator.standard_normal(len(u)), generator)
    return at[0]
