"""Chains in processes of their own: each writes its draws to a file, so that Ctrl-C loses none."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import tempfile
import time
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import torch

from ...learning.parameters import Vector
from ...progress import ProgressBar
from ..draws import Draws, collect, quiet_numbers
from ..potential import Potential
from .chain import ChainMaker

File: TypeAlias = "np.memmap[tuple[int, int], np.dtype[np.float64]]"
"""The draws of a chain, a row each: u and log density; NaN where none is written yet."""
Task: TypeAlias = tuple[ChainMaker, Potential, str, Vector, int, int, int]

WORTHWHILE = 2e10
"""Operations, counted as n³ for each draw, above which starting processes pays: seconds of work for each of them."""


def worthwhile(potential: Potential, num_chains: int, steps: int) -> bool:
    """Whether processes would save time: decided by sizes and not by a clock, so that a run can be repeated."""
    n = potential.x.shape[-2]
    return num_chains > 1 and num_cpus() > 1 and potential.x.device.type == "cpu" and n**3 * steps > WORTHWHILE


def num_cpus() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Finished(NamedTuple):
    """What a process says at its end; its draws are in its file."""

    divergences: list[int]
    num_evaluations: int
    num_refused: int
    step_size: float


def chains_in_processes(
    make: ChainMaker,
    potential: Potential,
    starts: Sequence[Vector],
    num_samples: int,
    warmup_steps: int,
    seeds: Sequence[int],
    bar: ProgressBar,
) -> Draws:
    """As :func:`kernel_embed.posteriors.samplers.chain.chains_in_turn`, each chain in a process with one thread."""
    started = time.perf_counter()
    shape = (warmup_steps + num_samples, potential.dimension + 1)
    with tempfile.TemporaryDirectory() as folder:
        files = [_new_file(pathlib.Path(folder) / f"chain{chain}", shape) for chain in range(len(starts))]
        tasks = [
            (make, potential, str(file.filename), start, seed, num_samples, warmup_steps)
            for file, start, seed in zip(files, starts, seeds, strict=True)
        ]
        finished = _run_all(tasks, files, bar)
        length = min(_length(file) for file in files)
        if length <= warmup_steps:
            raise KeyboardInterrupt("interrupted before the first draw after warm-up")
        found = [[(row[:-1].copy(), float(row[-1])) for row in file[warmup_steps:length]] for file in files]
        del files
    return collect(
        found,
        [one.divergences for one in finished] or [[] for _ in starts],
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations + sum(one.num_evaluations for one in finished),
        num_refused=potential.num_refused + sum(one.num_refused for one in finished),
        interrupted=not finished,
        details={"step_size": [one.step_size for one in finished]},
    )


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
    make: ChainMaker, potential: Potential, path: str, start: Vector, seed: int, num_samples: int, warmup_steps: int
) -> Finished:
    """One chain, in its process; Ctrl-C on the terminal reaches it too and ends it quietly."""
    torch.set_num_threads(1)
    potential.num_evaluations = potential.num_refused = 0
    file = np.memmap(path, np.float64, "r+", shape=(warmup_steps + num_samples, potential.dimension + 1))
    with quiet_numbers(), contextlib.suppress(KeyboardInterrupt):
        chain = make(potential, start, warmup_steps, seed)
        for row in file:
            u, log_density = chain.step()
            row[:] = [*u, log_density]
    return Finished(chain.divergences, potential.num_evaluations, potential.num_refused, chain.step_size)


def _new_file(path: pathlib.Path, shape: tuple[int, int]) -> File:
    file = np.memmap(path, np.float64, "w+", shape=shape)
    file[:] = np.nan
    return file


def _length(file: File) -> int:
    """Draws written so far."""
    return int(np.isfinite(file[:, -1]).sum())
