"""Chains in processes of their own: each writes its draws to a file, so that Ctrl-C loses none."""

from __future__ import annotations

import concurrent.futures
import contextlib
import pathlib
import tempfile
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from ...learning.parameters import Vector
from ...progress import ProgressBar
from ...threads import num_cpus
from ..checkpoint import ChainFile
from ..draws import Chains, Drawn
from ..potential import Potential, quiet_numbers
from ..starts import Plan
from .chain import Chain, Run

File: TypeAlias = "np.memmap[tuple[int, int], np.dtype[np.float64]]"
"""The draws of a chain, a row each (:class:`~kernel_embed.posteriors.draws.Drawn`); NaN where none is written yet."""


ChainMaker: TypeAlias = Callable[[Potential, Vector, int, int], Chain]
"""A chain from a potential, its start, its warm-up steps and its seed."""
Task: TypeAlias = tuple[ChainMaker, Potential, str, Vector, int, int, int, ChainFile | None]


class Finished(NamedTuple):
    """What a process says at its end; its draws are in its file."""

    num_evaluations: int
    num_refused: int
    step_size: float
    is_dense: bool


def chains_in_processes(make: ChainMaker, potential: Potential, plan: Plan) -> Chains:
    """Run one chain from each start, each in a process with one thread; Ctrl-C keeps what they have written."""
    starts, num_samples, warmup_steps = plan.starts.points, plan.num_samples, plan.warmup_steps
    shape = (warmup_steps + num_samples, potential.dimension + 4)
    with tempfile.TemporaryDirectory() as folder:
        files = [_new_file(pathlib.Path(folder) / f"chain{chain}", shape) for chain in range(len(starts))]
        tasks = [
            (make, potential, str(file.filename), start, seed, num_samples, warmup_steps, plan.file(number))
            for number, (file, start, seed) in enumerate(zip(files, starts, plan.seeds, strict=True))
        ]
        finished = _run_all(tasks, files, plan.bar)
        found = [[Drawn.of(row) for row in file[warmup_steps : _length(file)]] for file in files]
        del files
    potential.num_evaluations += sum(one.num_evaluations for one in finished)
    potential.num_refused += sum(one.num_refused for one in finished)
    step_sizes, dense = [one.step_size for one in finished], [one.is_dense for one in finished]
    return Chains(found, step_sizes, dense, interrupted=not finished)


def _run_all(tasks: Sequence[Task], files: Sequence[File], bar: ProgressBar) -> list[Finished]:
    """All chains, with the bar moving as their files fill; nothing where Ctrl-C ended them."""
    from joblib.externals.loky import ProcessPoolExecutor

    pool, interrupted = ProcessPoolExecutor(max_workers=min(len(tasks), num_cpus())), False
    try:
        futures = [pool.submit(_run, *task) for task in tasks]
        waiting = set(futures)
        while waiting:
            done, waiting = concurrent.futures.wait(waiting, timeout=0.5)
            bar.update(sum(_length(file) for file in files) - bar.n)
            for future in done:
                future.result()
        return [future.result() for future in futures]
    except KeyboardInterrupt:
        interrupted = True
        return []
    finally:
        pool.shutdown(wait=not interrupted, kill_workers=interrupted)


def _run(
    make: ChainMaker,
    potential: Potential,
    path: str,
    start: Vector,
    seed: int,
    num_samples: int,
    warmup_steps: int,
    checkpoint: ChainFile | None,
) -> Finished:
    """One chain, in its process; Ctrl-C on the terminal reaches it too and ends it quietly."""
    torch.set_num_threads(1)
    potential.num_evaluations = potential.num_refused = 0
    file = np.memmap(path, np.float64, "r+", shape=(warmup_steps + num_samples, potential.dimension + 4))
    run = Run(make(potential, start, warmup_steps, seed), checkpoint)
    with quiet_numbers(), contextlib.suppress(KeyboardInterrupt):
        done = min(run.chain.num_draws, len(file))
        file[: min(done, warmup_steps)] = 0.0  # the draws of a warm-up are not kept
        for row, draw in zip(file[warmup_steps:done], run.found, strict=False):
            row[:] = draw.row()
        for row in file[done:]:
            row[:] = run.step().row()
    run.save()
    return Finished(potential.num_evaluations, potential.num_refused, run.chain.step_size, run.chain.is_dense)


def _new_file(path: pathlib.Path, shape: tuple[int, int]) -> File:
    file = np.memmap(path, np.float64, "w+", shape=shape)
    file[:] = np.nan
    return file


def _length(file: File) -> int:
    """Draws written so far."""
    return int(np.isfinite(file[:, -1]).sum())
