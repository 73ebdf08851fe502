"""The No-U-Turn sampler, by Pyro, with random-walk steps where they help."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

import pyro.infer

from ...learning.parameters import Vector
from ...progress import ProgressBar
from ..draws import Draws
from ..potential import Potential
from ..starts import Starts
from .base import Sampler, require
from .chain import Chain, chains_in_turn
from .parallel import chains_in_processes, worthwhile

DENSE_DIMENSIONS = 20
"""Up to so many parameters the mass matrix is dense by default."""

WALK_DIMENSIONS = 5
"""Up to so many parameters NUTS is joined by a random walk."""


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
            five parameters.
        settle: random-walk steps before the first draw; ``None`` for starts from the prior.
        parallel: run chains in processes of their own; ``None`` where it saves at least some seconds.

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
        require("target_accept_prob", self.target_accept_prob, 0 < self.target_accept_prob < 1, "between 0 and 1")
        require("max_tree_depth", self.max_tree_depth, self.max_tree_depth >= 1, "of at least 1")
        require("step_size", self.step_size, self.step_size > 0, "above 0")

    def sample(
        self,
        potential: Potential,
        starts: Starts,
        num_samples: int,
        warmup_steps: int,
        seeds: list[int],
        bar: ProgressBar,
    ) -> Draws:
        """One chain from each start; Ctrl-C ends them all and keeps what there is."""
        decided = self.decided(potential, starts, (warmup_steps + num_samples) * len(seeds))
        run = chains_in_processes if decided.parallel else chains_in_turn
        return run(decided.chain, potential, starts.points, num_samples, warmup_steps, seeds, bar)

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
