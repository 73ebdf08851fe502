"""Random-walk Metropolis steps beside NUTS: before its first draw, and for few parameters between its draws."""

from __future__ import annotations

import math

import numpy as np

from ...learning.parameters import Vector
from ..potential import Potential

WALK_ACCEPTANCE = 0.3

SETTLING_STEPS = 30
SETTLING_SCALES = (0.3, 0.1, 0.03)


class Walk:
    """Random-walk Metropolis steps between the draws of NUTS, for few parameters.

    Where the density has ripples, NUTS takes steps as small as they are and crawls; a walk on the scale of the whole
    mode steps over them. Scale and shape are learned in the warm-up and then held.
    """

    def __init__(self, dimension: int, generator: np.random.Generator) -> None:
        self.generator = generator
        self.factor, self.log_scale = 0.1 * np.eye(dimension), math.log(2.38 / math.sqrt(dimension))
        self.past: list[Vector] = []
        self.num_proposals = 0

    def learn(self, u: Vector) -> None:
        """Take the spread of the later half of the draws so far, at 10, 20, 40, … of them."""
        self.past.append(u)
        count = len(self.past)
        if (count >= 10 and count & (count - 1) == 0) or count in (10, 20):
            covariance = np.atleast_2d(np.cov(np.stack(self.past[count // 2 :]).T))
            self.factor[:] = np.linalg.cholesky(covariance + 1e-10 * np.eye(len(u)))

    def step(self, potential: Potential, u: Vector, energy: float, adapting: bool) -> tuple[Vector, float]:
        """One Metropolis step from ``u``, where the potential is ``energy``."""
        there = u + math.exp(self.log_scale) * (self.factor @ self.generator.standard_normal(len(u)))
        proposed = potential.value(there)
        accepted = math.log(self.generator.uniform()) < energy - proposed
        if adapting:
            self.num_proposals += 1
            self.log_scale += ((1.0 if accepted else 0.0) - WALK_ACCEPTANCE) * 2.0 / math.sqrt(self.num_proposals)
        return (there, proposed) if accepted else (u, energy)


def settle(potential: Potential, start: Vector, generator: np.random.Generator) -> Vector:
    """A few random-walk Metropolis steps at the head of the warm-up.

    An evidence may have ripples with dips to −∞ between them (see :func:`kernel_embed.local_maxima`). NUTS would adapt
    its step size to the ripple that a start from the prior happens to lie on, and stay there; a walk steps over them.
    """
    here, energy = start, potential.value(start)
    for step in range(SETTLING_STEPS):
        scale = SETTLING_SCALES[step % len(SETTLING_SCALES)] / math.sqrt(len(start))
        there = here + scale * generator.standard_normal(len(start))
        proposed = potential.value(there)
        if math.log(generator.uniform()) < energy - proposed:
            here, energy = there, proposed
    return here
