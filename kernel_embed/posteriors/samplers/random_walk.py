r"""Metropolis steps beside NUTS: before its first draw, and for few parameters between its draws.

Between draws there are two: a random walk, and an independent proposal from a t distribution q with the mean and
covariance of the warm-up, accepted with probability :math:`\min(1, e^{U(u) - U(u')} q(u) / q(u'))`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from ...learning.parameters import Vector
from ..potential import Potential

ACCEPTANCE = 0.3
DEGREES_OF_FREEDOM = 5.0
"""Of independent proposals: their tails are usually heavier than those of the posterior."""
SETTLING_STEPS = 30
SETTLING_SCALES = (0.3, 0.1, 0.03)


class RandomWalk:
    """Metropolis steps between the draws of NUTS, for few parameters.

    Where the density has ripples, NUTS takes small steps and mixes slowly; a random walk on the scale of the whole mode
    steps over them, and so does an independent proposal. Each costs one value of U, while a draw of NUTS costs several
    gradients. Scale and shape are adapted in the warm-up and then fixed.
    """

    def __init__(self, dimension: int, generator: np.random.Generator) -> None:
        self.generator = generator
        self.factor, self.log_scale = 0.1 * np.eye(dimension), math.log(2.38 / math.sqrt(dimension))
        self.centre: Vector | None = None
        self.past: list[Vector] = []
        self.num_proposals = 0

    def state(self) -> dict[str, Any]:
        """The adapted quantities."""
        past = torch.from_numpy(np.array(self.past).reshape(-1, len(self.factor)))
        counts = [self.log_scale, self.num_proposals]
        centre = None if self.centre is None else torch.from_numpy(self.centre)
        return {"factor": torch.from_numpy(self.factor), "centre": centre, "counts": counts, "past": past}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a :meth:`state`."""
        self.factor = state["factor"].numpy()
        self.centre = None if state["centre"] is None else state["centre"].numpy()
        self.log_scale, self.num_proposals = state["counts"]
        self.past = list(state["past"].numpy())

    def adapt(self, u: Vector, is_last: bool) -> None:
        """Set centre and spread to those of the later half of the draws so far, at 10, 16, 32, … and the last draw."""
        self.past.append(u)
        count = len(self.past)
        if count >= 10 and (count == 10 or is_last or count & (count - 1) == 0):
            later = np.stack(self.past[count // 2 :])
            covariance = np.atleast_2d(np.cov(later.T))
            self.centre = later.mean(0)
            self.factor = np.asarray(np.linalg.cholesky(covariance + 1e-10 * np.eye(len(u))), np.float64)

    def step(self, potential: Potential, u: Vector, energy: float, adapting: bool) -> tuple[Vector, float]:
        """One random-walk step from ``u``, where the potential is ``energy``."""
        proposal = u + math.exp(self.log_scale) * (self.factor @ self.generator.standard_normal(len(u)))
        value = potential.value(proposal)
        accepted = math.log(self.generator.uniform()) < energy - value
        if adapting:
            self.num_proposals += 1
            self.log_scale += ((1.0 if accepted else 0.0) - ACCEPTANCE) * 2.0 / math.sqrt(self.num_proposals)
        return (proposal, value) if accepted else (u, energy)

    def jump(self, potential: Potential, u: Vector, energy: float) -> tuple[Vector, float]:
        """One independent proposal, once the centre is adapted."""
        if self.centre is None:
            return u, energy
        z = self.generator.standard_normal(len(u))
        z *= math.sqrt(DEGREES_OF_FREEDOM / self.generator.chisquare(DEGREES_OF_FREEDOM))
        proposal = self.centre + self.factor @ z
        value = potential.value(proposal)
        here = np.asarray(np.linalg.solve(self.factor, u - self.centre), np.float64)
        ratio = energy - value + _log_t(here) - _log_t(z)
        return (proposal, value) if math.log(self.generator.uniform()) < ratio else (u, energy)


def _log_t(z: Vector) -> float:
    """log density of the t distribution around 0, up to a constant."""
    return -0.5 * (DEGREES_OF_FREEDOM + len(z)) * math.log1p(float(z @ z) / DEGREES_OF_FREEDOM)


def settle(potential: Potential, start: Vector, generator: np.random.Generator) -> Vector:
    """A few random-walk Metropolis steps before the warm-up.

    An evidence may have ripples with dips to −∞ between them (see :func:`kernel_embed.local_maxima`). NUTS would adapt
    its step size to the ripple that a start from the prior happens to lie on, and stay there.
    """
    here, energy = start, potential.value(start)
    for step in range(SETTLING_STEPS):
        scale = SETTLING_SCALES[step % len(SETTLING_SCALES)] / math.sqrt(len(start))
        proposal = here + scale * generator.standard_normal(len(start))
        value = potential.value(proposal)
        if math.log(generator.uniform()) < energy - value:
            here, energy = proposal, value
    return here
