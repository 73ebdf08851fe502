"""One chain of NUTS with random numbers of its own, and how it is stopped and resumed."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...learning.parameters import Vector
from ..checkpoint import ChainFile
from ..draws import Drawn
from ..potential import SITE, Potential
from .flat import FlatNUTS
from .walk import Walk, settle


class Chain:
    """One NUTS chain with random numbers of its own.

    Args:
        kernel: NUTS on ``potential``.
        potential: U.
        start: the raw vector it starts at.
        warmup_steps: draws in which it adapts.
        seed: of its random numbers.
        walks: take random-walk steps between draws.
        settles: take some before the first.
    """

    def __init__(
        self,
        kernel: FlatNUTS,
        potential: Potential,
        start: Vector,
        warmup_steps: int,
        seed: int,
        *,
        walks: bool,
        settles: bool,
    ) -> None:
        self.kernel, self.potential, self.warmup_steps, self.num_draws = kernel, potential, warmup_steps, 0
        self.generator = np.random.default_rng(seed)
        self.walk = Walk(len(start), self.generator) if walks else None
        self.start, self.settles = start, settles
        self.torch_state = torch.Generator().manual_seed(seed).get_state()
        self.params: dict[str, Tensor] | None = None

    def step(self) -> Drawn:
        """One more draw."""
        with self._own_random_numbers():
            params = self._set_up() if self.params is None else self.params
            self.params = params = self.kernel.sample(params)
        found = self.kernel.last
        u, value = found.u, found.value
        if self.walk is not None:
            u, value = self._walk(self.walk, u, value)
        self.num_draws += 1
        return Drawn(u, -value, found.energy, found.depth, found.diverging)

    def _set_up(self) -> dict[str, Tensor]:
        start = settle(self.potential, self.start, self.generator) if self.settles else self.start
        self.kernel.initial_params = {SITE: torch.from_numpy(start.copy())}
        self.kernel.setup(self.warmup_steps)
        return dict(self.kernel.initial_params)

    def _walk(self, walk: Walk, here: Vector, value: float) -> tuple[Vector, float]:
        u, adapting = here, self.num_draws < self.warmup_steps
        u, value = walk.step(self.potential, u, value, adapting)
        u, value = walk.leap(self.potential, u, value)
        if adapting:
            walk.learn(u, is_last=self.num_draws == self.warmup_steps - 1)
        if u is not here:
            self.params = {SITE: torch.from_numpy(u.copy())}
        return u, value

    @property
    def step_size(self) -> float:
        """Of the trajectories, as adapted."""
        return float(self.kernel.step_size)

    @property
    def is_dense(self) -> bool:
        """Whether the mass matrix, as adapted, is dense."""
        return self.kernel.is_dense

    def state(self) -> dict[str, Any]:
        """All that the next draw depends on, for :meth:`restore`."""
        assert self.params is not None, "asked for after a draw"
        return {
            "kernel": self.kernel.state(),
            "u": self.params[SITE],
            "num_draws": self.num_draws,
            "generator": json.dumps(self.generator.bit_generator.state),
            "torch": self.torch_state,
            "walk": None if self.walk is None else self.walk.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`: the draws to come are those of a chain that never stopped."""
        with self._own_random_numbers():
            self._set_up()
        self.kernel.restore(state["kernel"])
        self.params, self.num_draws = {SITE: state["u"]}, state["num_draws"]
        self.generator.bit_generator.state = json.loads(state["generator"])
        self.torch_state = state["torch"]
        if self.walk is not None:
            self.walk.restore(state["walk"])

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        # Pyro's warm-up draws from torch's global generator: it is lent to the chain and given back as it was.
        if self.num_draws > self.warmup_steps:
            yield
            return
        outside = torch.get_rng_state()
        torch.set_rng_state(self.torch_state)
        try:
            yield
        finally:
            self.torch_state = torch.get_rng_state()
            torch.set_rng_state(outside)


class Run:
    """A chain with the draws it has made, written to a file from time to time and resumed from it.

    Args:
        chain: before its first draw.
        file: of a checkpoint, or ``None``.
    """

    def __init__(self, chain: Chain, file: ChainFile | None) -> None:
        self.chain, self.file, self.is_between = chain, file, True
        content = None if file is None else file.read()
        self.found: list[Drawn] = []
        if content is not None:
            chain.restore(content["state"])
            self.found = [Drawn.of(row) for row in content["draws"].numpy()]

    def step(self) -> Drawn:
        """One more draw; kept where the warm-up is over."""
        self.is_between = False
        draw = self.chain.step()
        if self.chain.num_draws > self.chain.warmup_steps:
            self.found.append(draw)
        self.is_between = True
        if self.file is not None and self.file.is_due():
            self.save()
        return draw

    def save(self) -> None:
        """Write the chain, unless it was stopped inside a draw: then what was written before stands."""
        if self.file is not None and self.is_between and self.chain.num_draws > 0:
            width = len(self.chain.start) + 4
            rows = torch.from_numpy(np.array([draw.row() for draw in self.found]).reshape(-1, width))
            self.file.write({"state": self.chain.state(), "draws": rows})
