"""One chain of NUTS with its own random numbers: Pyro's adaptation, our trajectories, checkpoints."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyro.infer
import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix, WarmupAdapter, adapt_window
from torch import Tensor

from ...learning.parameters import Vector
from ..potential import SITE, Potential
from ..sampler import Checkpoint
from .transitions import Draw, RandomWalk, Trajectory, settle

SHORT_WARMUP = 150
"""Steps below which Pyro's windows do not fit."""

ADAPTED = ("step_size", "adapt_step_size", "target_accept_prob", "adapt_mass_matrix", "dense_mass")
"""Options of Pyro's adapter, which are also its attributes."""


class FlatNUTS(pyro.infer.NUTS):
    """Pyro's NUTS for a potential that is a function of one vector and supplies its gradient.

    Pyro adapts windows, step size and mass matrix, and it runs under ``pyro.infer.MCMC``. Only the trajectory is ours
    (:class:`~kernel_embed.posteriors.samplers.transitions.Trajectory`): for few data, the graph and the dictionaries of
    Pyro's tree cost more than the density.

    With ``full_mass=None`` the mass matrix is dense if parameters correlate in the warm-up. ``options`` are Pyro's.
    """

    last: Draw

    def __init__(self, potential: Potential, *, full_mass: bool | None = None, **options: Any) -> None:
        super().__init__(potential_fn=potential, full_mass=full_mass is not False, **options)
        self._adapter: Any = _Windows(**{name: getattr(vars(self)["_adapter"], name) for name in ADAPTED})
        if full_mass is None:
            self.mass_matrix_adapter = _AdaptiveMass()
        self._params: dict[str, Tensor] | None = None
        self._mass: Tensor | None = None

    def setup(self, warmup_steps: int, *args: object, **kwargs: object) -> None:
        """Pyro's setup, and a generator seeded by torch's."""
        super().setup(warmup_steps, *args, **kwargs)
        generator = np.random.default_rng(int(torch.randint(2**62, ())))
        self._trajectory = Trajectory(
            self.potential_fn.value_and_gradient, np.ones(1), 1.0, self._max_tree_depth, generator,
            self.use_multinomial_sampling,
        )  # fmt: skip

    @property
    def is_dense(self) -> bool:
        """Whether the mass matrix has off-diagonal entries."""
        masses = self.inverse_mass_matrix.values()
        return any(mass.dim() == 2 and bool((mass != torch.diag_embed(mass.diagonal())).any()) for mass in masses)

    def sample(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """One draw starting at ``params``."""
        if params is not self._params:
            u = params[SITE].detach().numpy()
            value, slope = self.potential_fn.value_and_gradient(u)
        else:
            u, value, slope, *_ = self.last
        self._read_adapted()
        self.last = draw = self._trajectory.draw(u, value, slope)
        self._params = {SITE: torch.from_numpy(draw.u)}
        # Pyro's own counts, and its adaptation in the warm-up.
        self._t += 1
        number = self._t - self._warmup_steps
        if number > 0:
            self._accept_cnt += int(draw.moved)
            if draw.diverging:
                self._divergences.append(number - 1)
        else:
            number = self._t
            self._adapter.step(self._t, self._params, np.float64(draw.accept_prob))
        self._mean_accept_prob += (draw.accept_prob - self._mean_accept_prob) / number
        return self._params

    def _read_adapted(self) -> None:
        """Copy the current step size and mass matrix from Pyro."""
        self._trajectory.step_size = float(self.step_size)
        (mass,) = self.inverse_mass_matrix.values()
        if mass is not self._mass:
            self._mass = mass
            factor = mass.sqrt() if mass.dim() == 1 else torch.linalg.cholesky(mass)
            self._trajectory.factor = factor.double().numpy()

    def state(self) -> dict[str, Any]:
        """Everything that the next draw depends on, as numbers, tensors and text."""
        adapter, (mass,) = self._adapter, self.inverse_mass_matrix.values()
        averaging = vars(adapter._step_size_adapt_scheme) if adapter.adapt_step_size else {}
        return {
            "number": self._t,
            "generator": json.dumps(self._trajectory.generator.bit_generator.state),
            "divergences": list(self._divergences),
            "counts": [self._accept_cnt, self._mean_accept_prob],
            "step_size": float(adapter.step_size),
            "window": adapter._current_window,
            "mass": mass,
            "averaging": dict(averaging),
            "moments": [dict(vars(scheme)) for scheme in self.mass_matrix_adapter._adapt_scheme.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from :meth:`state`, after :meth:`setup`."""
        adapter = self._adapter
        self._t, self._divergences = state["number"], list(state["divergences"])
        self._accept_cnt, self._mean_accept_prob = state["counts"]
        self._trajectory.generator.bit_generator.state = json.loads(state["generator"])
        adapter.step_size, adapter._current_window = state["step_size"], state["window"]
        self.mass_matrix_adapter.inverse_mass_matrix = dict.fromkeys(self.inverse_mass_matrix, state["mass"])
        if adapter.adapt_step_size:
            adapter._step_size_adapt_scheme.__dict__.update(state["averaging"])
        for scheme, moments in zip(self.mass_matrix_adapter._adapt_scheme.values(), state["moments"], strict=True):
            scheme.__dict__.update(moments)


class _Windows(WarmupAdapter):
    """Pyro's windows, except for short warm-ups, which leave a third of the steps to the last mass matrix.

    Pyro, like Stan, leaves a tenth: five of fifty steps, too few to adapt the step size.
    """

    def _build_adaptation_schedule(self) -> list[adapt_window]:
        total = self._warmup_steps
        first, last = round(0.15 * total), round(0.35 * total)
        if total < 20 or total >= SHORT_WARMUP:
            schedule: list[adapt_window] = super()._build_adaptation_schedule()
            return schedule
        ends = (first, total - last, total)
        return [adapt_window(start, end - 1) for start, end in zip((0, *ends), ends, strict=False)]


class _AdaptiveMass(BlockMassMatrix):
    """A dense mass matrix if the draws of a window correlate by more than chance, otherwise a diagonal one."""

    def end_adaptation(self) -> None:
        """Decide by the draws of the window that ends here."""
        masses = {}
        for names, scheme in self._adapt_scheme.items():
            covariance = scheme.get_covariance(regularize=True)
            dense = correlate(covariance, scheme.n_samples)
            masses[names] = covariance if dense else torch.diag_embed(covariance.diagonal())
        self.inverse_mass_matrix = masses


def correlate(covariance: Tensor, num_draws: int) -> bool:
    r"""Whether parameters correlate by more than chance.

    The correlation matrix of N draws of d independent numbers has a condition number of about
    :math:`((1 + \sqrt{d/N}) / (1 - \sqrt{d/N}))^2` (Marchenko and Pastur). Draws of a chain count as half as many.

    Example:
        >>> [correlate(torch.tensor([[1.0, rho], [rho, 1.0]]), num_draws=100) for rho in (0.9, 0.1)]
        [True, False]
    """
    spread = covariance.diagonal().sqrt()
    ratio = math.sqrt(2.0 * len(spread) / max(1, num_draws))
    if ratio >= 1.0:
        return False
    eigenvalues = torch.linalg.eigvalsh(covariance / torch.outer(spread, spread))
    return bool(eigenvalues[-1] > ((1.0 + ratio) / (1.0 - ratio)) ** 2 * eigenvalues[0])


class Chain:
    """A NUTS chain with its own random numbers, written to a file from time to time and resumed from it.

    ``draws`` are those after the warm-up, each a row: u, energy, depth, whether it diverged, and the log density.
    ``num_draws`` counts all.
    """

    def __init__(
        self,
        kernel: FlatNUTS,
        potential: Potential,
        start: Vector,
        warmup_steps: int,
        seed: int,
        *,
        random_walk: bool,
        settles: bool,
        file: Checkpoint | None = None,
    ) -> None:
        self.kernel, self.potential, self.warmup_steps, self.num_draws = kernel, potential, warmup_steps, 0
        self.generator = np.random.default_rng(seed)
        self.random_walk = RandomWalk(len(start), self.generator) if random_walk else None
        self.start, self.settles, self.file, self.is_between_draws = start, settles, file, True
        self.torch_state = torch.Generator().manual_seed(seed).get_state()
        self.params: dict[str, Tensor] | None = None
        self.draws: list[Vector] = []
        content = None if file is None else file.read()
        if content is not None:
            self._restore(content["state"])
            self.draws = list(content["draws"].numpy())

    def step(self) -> Vector:
        """One more draw; kept in :attr:`draws` after the warm-up."""
        self.is_between_draws = False
        with self._own_random_numbers():
            params = self._set_up() if self.params is None else self.params
            self.params = self.kernel.sample(params)
        last = self.kernel.last
        u, value = last.u, last.value
        if self.random_walk is not None:
            u, value = self._metropolis(self.random_walk, u, value)
        self.num_draws += 1
        draw = np.array([*u, last.energy, last.depth, last.diverging, -value])
        if self.num_draws > self.warmup_steps:
            self.draws.append(draw)
        self.is_between_draws = True
        if self.file is not None and self.file.is_due():
            self.save()
        return draw

    def _set_up(self) -> dict[str, Tensor]:
        start = settle(self.potential, self.start, self.generator) if self.settles else self.start
        self.kernel.initial_params = {SITE: torch.from_numpy(start.copy())}
        self.kernel.setup(self.warmup_steps)
        return dict(self.kernel.initial_params)

    def _metropolis(self, random_walk: RandomWalk, here: Vector, value: float) -> tuple[Vector, float]:
        adapting = self.num_draws < self.warmup_steps
        u, value = random_walk.step(self.potential, here, value, adapting)
        u, value = random_walk.jump(self.potential, u, value)
        if adapting:
            random_walk.adapt(u, is_last=self.num_draws == self.warmup_steps - 1)
        if u is not here:
            self.params = {SITE: torch.from_numpy(u.copy())}
        return u, value

    def save(self) -> None:
        """Write the chain, unless it was interrupted inside a draw: then the file keeps its last state."""
        if self.file is None or self.params is None or not self.is_between_draws:
            return
        rows = torch.from_numpy(np.array(self.draws).reshape(-1, len(self.start) + 4))
        state = {
            "kernel": self.kernel.state(),
            "u": self.params[SITE],
            "num_draws": self.num_draws,
            "generator": json.dumps(self.generator.bit_generator.state),
            "torch": self.torch_state,
            "random_walk": None if self.random_walk is None else self.random_walk.state(),
        }
        self.file.write({"state": state, "draws": rows})

    def _restore(self, state: Mapping[str, Any]) -> None:
        with self._own_random_numbers():
            self._set_up()
        self.kernel.restore(state["kernel"])
        self.params, self.num_draws = {SITE: state["u"]}, state["num_draws"]
        self.generator.bit_generator.state = json.loads(state["generator"])
        self.torch_state = state["torch"]
        if self.random_walk is not None:
            self.random_walk.restore(state["random_walk"])

    @contextlib.contextmanager
    def _own_random_numbers(self) -> Iterator[None]:
        # Pyro's warm-up draws from torch's global generator, whose state is restored afterwards.
        if self.num_draws > self.warmup_steps:
            yield
            return
        outside = torch.get_rng_state()
        torch.set_rng_state(self.torch_state)
        try:
            yield
        finally:
            self.torch_state = torch.get_rng_state()
            torch.set_rng_state(outside)
