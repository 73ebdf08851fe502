"""Chains of Pyro's NUTS on a plain-torch potential, in step, so that an interruption leaves them equally long."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyro.infer
import torch
from torch import Tensor

from ...learning.parameters import Vector
from ...progress import ProgressBar
from ..draws import Draws, collect, quiet_numbers
from ..potential import SITE, Potential
from .walk import Walk, settle

NUM_WALKS = 2
"""Steps of the walk after every draw of NUTS."""


class Chain:
    """One NUTS chain with random numbers of its own.

    Args:
        kernel: Pyro's NUTS on ``potential``.
        potential: U.
        start: the raw vector it starts at.
        warmup_steps: draws in which it adapts.
        seed: of its random numbers.
        walks: take random-walk steps between draws.
        settles: take some before the first.
    """

    def __init__(
        self,
        kernel: pyro.infer.NUTS,
        potential: Potential,
        start: Vector,
        warmup_steps: int,
        seed: int,
        *,
        walks: bool,
        settles: bool,
    ) -> None:
        self.kernel, self.potential, self.warmup_steps, self.num_draws = kernel, potential, warmup_steps, 0
        generator = np.random.default_rng(seed)
        self.walk = Walk(len(start), generator) if walks else None
        if settles:
            start = settle(potential, start, generator)
        self.kernel.initial_params = {SITE: torch.from_numpy(start.copy())}
        self.generator = torch.Generator().manual_seed(seed).get_state()
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
            u, energy = self._walk(self.walk, u, energy)
        self.num_draws += 1
        return u, -energy

    def _walk(self, walk: Walk, here: Vector, energy: float) -> tuple[Vector, float]:
        u, adapting = here, self.num_draws < self.warmup_steps
        for _ in range(NUM_WALKS):
            u, energy = walk.step(self.potential, u, energy, adapting)
        if adapting:
            walk.learn(u)
        if u is not here:
            self.params = {SITE: torch.from_numpy(u.copy())}
            self.kernel.clear_cache()
        return u, energy

    @property
    def divergences(self) -> list[int]:
        """The numbers of draws whose trajectory diverged."""
        return list(self.kernel._divergences)

    @property
    def step_size(self) -> float:
        """Of the trajectories, as adapted."""
        return float(self.kernel.step_size)

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


ChainMaker: TypeAlias = Callable[[Potential, Vector, int, int], Chain]
"""A chain from a potential, its start, its warm-up steps and its seed."""


def chains_in_turn(
    make: ChainMaker,
    potential: Potential,
    starts: Sequence[Vector],
    num_samples: int,
    warmup_steps: int,
    seeds: Sequence[int],
    bar: ProgressBar,
) -> Draws:
    """Run one chain from each of ``starts``, a draw of each in turn; Ctrl-C ends them all and keeps what there is."""
    started, interrupted = time.perf_counter(), False
    chains = [make(potential, start, warmup_steps, seed) for start, seed in zip(starts, seeds, strict=True)]
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
        details={"step_size": [chain.step_size for chain in chains]},
    )
