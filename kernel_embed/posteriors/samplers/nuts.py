"""The No-U-Turn sampler, by Pyro: its options, and its chains, in step and with random-walk steps where they help."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Iterator, Mapping
from typing import ClassVar

import numpy as np
import pyro.infer
import torch
from torch import Tensor

from ...learning.parameters import Vector
from ...threads import num_cpus
from ...validation import check_count, check_number, check_setting
from ..draws import Chains, Draws
from ..potential import SITE, Potential, quiet_numbers
from ..starts import Plan, Starts
from .base import Sampler
from .parallel import ChainMaker, chains_in_processes
from .walk import Walk, settle

DENSE_DIMENSIONS = 20
"""Up to so many parameters the mass matrix is dense by default."""

WALK_DIMENSIONS = 5
"""Up to so many parameters NUTS is joined by a random walk."""

NUM_WALKS = 2
"""Steps of the walk after every draw of NUTS."""

WORTHWHILE = 2e10
"""Operations, counted as n³ for each draw, above which starting processes pays: seconds of work for each of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NUTS(Sampler):
    """Pyro's No-U-Turn sampler; chains in step, each with random numbers of its own.

    Args:
        target_accept_prob: the acceptance that the step size is adapted to; nearer 1, smaller steps.
        max_tree_depth: a draw takes at most 2 to this power evaluations.
        full_mass: a dense mass matrix; ``None`` for up to twenty parameters.
        step_size: to begin with.
        adapt_step_size: during warm-up.
        adapt_mass_matrix: during warm-up.
        use_multinomial_sampling: choose from a trajectory by weight; else by slices.
        walk: two random-walk steps after every draw, which step over ripples that NUTS crawls along; ``None`` for up to
            five parameters. ``posterior.draws.details["walk"]`` says whether there were any.
        settle: random-walk steps before the first draw; ``None`` for starts from the prior.
        parallel: run chains in processes of their own; ``None`` where it saves at least some seconds.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if ``target_accept_prob`` is not between 0 and 1, ``max_tree_depth`` is below 1, or ``step_size``
            is not positive and finite.

    Example:
        >>> NUTS(max_tree_depth=6) == NUTS(max_tree_depth=6), NUTS().name
        (True, 'nuts')
    """

    target_accept_prob: float = 0.8
    max_tree_depth: int = 10
    full_mass: bool | None = None
    step_size: float = 1.0
    adapt_step_size: bool = True
    adapt_mass_matrix: bool = True
    use_multinomial_sampling: bool = True
    walk: bool | None = None
    settle: bool | None = None
    parallel: bool | None = None

    uses_warmup: ClassVar[bool] = True

    def __post_init__(self) -> None:
        accepted = check_number("target_accept_prob", self.target_accept_prob)
        check_setting("target_accept_prob", accepted, 0 < accepted < 1, "between 0 and 1")
        check_count("max_tree_depth", self.max_tree_depth)
        size = check_number("step_size", self.step_size)
        check_setting("step_size", size, 0 < size < math.inf, "above 0 and finite")

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """One chain from each start; Ctrl-C ends them all and keeps what there is."""
        started = time.perf_counter()
        decided = self.decided(potential, plan.starts, (plan.warmup_steps + plan.num_samples) * len(plan.seeds))
        run = chains_in_processes if decided.parallel else chains_in_turn
        chains = run(decided.chain, potential, plan)
        walks = bool(decided.walk) and plan.warmup_steps > 0
        return joined(chains, potential, started, {"walk": walks, "full_mass": bool(decided.full_mass)})

    def decided(self, potential: Potential, starts: Starts, num_draws: int) -> NUTS:
        """The same with a decision for every ``None``, where ``num_draws`` are to be made by all chains."""
        dimension = potential.dimension
        decisions = {
            "full_mass": dimension <= DENSE_DIMENSIONS,
            "walk": dimension <= WALK_DIMENSIONS,
            "settle": starts.from_prior,
            "parallel": worthwhile(potential, len(starts.points), num_draws),
        }
        return dataclasses.replace(self, **{k: value for k, value in decisions.items() if getattr(self, k) is None})

    def chain(self, potential: Potential, start: Vector, warmup_steps: int, seed: int) -> Chain:
        """A chain with these options, once they are :meth:`decided`."""
        kernel = pyro.infer.NUTS(
            potential_fn=potential,
            step_size=self.step_size,
            adapt_step_size=self.adapt_step_size,
            adapt_mass_matrix=self.adapt_mass_matrix,
            full_mass=bool(self.full_mass),
            use_multinomial_sampling=self.use_multinomial_sampling,
            target_accept_prob=self.target_accept_prob,
            max_tree_depth=self.max_tree_depth,
        )
        walks, settles = (bool(option) and warmup_steps > 0 for option in (self.walk, self.settle))
        return Chain(kernel, potential, start, warmup_steps, seed, walks=walks, settles=settles)


def worthwhile(potential: Potential, num_chains: int, num_draws: int) -> bool:
    """Whether processes would save time: decided by sizes and not by a clock, so that a run can be repeated."""
    n = potential.x.shape[-2]
    return num_chains > 1 and num_cpus() > 1 and potential.x.device.type == "cpu" and n**3 * num_draws > WORTHWHILE


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


def chains_in_turn(make: ChainMaker, potential: Potential, plan: Plan) -> Chains:
    """Run one chain from each start, a draw of each in turn; Ctrl-C ends them all and keeps what there is."""
    chains = [
        make(potential, start, plan.warmup_steps, seed)
        for start, seed in zip(plan.starts.points, plan.seeds, strict=True)
    ]
    found: list[list[tuple[Vector, float]]] = [[] for _ in chains]
    interrupted = False
    with quiet_numbers():
        try:
            for step in range(plan.warmup_steps + plan.num_samples):
                for chain, draws in zip(chains, found, strict=True):
                    draw = chain.step()
                    if step >= plan.warmup_steps:
                        draws.append(draw)
                    plan.bar.update()
        except KeyboardInterrupt:
            interrupted = True
    return Chains(found, [chain.divergences for chain in chains], [chain.step_size for chain in chains], interrupted)


def joined(chains: Chains, potential: Potential, started: float, decisions: Mapping[str, bool]) -> Draws:
    """Chains as tensors, as long as the shortest, with the ``decisions`` they were made under."""
    length = min(len(draws) for draws in chains.found)
    if length == 0:
        raise KeyboardInterrupt("interrupted before the first draw after warm-up")
    u = np.stack([np.stack([point for point, _ in draws[:length]]) for draws in chains.found])
    heights = [[height for _, height in draws[:length]] for draws in chains.found]
    diverging = torch.zeros((len(chains.found), length), dtype=torch.bool)
    for row, numbers in zip(diverging, chains.divergences, strict=True):
        row[[number for number in numbers if number < length]] = True
    return Draws(
        torch.from_numpy(u),
        torch.tensor(heights, dtype=torch.float64),
        diverging,
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations,
        num_refused=potential.num_refused,
        interrupted=chains.interrupted,
        details={"step_size": chains.step_sizes, **decisions},
    )
