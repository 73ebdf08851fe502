"""What a sampler hands back: the draws, with how it came by them; and the kernels that the draws are."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..learning.parameters import Vector
from .potential import Potential


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """What a sampler found.

    Attributes:
        u: raw draws, ``(num_chains, num_samples, dimension)``.
        log_density: log of the unnormalized posterior density of u, ``(num_chains, num_samples)``; of its approximation
            where ``is_approximate``.
        diverging: draws whose trajectory diverged, ``(num_chains, num_samples)``.
        seconds: wall-clock time.
        num_evaluations: of the potential, and how many of them were refused, ``num_refused``.
        interrupted: whether Ctrl-C ended it.
        log_evidence: log ∫ exp(−U) du, for samplers that estimate it.
        is_approximate: whether the draws are those of an approximation, the same for all chains.
        energy: of the trajectories, U + ½‖r‖² at each draw, ``(num_chains, num_samples)``, for samplers that have any.
        depth: how often each trajectory was doubled, likewise.
        details: what else the sampler has to say.
        num_refused: evaluations at points where the density does not exist.

    Example:
        >>> from kernel_embed.posteriors import Draws
        >>> zeros = torch.zeros(2, 10)
        >>> draws = Draws(torch.zeros(2, 10, 3), zeros, zeros.bool(), seconds=0.1, num_evaluations=20, num_refused=0)
        >>> draws.is_approximate
        False
    """

    u: Tensor
    log_density: Tensor
    diverging: Tensor
    seconds: float
    num_evaluations: int
    num_refused: int
    interrupted: bool = False
    log_evidence: float | None = None
    is_approximate: bool = False
    energy: Tensor | None = None
    depth: Tensor | None = None
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def at(self, keep: Tensor) -> Draws:
        """The draws with the numbers ``keep`` of each chain."""
        u, log_density, diverging = (values[:, keep] for values in (self.u, self.log_density, self.diverging))
        energy, depth = (None if values is None else values[:, keep] for values in (self.energy, self.depth))
        return dataclasses.replace(self, u=u, log_density=log_density, diverging=diverging, energy=energy, depth=depth)


class Drawn(NamedTuple):
    """One draw of a chain; as a row, its entries one after the other with the log density last."""

    u: Vector
    log_density: float
    energy: float
    depth: int
    diverging: bool

    def row(self) -> Vector:
        """As numbers."""
        return np.array([*self.u, self.energy, self.depth, self.diverging, self.log_density])

    @classmethod
    def of(cls, row: Vector) -> Drawn:
        """From numbers."""
        energy, depth, diverging, log_density = row[-4:].tolist()
        return cls(row[:-4].copy(), log_density, energy, int(depth), bool(diverging))


class Chains(NamedTuple):
    """What chains found one draw at a time; interrupted ones may not be equally long.

    Attributes:
        found: for each chain its draws after warm-up.
        step_sizes: for each chain, as adapted; none where it was not heard of again.
        dense: for each chain, whether its mass matrix is dense; likewise.
        interrupted: whether Ctrl-C ended them.
    """

    found: list[list[Drawn]]
    step_sizes: list[float]
    dense: list[bool]
    interrupted: bool


class KernelDraws(NamedTuple):
    """The kernels of all draws in pieces, as few as memory allows.

    Attributes:
        kernels: each with a leading batch dimension of b draws; or without one, a single draw, where the kernel cannot
            be batched.
        weights: of the draws in each piece, ``(b,)`` or ``(1,)``; all together sum to 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=5, sampler=ke.Laplace())
        >>> pieces = posterior.kernel_draws()
        >>> round(sum(weights.sum().item() for weights in pieces.weights), 6)
        1.0
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[Tensor, ...]


def independent_draws(
    potential: Potential,
    u: Tensor,
    log_density: Tensor,
    started: float,
    *,
    interrupted: bool = False,
    log_evidence: float | None = None,
    is_approximate: bool = False,
    details: Mapping[str, object] | None = None,
) -> Draws:
    """Draws of a sampler without trajectories, which cannot diverge.

    Args:
        potential: whose evaluations are counted.
        u: raw draws, ``(num_chains, num_samples, dimension)``.
        log_density: of the draws, ``(num_chains, num_samples)``.
        started: what ``time.perf_counter()`` said at the start.
        interrupted: whether Ctrl-C ended it.
        log_evidence: log ∫ exp(−U) du, where it is known.
        is_approximate: whether the draws are those of an approximation, the same for all chains.
        details: what else there is to say.

    Returns:
        The draws, with times and counts filled in.

    Example:
        >>> import time, gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> potential = ke.posteriors.Potential(embedding, ke.EmbeddingEvidence(), x, None)
        >>> u = torch.zeros(2, 10, potential.dimension, dtype=torch.float64)
        >>> draws = ke.posteriors.independent_draws(potential, u, torch.zeros(2, 10), started=time.perf_counter())
        >>> draws.diverging.any().item()
        False
    """
    return Draws(
        u,
        log_density,
        torch.zeros(log_density.shape, dtype=torch.bool),
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations,
        num_refused=potential.num_refused,
        interrupted=interrupted,
        log_evidence=log_evidence,
        is_approximate=is_approximate,
        details={} if details is None else details,
    )
