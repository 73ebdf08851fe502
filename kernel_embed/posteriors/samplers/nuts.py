"""The No-U-Turn sampler, by Pyro: its options, and its chains, in step and with random-walk steps where they help."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch

from ...learning.parameters import Vector
from ...threads import num_cpus
from ...validation import check_count, check_number, check_setting
from ..draws import Chains, Draws
from ..potential import Potential, quiet_numbers
from ..starts import Plan, Starts
from .base import Sampler
from .chain import Chain, Run
from .flat import FlatNUTS
from .parallel import ChainMaker, chains_in_processes

DENSE_DIMENSIONS = 200
"""Above so many parameters a dense mass matrix is not even considered by default."""

WALK_DIMENSIONS = 5
"""Up to so many parameters NUTS is joined by a random walk."""

WORTHWHILE = 2e10
"""Operations, counted as n³ for each draw, above which starting processes pays: seconds of work for each of them."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NUTS(Sampler):
    """Pyro's No-U-Turn sampler; chains in step, each with random numbers of its own.

    Pyro adapts step size and mass matrix; the trajectories are walked in NumPy, because for few data Pyro's graph and
    dictionaries cost more than the density.

    Args:
        target_accept_prob: the acceptance that the step size is adapted to; nearer 1, smaller steps.
        max_tree_depth: a draw takes at most 2 to this power evaluations.
        full_mass: a dense mass matrix; ``None`` chooses in the warm-up, dense where parameters correlate.
            ``posterior.draws.details["full_mass"]`` says what each chain chose.
        step_size: to begin with.
        adapt_step_size: during warm-up.
        adapt_mass_matrix: during warm-up.
        use_multinomial_sampling: choose from a trajectory by weight; else by slices.
        random_walk: a random-walk step and an independent proposal after every draw, which step over ripples that NUTS
            crawls along; ``None`` for up to five parameters. ``posterior.draws.details["walk"]`` says whether.
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
    random_walk: bool | None = None
    settle: bool | None = None
    parallel: bool | None = None

    uses_warmup: ClassVar[bool] = True
    can_resume: ClassVar[bool] = True

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
        walks = bool(decided.random_walk) and plan.warmup_steps > 0
        return joined(chains, potential, started, {"walk": walks})

    def decided(self, potential: Potential, starts: Starts, num_draws: int) -> NUTS:
        """The same with a decision for every ``None``, where ``num_draws`` are to be made by all chains."""
        dimension = potential.dimension
        decisions = {
            "random_walk": dimension <= WALK_DIMENSIONS,
            "settle": starts.from_prior,
            "parallel": worthwhile(potential, len(starts.points), num_draws),
        }
        if dimension > DENSE_DIMENSIONS:
            decisions["full_mass"] = False
        return dataclasses.replace(self, **{k: value for k, value in decisions.items() if getattr(self, k) is None})

    def chain(self, potential: Potential, start: Vector, warmup_steps: int, seed: int) -> Chain:
        """A chain with these options, once they are :meth:`decided`."""
        kernel = FlatNUTS(
            potential,
            full_mass=self.full_mass,
            step_size=self.step_size,
            adapt_step_size=self.adapt_step_size,
            adapt_mass_matrix=self.adapt_mass_matrix,
            use_multinomial_sampling=self.use_multinomial_sampling,
            target_accept_prob=self.target_accept_prob,
            max_tree_depth=self.max_tree_depth,
        )
        walks, settles = (bool(option) and warmup_steps > 0 for option in (self.random_walk, self.settle))
        return Chain(kernel, potential, start, warmup_steps, seed, walks=walks, settles=settles)


def worthwhile(potential: Potential, num_chains: int, num_draws: int) -> bool:
    """Whether processes would save time: decided by sizes and not by a clock, so that a run can be repeated."""
    n = potential.x.shape[-2]
    return num_chains > 1 and num_cpus() > 1 and potential.x.device.type == "cpu" and n**3 * num_draws > WORTHWHILE


def chains_in_turn(make: ChainMaker, potential: Potential, plan: Plan) -> Chains:
    """Run one chain from each start, a draw of each in turn; Ctrl-C ends them all and keeps what there is."""
    runs = [
        Run(make(potential, start, plan.warmup_steps, seed), plan.file(number))
        for number, (start, seed) in enumerate(zip(plan.starts.points, plan.seeds, strict=True))
    ]
    interrupted = False
    with quiet_numbers():
        try:
            for step in range(plan.warmup_steps + plan.num_samples):
                for run in runs:
                    if run.chain.num_draws <= step:
                        run.step()
                    plan.bar.update()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for run in runs:
                run.save()
    chains = [run.chain for run in runs]
    return Chains(
        [run.found[: plan.num_samples] for run in runs],
        [c.step_size for c in chains],
        [c.is_dense for c in chains],
        interrupted,
    )


def joined(chains: Chains, potential: Potential, started: float, decisions: Mapping[str, bool]) -> Draws:
    """Chains as tensors, as long as the shortest, with the ``decisions`` they were made under."""
    length = min(len(draws) for draws in chains.found)
    if length == 0:
        raise KeyboardInterrupt("interrupted before the first draw after warm-up")
    found = [draws[:length] for draws in chains.found]
    u = np.stack([np.stack([draw.u for draw in draws]) for draws in found])

    def numbers(name: str) -> torch.Tensor:
        return torch.from_numpy(np.array([[getattr(draw, name) for draw in draws] for draws in found]))

    return Draws(
        torch.from_numpy(u),
        numbers("log_density").double(),
        numbers("diverging").bool(),
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations,
        num_refused=potential.num_refused,
        interrupted=chains.interrupted,
        energy=numbers("energy").double(),
        depth=numbers("depth").long(),
        details={"step_size": chains.step_sizes, "full_mass": chains.dense, **decisions},
    )
