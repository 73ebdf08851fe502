"""The No-U-Turn sampler: adaptation by Pyro, trajectories in NumPy; chains run in turn or in processes, and resume."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix, WarmupAdapter, adapt_window
from torch import Tensor

from ..learning.parameters import Vector
from ..runtime import num_cpus
from ..validation import check_count, check_number, check_setting
from .draws import Draws
from .potential import SITE, Potential
from .sampler import Chains, Plan, Sampler, run_in_processes
from .transitions import RandomWalk, Trajectory, settle

DENSE_DIMENSIONS = 200  # with more parameters the default mass matrix is diagonal
RANDOM_WALK_DIMENSIONS = 5  # up to this many parameters, Metropolis steps follow the draws of NUTS by default
WORTHWHILE = 2e10  # operations, counted as n³ per draw, above which processes save time: each then has seconds of work
SHORT_WARMUP = 150  # steps below which Pyro's windows do not fit


@dataclasses.dataclass(frozen=True, kw_only=True)
class NUTS(Sampler):
    """Pyro's No-U-Turn sampler; chains advance in turn, each with its own random numbers.

    Pyro adapts step size and mass matrix; trajectories are computed in NumPy, because for few data Pyro's graph and
    dictionaries cost more than the density. ``posterior.draws.details`` has what was decided for ``None``.

    Args:
        target_accept_prob: the acceptance probability that the step size is adapted to; nearer 1, smaller steps.
        max_tree_depth: a draw takes at most 2 to this power evaluations.
        full_mass: use a dense mass matrix; ``None`` if parameters correlate in the warm-up.
        step_size: initial step size.
        adapt_step_size: whether to adapt it during warm-up.
        adapt_mass_matrix: whether to adapt the mass matrix during warm-up.
        use_multinomial_sampling: select from a trajectory by weight; otherwise by slices.
        random_walk: Metropolis steps after every draw, over ripples that slow NUTS down; ``None`` for up to five
            parameters.
        settle: random-walk steps before the first draw; ``None`` for starts from the prior.
        parallel: run chains in separate processes; ``None`` if that saves at least some seconds.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if a setting is out of its range.

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
        options = self.decided(potential, plan)
        run = run_in_processes if options.parallel else _run_in_turn
        chains, interrupted = run(functools.partial(Chain, options, plan._replace(bar=None)), plan, potential)
        length = min(len(rows) for rows, _ in chains)
        if length == 0:
            raise KeyboardInterrupt("interrupted before the first draw after warm-up")
        values = torch.from_numpy(np.array([rows[:length] for rows, _ in chains]))
        energy, depth, diverging, log_density = (column.contiguous() for column in values[..., -4:].unbind(-1))
        step_sizes, are_dense = ([result[i] for _, result in chains if result] for i in range(2))
        details = {"step_size": step_sizes, "full_mass": are_dense, "random_walk": options.random_walk}
        return Draws(
            values[..., :-4].contiguous(), log_density, diverging.bool(), interrupted=interrupted,
            energy=energy, depth=depth.long(), details=details,
        )  # fmt: skip

    def decided(self, potential: Potential, plan: Plan) -> NUTS:
        """The same with a decision for every ``None``, by the sizes of the data and the plan, repeatably."""
        n, num_draws = potential.x.shape[-2], (plan.warmup_steps + plan.num_samples) * len(plan.starts)
        several = len(plan.starts) > 1 and num_cpus() > 1 and potential.x.device.type == "cpu"
        defaults: dict[str, Any] = {
            "random_walk": potential.dimension <= RANDOM_WALK_DIMENSIONS,
            "settle": plan.from_prior,
            "parallel": several and n**3 * num_draws > WORTHWHILE,
            "full_mass": False if potential.dimension > DENSE_DIMENSIONS else None,
        }
        decisions = {name: value for name, value in defaults.items() if getattr(self, name) is None}
        if plan.warmup_steps == 0:  # Metropolis steps are adapted in the warm-up
            decisions |= {"random_walk": False, "settle": False}
        return dataclasses.replace(self, **decisions)


def check_trajectories(target_accept_prob: float, max_tree_depth: int) -> None:
    """Check the options that every NUTS has."""
    accepted = check_number("target_accept_prob", target_accept_prob)
    check_setting("target_accept_prob", accepted, 0 < accepted < 1, "between 0 and 1")
    check_count("max_tree_depth", max_tree_depth)


def _run_in_turn(make: Callable[..., Chain], plan: Plan, potential: Potential) -> tuple[Chains, bool]:
    """A draw of each chain in turn, and whether Ctrl-C ended them."""
    chains, interrupted = [make(potential, number) for number in range(len(plan.seeds))], False
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
    return [(chain.draws[: plan.num_samples], chain.adapted()) for chain in chains], interrupted


class Chain:
    """A chain with its own random numbers, written to a file from time to time and resumed from it.

    ``draws`` are those after the warm-up, each a row: u, energy, depth, whether it diverged, and the log density.
    """

    def __init__(self, options: NUTS, plan: Plan, potential: Potential, number: int) -> None:
        start, seed, warmup_steps = plan.starts[number], plan.seeds[number], plan.warmup_steps
        self.potential, self.warmup_steps = potential, warmup_steps
        self.file = plan.checkpoint and plan.checkpoint.file(number)
        self.generator, self.torch_generator = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
        self.random_walk = RandomWalk(len(start), self.generator) if options.random_walk else None
        names = ("step_size", "adapt_step_size", "target_accept_prob", "adapt_mass_matrix")
        self.adapter = _Windows(**{name: getattr(options, name) for name in names})
        if options.full_mass is None:
            self.adapter.mass_matrix_adapter = _AdaptiveMass()
        shape = (len(start),) if options.full_mass is False else (len(start), len(start))
        self.adapter.configure(
            warmup_steps, None, {(SITE,): shape}, self._reasonable_step_size, {"dtype": torch.float64}
        )
        evaluate, multinomial = potential.value_and_gradient, options.use_multinomial_sampling
        self.trajectory = Trajectory(evaluate, np.ones(1), 1.0, options.max_tree_depth, self.generator, multinomial)
        self.draws: list[Vector] = []
        self.num_draws, self.is_between_draws = 0, True
        self.slope: Vector | None = None  # ∂U/∂u, evaluated when the next draw needs it
        content = None if self.file is None else self.file.read()
        if content is not None:
            self._restore(content)
            return
        self.u = settle(potential, start, self.generator) if options.settle else start
        self.value, self.slope = potential.value_and_gradient(self.u)
        if options.adapt_step_size:
            self.adapter.reset_step_size_adaptation(self.u)
        state = torch.randint(2**62, (), generator=self.torch_generator, device="cpu")
        self.trajectory.generator = np.random.default_rng(int(state))

    def step(self) -> Vector:
        """One more draw; kept in :attr:`draws` after the warm-up."""
        self.is_between_draws = False
        if self.slope is None:
            self.value, self.slope = self.potential.value_and_gradient(self.u)
        self._read_adapted()
        state, depth, accept_prob, diverging = self.trajectory.draw(self.u, self.value, self.slope)
        self.u, self.value, self.slope = state.u, state.value, state.slope
        steps_left = self.warmup_steps - self.num_draws
        self.num_draws += 1
        if steps_left > 0:
            self.adapter.step(self.num_draws, {SITE: torch.from_numpy(self.u)}, np.float64(accept_prob))
        if self.random_walk is not None:
            self.u, self.value = self.random_walk.move(self.potential, (self.u, self.value), steps_left)
            self.slope = self.slope if self.u is state.u else None
        draw = np.array([*self.u, state.energy, depth, diverging, -self.value])
        if steps_left <= 0:
            self.draws.append(draw)
        self.is_between_draws = True
        if self.file is not None and self.file.is_due():
            self.save()
        return draw

    def adapted(self) -> tuple[float, bool]:
        """The step size, and whether the mass matrix has off-diagonal entries."""
        (mass,) = self.adapter.mass_matrix_adapter.inverse_mass_matrix.values()
        is_dense = mass.dim() == 2 and bool((mass != torch.diag_embed(mass.diagonal())).any())
        return float(self.adapter.step_size), is_dense

    def _read_adapted(self) -> None:
        """Copy the current step size and mass matrix from Pyro."""
        self.trajectory.step_size = float(self.adapter.step_size)
        (factor,) = self.adapter.mass_matrix_adapter._mass_matrix_sqrt_inverse.values()
        self.trajectory.factor = (factor.mT if factor.dim() == 2 else factor).numpy()

    def _reasonable_step_size(self, _: object) -> float:
        self._read_adapted()
        assert self.slope is not None  # it is that of the last draw
        draw = functools.partial(torch.randn, len(self.u), generator=self.torch_generator, dtype=torch.float64)
        return self.trajectory.reasonable_step_size(self.u, self.value, self.slope, lambda: draw().numpy())

    def save(self) -> None:
        """Write the chain, unless it was interrupted inside a draw: then the file keeps its last state."""
        if self.file is None or not self.is_between_draws:
            return
        adapter = self.adapter
        state = {
            "u": self.u,
            "num_draws": self.num_draws,
            "generators": [json.dumps(g.bit_generator.state) for g in (self.generator, self.trajectory.generator)],
            "torch": self.torch_generator.get_state(),
            "random_walk": None if self.random_walk is None else self.random_walk.state(),
            "step_size": float(adapter.step_size),
            "window": adapter._current_window,
            "averaging": dict(vars(adapter._step_size_adapt_scheme)) if adapter.adapt_step_size else {},
            "mass": next(iter(adapter.mass_matrix_adapter.inverse_mass_matrix.values())),
            "moments": [dict(vars(scheme)) for scheme in adapter.mass_matrix_adapter._adapt_scheme.values()],
        }
        self.file.write({"state": state, "draws": np.array(self.draws).reshape(-1, len(self.u) + 4)})

    def _restore(self, content: Mapping[str, Any]) -> None:
        self.draws, state, adapter = list(content["draws"]), content["state"], self.adapter
        self.u, self.num_draws = state["u"], state["num_draws"]
        self.trajectory.generator = np.random.default_rng()
        for generator, text in zip((self.generator, self.trajectory.generator), state["generators"], strict=True):
            generator.bit_generator.state = json.loads(text)
        self.torch_generator.set_state(state["torch"])
        if self.random_walk is not None:
            self.random_walk.restore(state["random_walk"])
        adapter.step_size, adapter._current_window = state["step_size"], state["window"]
        adapter.mass_matrix_adapter.inverse_mass_matrix = {(SITE,): state["mass"]}
        if adapter.adapt_step_size:
            adapter._step_size_adapt_scheme.__dict__.update(state["averaging"])
        for scheme, moments in zip(adapter.mass_matrix_adapter._adapt_scheme.values(), state["moments"], strict=True):
            vars(scheme).update(moments)


class _Windows(WarmupAdapter):
    """Pyro's windows, but short warm-ups leave a third of the steps, not a tenth, to the last mass matrix."""

    def _build_adaptation_schedule(self) -> list[adapt_window]:
        total = self._warmup_steps
        if not 20 <= total < SHORT_WARMUP:
            schedule: list[adapt_window] = super()._build_adaptation_schedule()
            return schedule
        ends = (round(0.15 * total), total - round(0.35 * total), total)
        return [adapt_window(start, end - 1) for start, end in zip((0, *ends), ends, strict=False)]


class _AdaptiveMass(BlockMassMatrix):
    """A dense mass matrix if the draws of a window correlate by more than chance, otherwise a diagonal one."""

    def end_adaptation(self) -> None:
        """Decide by the draws of the window that ends here."""
        ((names, scheme),) = self._adapt_scheme.items()
        covariance = scheme.get_covariance(regularize=True)
        is_dense = correlate(covariance, scheme.n_samples)
        self.inverse_mass_matrix = {names: covariance if is_dense else torch.diag_embed(covariance.diagonal())}


def correlate(covariance: Tensor, num_draws: int) -> bool:
    r"""Whether parameters correlate by more than chance; draws of a chain count as half as many.

    The correlation matrix of N draws of d independent numbers has a condition number of about
    :math:`((1 + \sqrt{d/N}) / (1 - \sqrt{d/N}))^2` (Marchenko and Pastur).
    """
    spread = covariance.diagonal().sqrt()
    ratio = math.sqrt(2.0 * len(spread) / max(1, num_draws))
    if ratio >= 1.0:
        return False
    eigenvalues = torch.linalg.eigvalsh(covariance / torch.outer(spread, spread))
    return bool(eigenvalues[-1] > ((1.0 + ratio) / (1.0 - ratio)) ** 2 * eigenvalues[0])
