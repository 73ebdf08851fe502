"""Where chains start: draws from the prior at which the posterior exists, or what the user gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..learning.parameters import Vector
from ..progress import ProgressBar
from .checkpoint import ChainFile, Checkpoint
from .potential import Potential

Initial = Literal["prior", "current"] | Mapping[str, Tensor]
TRIES = 200


class Starts(NamedTuple):
    """Where chains start.

    Attributes:
        points: one raw vector for each chain; none for a sampler that needs none.
        from_prior: whether they are draws of the prior, and so may lie far from where the posterior has its mass.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.posteriors import Starts
        >>> len(Starts(points=(np.zeros(2), np.ones(2))).points)             # two chains
        2
    """

    points: tuple[Vector, ...] = ()
    from_prior: bool = False


class Plan(NamedTuple):
    """What a sampler is asked for.

    Attributes:
        starts: a raw vector for each chain, in ``starts.points``.
        num_samples: draws of each chain that are kept.
        warmup_steps: draws of each chain before them.
        seeds: one for each chain: the same seeds give the same draws.
        bar: to be told of progress; it expects one step for each draw of each chain, unless it is ``reset``.
        checkpoint: where chains are written while they run, for samplers that can be resumed.

    Example:
        >>> from kernel_embed.posteriors import Plan, Starts
        >>> from kernel_embed.progress import progress_bar
        >>> bar = progress_bar(20, "sampling", show=False)
        >>> plan = Plan(Starts(), num_samples=10, warmup_steps=0, seeds=[0, 1], bar=bar)
        >>> len(plan.seeds)                                                  # two chains
        2
    """

    starts: Starts
    num_samples: int
    warmup_steps: int
    seeds: Sequence[int]
    bar: ProgressBar
    checkpoint: Checkpoint | None = None

    def file(self, chain: int) -> ChainFile | None:
        """Where a chain is written; ``None`` where it is not."""
        return None if self.checkpoint is None else self.checkpoint.file(chain)


def starting_points(potential: Potential, initial: Initial, num_chains: int, seed: int) -> Starts:
    """One raw vector for each chain.

    Args:
        potential: of the posterior.
        initial: ``"prior"`` draws from it; ``"current"`` is the embedding as it is; or values by name, with a leading
            dimension of ``num_chains`` or for all chains alike.
        num_chains: how many.
        seed: of the draws.
    """
    current = potential.vector.get()
    if isinstance(initial, Mapping):
        points = [_given(potential, current, initial, chain, num_chains) for chain in range(num_chains)]
    elif initial == "current":
        points = [current.copy() for _ in range(num_chains)]
    elif initial == "prior":
        points = prior_draws(potential, num_chains, seed)
    else:
        raise ValueError(
            f"Expected initial to be 'prior', 'current' or values by name, got {initial!r}. Choose one of these."
        )
    for point in points:
        if not math.isfinite(potential.value(point)):
            raise ValueError(
                "Expected starting points with a finite posterior density, got one without "
                f"({_text(potential, point)}). Start elsewhere: initial='prior', or other values."
            )
    return Starts(tuple(points), initial == "prior")


def prior_draws(potential: Potential, count: int, seed: int) -> list[Vector]:
    """Draws of the prior at which the likelihood exists; the others are drawn again."""
    current = potential.vector.get()
    points: list[Vector] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(count):
            for _ in range(TRIES):
                point = prior_draw(potential, current)
                if point is not None and math.isfinite(potential.value(point)):
                    break
            else:
                raise ValueError(
                    f"Expected a prior under which the objective can be evaluated, got none of {TRIES} draws at which "
                    "K factorizes and every value is finite: the prior puts its mass where the kernel is not valid. "
                    "Narrow it, or start at initial='current'."
                )
            points.append(point)
    return points


def prior_draw(potential: Potential, current: Vector) -> Vector | None:
    """One draw of the prior by the global generator; ``None`` where it violates a constraint."""
    potential.vector.set(current)
    try:
        for site in potential.sites:
            if site.raw is not None:
                site.set(site.draw())
    except ValueError:
        return None
    point = potential.vector.get()
    return point if np.isfinite(point).all() else None


def _given(potential: Potential, current: Vector, initial: Mapping[str, Tensor], chain: int, num_chains: int) -> Vector:
    potential.vector.set(current)
    shapes = {name: value.shape for name, value in potential.constrained(torch.from_numpy(current)).items()}
    chosen = {}
    for name, values in initial.items():
        values = torch.as_tensor(values)
        by_chain = values.dim() > len(shapes.get(name, ())) and values.shape[0] == num_chains
        by_chain = by_chain or (values.dim() == 1 and len(values) == num_chains > 1)
        chosen[name] = values[chain] if by_chain else values
    return potential.unconstrained(chosen)


def _text(potential: Potential, point: Vector) -> str:
    values = potential.constrained(torch.from_numpy(point))
    return ", ".join(f"{name} = {value.flatten()[:4].tolist()}" for name, value in values.items())
