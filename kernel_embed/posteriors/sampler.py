"""The interface of samplers: what one receives (:class:`Plan`) and returns (:class:`Draws`), and files to resume."""

from __future__ import annotations

import abc
import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ..archive import load_checkpoint, save_checkpoint
from ..learning.parameters import Vector
from ..progress import ProgressBar
from .potential import Potential

SECONDS_BETWEEN = 10.0
"""Between two writes of a chain."""


class Checkpoint:
    """A file that a chain is written to while it runs, or the common beginning of the files of all chains.

    Args:
        path: of the file; of several, the number of the chain is appended.
        identity: settings that a file must have to belong to this posterior.

    Example:
        >>> Checkpoint("chains.pt", {"objective": "EmbeddingEvidence()"}).file(2).path
        'chains.pt.2'
    """

    def __init__(self, path: str, identity: Mapping[str, object]) -> None:
        self.path, self.identity, self.written = path, identity, time.monotonic()

    def file(self, chain: int) -> Checkpoint:
        """The file of one chain."""
        return Checkpoint(f"{self.path}.{chain}", {**self.identity, "chain": chain})

    def read(self) -> dict[str, Any] | None:
        """The content; ``None`` if there is no file."""
        return load_checkpoint(self.path, **self.identity)

    def is_due(self) -> bool:
        """Whether the last write was long enough ago."""
        return time.monotonic() - self.written >= SECONDS_BETWEEN

    def write(self, content: Mapping[str, object]) -> None:
        """Replace the file as a whole."""
        self.written = time.monotonic()
        save_checkpoint(self.path, {**self.identity, **content})


class Plan(NamedTuple):
    """The draws that a sampler is to make.

    Attributes:
        starts: a raw vector for each chain; empty for a sampler that needs none.
        num_samples: draws of each chain that are kept.
        warmup_steps: draws of each chain before them.
        seeds: one per chain; the same seeds give the same draws.
        bar: progress bar; it expects one step for each draw of each chain, unless it is ``reset``.
        checkpoint: files that chains are written to while they run, for samplers that can be resumed.
        from_prior: whether the starts are draws from the prior, which may lie far from the bulk of the posterior.

    Example:
        >>> from kernel_embed.posteriors import Plan
        >>> from kernel_embed.progress import progress_bar
        >>> bar = progress_bar(20, "sampling", show=False)
        >>> plan = Plan((), num_samples=10, warmup_steps=0, seeds=[0, 1], bar=bar)
        >>> len(plan.seeds)                                                  # two chains
        2
    """

    starts: Sequence[Vector]
    num_samples: int
    warmup_steps: int
    seeds: Sequence[int]
    bar: ProgressBar
    checkpoint: Checkpoint | None = None
    from_prior: bool = False


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The draws of all chains.

    Attributes:
        u: raw draws, ``(num_chains, num_samples, dimension)``.
        log_density: log of the unnormalized posterior density of u, ``(num_chains, num_samples)``; that of the
            approximation if ``is_approximate``.
        diverging: draws whose trajectory diverged, ``(num_chains, num_samples)``; none by default.
        seconds: wall-clock time; this and the next two are filled in by :func:`kernel_embed.sample_posterior`.
        num_evaluations: evaluations of the potential.
        num_rejected: evaluations at points where the density does not exist.
        interrupted: whether Ctrl-C ended the sampling.
        log_evidence: log ∫ exp(−U) du, for samplers that estimate it.
        is_approximate: whether the draws come from one approximation, the same for all chains.
        energy: U + ½‖r‖² at each draw, ``(num_chains, num_samples)``, for samplers with trajectories.
        depth: number of doublings of each trajectory, likewise.
        details: further results of the sampler.

    Example:
        >>> from kernel_embed.posteriors import Draws
        >>> draws = Draws(u=torch.zeros(2, 10, 3), log_density=torch.zeros(2, 10))
        >>> draws.diverging.any().item()
        False
    """

    u: Tensor
    log_density: Tensor
    diverging: Tensor = None  # type: ignore[assignment]
    seconds: float = 0.0
    num_evaluations: int = 0
    num_rejected: int = 0
    interrupted: bool = False
    log_evidence: float | None = None
    is_approximate: bool = False
    energy: Tensor | None = None
    depth: Tensor | None = None
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.diverging is None:
            object.__setattr__(self, "diverging", torch.zeros(self.log_density.shape, dtype=torch.bool))

    def at(self, keep: Tensor) -> Draws:
        """The draws with indices ``keep`` of each chain."""
        tensors: dict[str, Any] = {
            name: value[:, keep]
            for name in ("u", "log_density", "diverging", "energy", "depth")
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **tensors)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampler(abc.ABC):
    """A sampling method with its options; pass one to ``sample_posterior(…, sampler=…)``.

    To write your own, implement :meth:`sample` in a subclass: evaluate ``potential`` and return
    :class:`~kernel_embed.posteriors.Draws`.

    Example:
        >>> import numpy, torch, gpytorch, kernel_embed as ke
        >>> from kernel_embed.posteriors import Draws, Sampler
        >>> class AtTheStart(Sampler):
        ...     '''Every draw is the starting point of its chain.'''
        ...     def sample(self, potential, plan):
        ...         u = torch.from_numpy(numpy.stack(plan.starts)).unsqueeze(1).expand(-1, plan.num_samples, -1)
        ...         heights = torch.tensor([-potential.value(start) for start in plan.starts])
        ...         return Draws(u, heights.unsqueeze(1).expand(-1, plan.num_samples))
        >>> x = torch.linspace(-1, 1, 20, dtype=torch.float64).unsqueeze(-1)
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> posterior = ke.sample_posterior(
        ...     embedding, ke.EmbeddingEvidence(), x, num_samples=3, initial="current", sampler=AtTheStart()
        ... )
        >>> posterior.method, posterior.samples["kernel.lengthscale"].flatten()[:2]
        ('atthestart', tensor([0.6931, 0.6931], dtype=torch.float64))
    """

    uses_starts: ClassVar[bool] = True
    """Whether chains need starting points; False for a sampler that starts from the whole prior."""

    uses_warmup: ClassVar[bool] = False
    """Whether it discards ``warmup_steps`` draws."""

    is_independent: ClassVar[bool] = False
    """Whether draws are independent, so that convergence diagnostics do not apply."""

    can_resume: ClassVar[bool] = False
    """Whether it writes its chains to ``plan.checkpoint`` and resumes from there."""

    name: ClassVar[str]
    """Value of ``posterior.method``: the class name in lower case, unless the class sets another."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    @abc.abstractmethod
    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Draw from exp(−U).

        Args:
            potential: U, with ``value``, ``value_and_gradient`` and ``dimension``.
            plan: starting points, numbers of draws, seeds, and the progress bar.
        """


def check_draws(draws: Draws, sampler: Sampler, dimension: int) -> None:
    """Check the result of a user's sampler."""
    if not isinstance(draws, Draws):
        raise TypeError(f"{sampler!r} must return Draws, not {type(draws).__name__}.")
    shape = tuple(draws.u.shape)
    if len(shape) != 3 or shape[-1] != dimension or 0 in shape:
        raise ValueError(f"u of {sampler!r} must have the shape (num_chains, num_samples, {dimension}), not {shape}.")
    for name, values in (("log_density", draws.log_density), ("diverging", draws.diverging)):
        if values.shape != draws.u.shape[:2]:
            raise ValueError(f"{name} of {sampler!r} must have the shape {shape[:2]}, not {tuple(values.shape)}.")
