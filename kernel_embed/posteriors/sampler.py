"""The interface of samplers: what one receives (:class:`Plan`), files to resume, and chains in processes."""

from __future__ import annotations

import abc
import concurrent.futures
import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ..archive import load_checkpoint, save_checkpoint
from ..learning.parameters import Vector
from ..runtime import ProgressBar, few_threads, num_cpus
from .draws import Draws
from .potential import Potential, quiet_numbers

SECONDS_BETWEEN = 10.0  # between two writes of a chain
Chains = list[tuple[list[Vector], Any]]  # of each its draws, as rows, and what it adapted; ``None`` if interrupted


class Checkpoint:
    """The files of chains, ``path.0`` and so on; ``identity`` is what a file of the same posterior has."""

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
        bar: progress bar of tqdm; it expects one step for each draw of each chain, unless it is ``reset``.
        checkpoint: files of the chains, for samplers that can be resumed.
        from_prior: whether the starts are draws from the prior.

    Example:
        >>> len(Plan((), num_samples=10, warmup_steps=0, seeds=[0, 1], bar=None).seeds)          # two chains
        2
    """

    starts: Sequence[Vector]
    num_samples: int
    warmup_steps: int
    seeds: Sequence[int]
    bar: ProgressBar
    checkpoint: Checkpoint | None = None
    from_prior: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sampler(abc.ABC):
    """A sampling method with its options; pass one to ``sample_posterior(…, sampler=…)``.

    To write your own, implement :meth:`sample` in a subclass. ``name`` is the class name in lower case, unless the
    class sets another.

    Example:
        >>> import torch
        >>> class AtTheStart(Sampler):
        ...     def sample(self, potential, plan):
        ...         u = torch.tensor(np.stack(plan.starts)).unsqueeze(1).expand(-1, plan.num_samples, -1)
        ...         heights = torch.tensor([-potential.value(start) for start in plan.starts])
        ...         return Draws(u, heights.unsqueeze(1).expand(-1, plan.num_samples))
        >>> AtTheStart().name
        'atthestart'
    """

    uses_starts: ClassVar[bool] = True
    """Whether chains need starting points."""
    uses_warmup: ClassVar[bool] = False
    """Whether it discards ``warmup_steps`` draws."""
    is_independent: ClassVar[bool] = False
    """Whether draws are independent, so that convergence diagnostics do not apply."""
    can_resume: ClassVar[bool] = False
    """Whether it writes its chains to ``plan.checkpoint`` and resumes from there."""
    name: ClassVar[str]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "name" not in vars(cls):
            cls.name = cls.__name__.lower()

    @abc.abstractmethod
    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Draw from exp(−U), U being ``potential``, as ``plan`` says."""


def run_in_processes(make: Callable[..., Any], plan: Plan, potential: Potential) -> tuple[Chains, bool]:
    """Each chain ``make(potential, number)`` in a process with one thread, and whether Ctrl-C ended them.

    Ctrl-C keeps the draws that the processes have written. A row of their files has a draw and four numbers about it,
    and is complete if the last of them is finite.
    """
    from joblib.externals.loky import ProcessPoolExecutor

    shape = plan.warmup_steps + plan.num_samples, potential.dimension + 4
    pool, interrupted = ProcessPoolExecutor(min(len(plan.seeds), num_cpus())), False
    results: list[Any] = [None] * len(plan.seeds)
    with tempfile.TemporaryDirectory() as folder:
        # The draws of each chain, one row each; NaN if not written yet.
        files = [np.memmap(f"{folder}/{number}", np.float64, "w+", shape=shape) for number in range(len(plan.seeds))]
        for file in files:
            file[:] = np.nan
        try:
            tasks = [(str(file.filename), shape, plan.warmup_steps, potential, i) for i, file in enumerate(files)]
            futures = [pool.submit(_run_in_process, make, *task) for task in tasks]
            waiting = set(futures)
            while waiting:
                done, waiting = concurrent.futures.wait(waiting, timeout=0.5)
                plan.bar.update(sum(map(_length, files)) - plan.bar.n)
                for future in done:
                    future.result()
            results = [future.result() for future in futures]
        except KeyboardInterrupt:
            interrupted = True
        finally:
            pool.shutdown(wait=not interrupted, kill_workers=interrupted)
        draws = [list(np.array(file[plan.warmup_steps : _length(file)])) for file in files]
        del files, file
    for counts, _ in filter(None, results):
        potential.num_evaluations += counts[0]
        potential.num_rejected += counts[1]
    return [(rows, result and result[1]) for rows, result in zip(draws, results, strict=True)], interrupted


@few_threads(0)  # one thread for each process
def _run_in_process(
    make: Callable[..., Any], path: str, shape: tuple[int, int], warmup_steps: int, potential: Potential, number: int
) -> tuple[tuple[int, int], Any]:
    """One chain: its counts of evaluations, and what it adapted. Ctrl-C on the terminal reaches it too."""
    potential.num_evaluations = potential.num_rejected = 0
    file = np.memmap(path, np.float64, "r+", shape=shape)
    with quiet_numbers():
        chain = make(potential, number)
        with contextlib.suppress(KeyboardInterrupt):
            done = min(chain.num_draws, len(file))
            file[: min(done, warmup_steps)] = 0.0  # the draws of a warm-up are not kept
            for row, draw in zip(file[warmup_steps:done], chain.draws, strict=False):
                row[:] = draw
            for row in file[done:]:
                row[:] = chain.step()
    chain.save()
    return (potential.num_evaluations, potential.num_rejected), chain.adapted()


def _length(file: Vector) -> int:
    """Draws written so far."""
    return int(np.isfinite(file[:, -1]).sum())
