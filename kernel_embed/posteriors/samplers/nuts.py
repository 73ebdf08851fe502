"""The No-U-Turn sampler, by Pyro: its options, and its chains, in turn or in processes."""

from __future__ import annotations

import concurrent.futures
import contextlib
import dataclasses
import math
import tempfile
from typing import ClassVar, NamedTuple

import numpy as np
import torch

from ...learning.parameters import Vector
from ...resources import few_threads, num_cpus
from ...validation import check_count, check_number, check_setting
from ..potential import Potential, quiet_numbers
from ..sampler import Checkpoint, Draws, Plan, Sampler
from .chain import Chain, FlatNUTS

DENSE_DIMENSIONS = 200
"""With more parameters the default mass matrix is diagonal."""

RANDOM_WALK_DIMENSIONS = 5
"""Up to this many parameters, Metropolis steps follow the draws of NUTS by default."""

WORTHWHILE = 2e10
"""Operations, counted as n³ per draw, above which processes save time: each then has seconds of work."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class NUTS(Sampler):
    """Pyro's No-U-Turn sampler; chains advance in turn, each with its own random numbers.

    Pyro adapts step size and mass matrix; trajectories are computed in NumPy, because for few data Pyro's graph and
    dictionaries cost more than the density.

    Args:
        target_accept_prob: the acceptance probability that the step size is adapted to; nearer 1, smaller steps.
        max_tree_depth: a draw takes at most 2 to this power evaluations.
        full_mass: use a dense mass matrix; ``None`` decides in the warm-up, dense if parameters correlate.
            ``posterior.draws.details["full_mass"]`` has the decision of each chain.
        step_size: initial step size.
        adapt_step_size: whether to adapt it during warm-up.
        adapt_mass_matrix: whether to adapt the mass matrix during warm-up.
        use_multinomial_sampling: select from a trajectory by weight; otherwise by slices.
        random_walk: take a random-walk step and an independent proposal after every draw, which step over ripples that
            slow NUTS down; ``None`` for up to five parameters. ``posterior.draws.details["random_walk"]`` has the
            decision.
        settle: random-walk steps before the first draw; ``None`` for starts from the prior.
        parallel: run chains in separate processes; ``None`` if that saves at least some seconds.

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
        check_trajectories(self.target_accept_prob, self.max_tree_depth)
        size = check_number("step_size", self.step_size)
        check_setting("step_size", size, 0 < size < math.inf, "above 0 and finite")

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """One chain from each start; Ctrl-C ends them all and keeps the draws so far."""
        sampler = self.decided(potential, plan)
        random_walk = bool(sampler.random_walk) and plan.warmup_steps > 0
        chains = (_run_in_processes if sampler.parallel else _run_in_turn)(sampler, potential, plan)
        length = min(len(draws) for draws in chains.draws)
        if length == 0:
            raise KeyboardInterrupt("interrupted before the first draw after warm-up")
        rows = torch.from_numpy(np.array([draws[:length] for draws in chains.draws]))
        energy, depth, diverging, log_density = rows[..., -4:].unbind(-1)
        details = {"step_size": chains.step_sizes, "full_mass": chains.are_dense, "random_walk": random_walk}
        return Draws(
            rows[..., :-4].contiguous(),
            log_density.contiguous(),
            diverging.bool(),
            interrupted=chains.interrupted,
            energy=energy.contiguous(),
            depth=depth.long(),
            details=details,
        )

    def decided(self, potential: Potential, plan: Plan) -> NUTS:
        """The same with a decision for every ``None``, by the sizes of the data and the plan, repeatably."""
        n, num_draws = potential.x.shape[-2], (plan.warmup_steps + plan.num_samples) * len(plan.starts)
        several = len(plan.starts) > 1 and num_cpus() > 1 and potential.x.device.type == "cpu"
        decisions = {
            "random_walk": potential.dimension <= RANDOM_WALK_DIMENSIONS,
            "settle": plan.from_prior,
            "parallel": several and n**3 * num_draws > WORTHWHILE,
        }
        if potential.dimension > DENSE_DIMENSIONS:
            decisions["full_mass"] = False
        return dataclasses.replace(self, **{k: value for k, value in decisions.items() if getattr(self, k) is None})

    def chain(
        self, potential: Potential, start: Vector, warmup_steps: int, seed: int, file: Checkpoint | None = None
    ) -> Chain:
        """One chain with these options, once they are :meth:`decided`."""
        names = ("full_mass", "step_size", "adapt_step_size", "adapt_mass_matrix", "use_multinomial_sampling")
        options = {name: getattr(self, name) for name in (*names, "target_accept_prob", "max_tree_depth")}
        kernel = FlatNUTS(potential, **options)
        random_walk, settles = (bool(option) and warmup_steps > 0 for option in (self.random_walk, self.settle))
        return Chain(kernel, potential, start, warmup_steps, seed, random_walk=random_walk, settles=settles, file=file)


def check_trajectories(target_accept_prob: float, max_tree_depth: int) -> None:
    """Check the options that every NUTS has."""
    accepted = check_number("target_accept_prob", target_accept_prob)
    check_setting("target_accept_prob", accepted, 0 < accepted < 1, "between 0 and 1")
    check_count("max_tree_depth", max_tree_depth)


class _Chains(NamedTuple):
    """Rows of all chains; interrupted ones may have different lengths, and no step size."""

    draws: list[list[Vector]]
    step_sizes: list[float]
    are_dense: list[bool]
    interrupted: bool


def _run_in_turn(sampler: NUTS, potential: Potential, plan: Plan) -> _Chains:
    """A draw of each chain in turn; Ctrl-C ends them all and keeps the draws so far."""
    chains = [
        sampler.chain(potential, start, plan.warmup_steps, seed, plan.checkpoint and plan.checkpoint.file(number))
        for number, (start, seed) in enumerate(zip(plan.starts, plan.seeds, strict=True))
    ]
    interrupted = False
    with quiet_numbers():
        try:
            for step in range(plan.warmup_steps + plan.num_samples):
                for chain in chains:
                    if chain.num_draws <= step:
                        chain.step()
                    plan.bar.update()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            for chain in chains:
                chain.save()
    draws = [chain.draws[: plan.num_samples] for chain in chains]
    step_sizes = [float(chain.kernel.step_size) for chain in chains]
    return _Chains(draws, step_sizes, [chain.kernel.is_dense for chain in chains], interrupted)


def _run_in_processes(sampler: NUTS, potential: Potential, plan: Plan) -> _Chains:
    """Each chain in a process with one thread; Ctrl-C keeps the draws that they have written."""
    from joblib.externals.loky import ProcessPoolExecutor

    total, width, finished, interrupted = plan.warmup_steps + plan.num_samples, potential.dimension + 4, [], False
    pool = ProcessPoolExecutor(max_workers=min(len(plan.seeds), num_cpus()))
    with tempfile.TemporaryDirectory() as folder:
        # The draws of each chain, one row each; NaN if not written yet.
        files = [
            np.memmap(f"{folder}/chain{number}", np.float64, "w+", shape=(total, width))
            for number in range(len(plan.seeds))
        ]
        try:
            futures = []
            for number, (file, start, seed) in enumerate(zip(files, plan.starts, plan.seeds, strict=True)):
                file[:] = np.nan
                own = plan.checkpoint and plan.checkpoint.file(number)
                task = sampler, potential, str(file.filename), file.shape, start, plan.warmup_steps, seed, own
                futures.append(pool.submit(_run, *task))
            waiting = set(futures)
            while waiting:
                done, waiting = concurrent.futures.wait(waiting, timeout=0.5)
                plan.bar.update(sum(map(_length, files)) - plan.bar.n)
                for future in done:
                    future.result()
            finished = [future.result() for future in futures]
        except KeyboardInterrupt:
            interrupted = True
        finally:
            pool.shutdown(wait=not interrupted, kill_workers=interrupted)
        draws = [list(np.array(file[plan.warmup_steps : _length(file)])) for file in files]
        del files, file
    potential.num_evaluations += sum(evaluations for evaluations, *_ in finished)
    potential.num_rejected += sum(rejected for _, rejected, *_ in finished)
    return _Chains(draws, [step for *_, step, _ in finished], [dense for *_, dense in finished], interrupted)


@few_threads(0)  # one thread for each process
def _run(
    sampler: NUTS, potential: Potential, path: str, shape: tuple[int, int],
    start: Vector, warmup_steps: int, seed: int, checkpoint: Checkpoint | None,
) -> tuple[int, int, float, bool]:  # fmt: skip
    """One chain, in its process; Ctrl-C on the terminal reaches it too and ends it quietly.

    Returns the counts of evaluations and rejections, the step size, and whether the mass matrix is dense.
    """
    potential.num_evaluations = potential.num_rejected = 0
    file = np.memmap(path, np.float64, "r+", shape=shape)
    chain = sampler.chain(potential, start, warmup_steps, seed, checkpoint)
    with quiet_numbers(), contextlib.suppress(KeyboardInterrupt):
        done = min(chain.num_draws, len(file))
        file[: min(done, warmup_steps)] = 0.0  # the draws of a warm-up are not kept
        for row, draw in zip(file[warmup_steps:done], chain.draws, strict=False):
            row[:] = draw
        for row in file[done:]:
            row[:] = chain.step()
    chain.save()
    return potential.num_evaluations, potential.num_rejected, float(chain.kernel.step_size), chain.kernel.is_dense


def _length(file: Vector) -> int:
    """Draws written so far."""
    return int(np.isfinite(file[:, -1]).sum())
