"""NUTS by Pyro on a plain-torch potential: several chains in step, so that an interruption leaves them equally long."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from linear_operator.utils.warnings import NumericalWarning
from pyro.infer import NUTS
from torch import Tensor

from ...learning.parameters import Vector
from ..potential import SITE, Potential

DENSE_DIMENSIONS = 20
"""Up to so many parameters the mass matrix is dense by default."""


WALK_DIMENSIONS = 5
"""Up to so many parameters NUTS is joined by a random walk."""
NUM_WALKS = 2
WALK_ACCEPTANCE = 0.3

SETTLING_STEPS = 30
SETTLING_SCALES = (0.3, 0.1, 0.03)

OWN_OPTIONS = ("walk", "settle")
"""Options that are not Pyro's."""


@dataclasses.dataclass
class Draws:
    """What a sampler found.

    Attributes:
        u: raw draws, ``(num_chains, num_samples, dimension)``.
        log_density: log of the unnormalised posterior density of u, ``(num_chains, num_samples)``.
        diverging: draws whose trajectory diverged, ``(num_chains, num_samples)``.
        seconds: wall-clock time.
        num_evaluations: of the potential, and how many of them were refused, ``num_refused``.
        interrupted: whether Ctrl-C ended it.
        log_evidence: of the whole posterior, for samplers that estimate it.
        details: what else the sampler has to say.
    """

    u: Tensor
    log_density: Tensor
    diverging: Tensor
    seconds: float
    num_evaluations: int
    num_refused: int
    interrupted: bool = False
    log_evidence: float | None = None
    details: dict[str, Any] = dataclasses.field(default_factory=dict)


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


class Chain:
    """One NUTS chain with random numbers of its own."""

    def __init__(
        self, potential: Potential, start: Vector, warmup_steps: int, seed: int, options: dict[str, Any]
    ) -> None:
        walk = options.get("walk", len(start) <= WALK_DIMENSIONS) and warmup_steps > 0
        settles = options.get("settle", True) and warmup_steps > 0
        self.kernel = NUTS(potential_fn=potential, **{key: v for key, v in options.items() if key not in OWN_OPTIONS})
        self.potential, self.num_draws = potential, 0
        generator = np.random.default_rng(seed)
        self.walk = Walk(len(start), generator) if walk else None
        if settles:
            start = settle(potential, start, generator)
        self.kernel.initial_params = {SITE: torch.from_numpy(start.copy())}
        self.generator = torch.Generator().manual_seed(seed).get_state()
        self.warmup_steps = warmup_steps
        self.params: dict[str, Tensor] | None = None

    def step(self) -> tuple[Vector, float]:
        """One more draw: u and log density."""
        with self._own_random_numbers():
            if self.params is None:
                self.kernel.setup(self.warmup_steps)
                self.params = self.kernel.initial_params
            self.params = self.kernel.sample(self.params)
        u, energy = self.params[SITE].detach().numpy().copy(), float(self.kernel._potential_energy_last)
        if self.walk is not None:
            here, adapting = u, self.num_draws < self.warmup_steps
            for _ in range(NUM_WALKS):
                u, energy = self.walk.step(self.potential, u, energy, adapting)
            if adapting:
                self.walk.learn(u)
            if u is not here:
                self.params = {SITE: torch.from_numpy(u.copy())}
                self.kernel.clear_cache()
        self.num_draws += 1
        return u, -energy

    @property
    def divergences(self) -> list[int]:
        """The numbers of draws whose trajectory diverged."""
        return list(self.kernel._divergences)

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        # Pyro draws from torch's global generator: it is lent to the chain and given back as it was.
        outside = torch.get_rng_state()
        torch.set_rng_state(self.generator)
        try:
            yield
        finally:
            self.generator = torch.get_rng_state()
            torch.set_rng_state(outside)


def dense_mass(potential: Potential, options: dict[str, Any]) -> dict[str, Any]:
    """``options`` of NUTS with a dense mass matrix for few parameters, unless they say otherwise."""
    return {"full_mass": potential.dimension <= DENSE_DIMENSIONS, **options}


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


def nuts(
    potential: Potential,
    starts: list[Vector],
    num_samples: int,
    warmup_steps: int,
    seeds: list[int],
    options: dict[str, Any],
    bar: Any,
) -> Draws:
    """Run one chain from each of ``starts``, a draw of each in turn; Ctrl-C ends them all and keeps what there is."""
    options = dense_mass(potential, options)
    started, interrupted = time.perf_counter(), False
    chains = [Chain(potential, s, warmup_steps, seed, options) for s, seed in zip(starts, seeds, strict=True)]
    found: list[list[tuple[Vector, float]]] = [[] for _ in chains]
    with quiet_numbers():
        try:
            for step in range(warmup_steps + num_samples):
                for chain, draws in zip(chains, found, strict=True):
                    draw = chain.step()
                    if step >= warmup_steps:
                        draws.append(draw)
                    bar.update()
        except KeyboardInterrupt:
            interrupted = True
    length = min(len(draws) for draws in found)
    if length == 0:
        raise KeyboardInterrupt("interrupted before the first draw after warm-up")
    return collect(
        [draws[:length] for draws in found],
        [chain.divergences for chain in chains],
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations,
        num_refused=potential.num_refused,
        interrupted=interrupted,
        details={"step_size": [float(chain.kernel.step_size) for chain in chains]},
    )


def independent_draws(potential: Potential, u: Tensor, log_density: Tensor, started: float, **settings: Any) -> Draws:
    """Draws of a sampler without trajectories, which cannot diverge; ``started`` is when the clock was read."""
    return Draws(
        u,
        log_density,
        torch.zeros(log_density.shape, dtype=torch.bool),
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations,
        num_refused=potential.num_refused,
        **settings,
    )


def collect(found: list[list[tuple[Vector, float]]], divergences: list[list[int]], **settings: Any) -> Draws:
    """Chains of draws as tensors."""
    u = torch.from_numpy(np.stack([np.stack([point for point, _ in draws]) for draws in found]))
    log_density = torch.tensor([[value for _, value in draws] for draws in found], dtype=torch.float64)
    diverging = torch.zeros(log_density.shape, dtype=torch.bool)
    for row, numbers in zip(diverging, divergences, strict=True):
        row[[number for number in numbers if number < len(row)]] = True
    return Draws(u, log_density, diverging, **settings)


@contextlib.contextmanager
def quiet_numbers() -> Iterator[None]:
    """Jitter and flat points at proposals of a sampler are no news: what they do to the posterior is in its draws."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NumericalWarning)
        yield
