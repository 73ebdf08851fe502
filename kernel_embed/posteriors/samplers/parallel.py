"""Chains in processes of their own: each writes its draws to a file, so that Ctrl-C loses none."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pathlib
import tempfile
import time
from typing import Any

import numpy as np
import torch

from ...learning.parameters import Vector
from ..potential import Potential
from .nuts import Chain, Draws, collect, dense_mass, quiet_numbers

WORTHWHILE = 2e10
"""Operations, counted as n³ for each draw, above which starting processes pays: seconds of work for each of them."""


def worthwhile(potential: Potential, num_chains: int, steps: int) -> bool:
    """Whether processes would save time: decided by sizes and not by a clock, so that a run can be repeated."""
    n = potential.x.shape[-2]
    return num_chains > 1 and num_cpus() > 1 and potential.x.device.type == "cpu" and n**3 * steps > WORTHWHILE


def num_cpus() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def parallel_nuts(
    potential: Potential,
    starts: list[Vector],
    num_samples: int,
    warmup_steps: int,
    seeds: list[int],
    options: dict[str, Any],
    bar: Any,
) -> Draws:
    """As :func:`kernel_embed.posteriors.samplers.nuts.nuts`, each chain in a process with one thread."""
    from joblib.externals.loky import ProcessPoolExecutor

    options = dense_mass(potential, options)
    started, interrupted = time.perf_counter(), False
    rows, width = warmup_steps + num_samples, potential.dimension + 1
    with tempfile.TemporaryDirectory() as folder:
        paths = [str(pathlib.Path(folder) / f"chain{chain}") for chain in range(len(starts))]
        files = [np.memmap(path, np.float64, "w+", shape=(rows, width)) for path in paths]
        for file in files:
            file[:] = np.nan
        pool = ProcessPoolExecutor(max_workers=min(len(starts), num_cpus()))
        try:
            settings = zip(paths, starts, seeds, strict=True)
            tasks = [
                pool.submit(_run, potential, path, start, seed, num_samples, warmup_steps, options)
                for path, start, seed in settings
            ]
            waiting = set(tasks)
            while waiting:
                done, waiting = concurrent.futures.wait(waiting, timeout=0.5)
                bar.update(sum(_length(file) for file in files) - bar.n)
                for task in done:
                    task.result()
            finished = [task.result() for task in tasks]
        except KeyboardInterrupt:
            interrupted, finished = True, []
        finally:
            pool.shutdown(wait=not interrupted, kill_workers=interrupted)
        length = min(_length(file) for file in files)
        if length <= warmup_steps:
            raise KeyboardInterrupt("interrupted before the first draw after warm-up")
        found = [[(row[:-1].copy(), float(row[-1])) for row in file[warmup_steps:length]] for file in files]
        del files
    return collect(
        found,
        [divergences for divergences, _, _, _ in finished] or [[] for _ in starts],
        seconds=time.perf_counter() - started,
        num_evaluations=potential.num_evaluations + sum(evaluations for _, evaluations, _, _ in finished),
        num_refused=potential.num_refused + sum(refused for _, _, refused, _ in finished),
        interrupted=interrupted,
        details={"step_size": [step_size for _, _, _, step_size in finished]},
    )


def _run(
    potential: Potential,
    path: str,
    start: Vector,
    seed: int,
    num_samples: int,
    warmup_steps: int,
    options: dict[str, Any],
) -> tuple[list[int], int, int, float]:
    """One chain, in its process; Ctrl-C on the terminal reaches it too and ends it quietly."""
    torch.set_num_threads(1)
    potential.num_evaluations = potential.num_refused = 0
    file = np.memmap(path, np.float64, "r+", shape=(warmup_steps + num_samples, potential.dimension + 1))
    with quiet_numbers(), contextlib.suppress(KeyboardInterrupt):
        chain = Chain(potential, start, warmup_steps, seed, options)
        for row in file:
            u, log_density = chain.step()
            row[:] = [*u, log_density]
    return chain.divergences, potential.num_evaluations, potential.num_refused, float(chain.kernel.step_size)


def _length(file: Any) -> int:
    """Draws written so far."""
    return int(np.isfinite(file[:, -1]).sum())
