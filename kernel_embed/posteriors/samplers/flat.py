"""Pyro's NUTS over one flat vector: its adaptation, its interface, and trajectories of our own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import pyro.infer
import torch
from pyro.infer.mcmc.adaptation import BlockMassMatrix, WarmupAdapter, adapt_window
from torch import Tensor

from ...learning.parameters import Vector
from ..potential import SITE
from .trajectory import Draw, Trajectory

SHORT_WARMUP = 150
"""Steps below which Pyro's windows do not fit."""

ADAPTED = ("step_size", "adapt_step_size", "target_accept_prob", "adapt_mass_matrix", "dense_mass")
"""The options of Pyro's adapter, under which it also keeps them."""


class FlatPotential(Protocol):
    """U of one vector: what :class:`~kernel_embed.posteriors.Potential` is."""

    def value_and_gradient(self, u: Vector) -> tuple[float, Vector]:
        """U and ∂U/∂u; ∞ where U does not exist."""

    def __call__(self, z: dict[str, Tensor]) -> Tensor:
        """The same as Pyro asks for it: differentiable, from the dictionary of sites."""


class FlatNUTS(pyro.infer.NUTS):
    """Pyro's NUTS where the potential is a function of one vector that brings its gradient.

    Windows, step size and mass matrix are adapted by Pyro, and it runs under ``pyro.infer.MCMC``. What differs is the
    trajectory (:class:`~kernel_embed.posteriors.samplers.trajectory.Trajectory`): for few data, the graph and the
    dictionaries of Pyro's tree cost more than the density.

    Args:
        potential: U.
        full_mass: a dense mass matrix; ``None`` chooses it in the warm-up where parameters correlate.
        options: of ``pyro.infer.NUTS``.

    Attributes:
        last: what the last trajectory ended in.

    Example:
        >>> class Normal:
        ...     def value_and_gradient(self, u):
        ...         return 0.5 * float(u @ u), u
        ...     def __call__(self, z):
        ...         return 0.5 * (z["u"] ** 2).sum()
        >>> with torch.random.fork_rng():
        ...     _ = torch.manual_seed(0)
        ...     mcmc = pyro.infer.MCMC(
        ...         FlatNUTS(Normal()), num_samples=200, warmup_steps=50, disable_progbar=True,
        ...         initial_params={"u": torch.zeros(2, dtype=torch.float64)},
        ...     )
        ...     mcmc.run()
        >>> bool((mcmc.get_samples()["u"].std(0) - 1.0).abs().max() < 0.2)
        True
    """

    last: Draw

    def __init__(self, potential: FlatPotential, *, full_mass: bool | None = None, **options: Any) -> None:
        super().__init__(potential_fn=potential, full_mass=full_mass is not False, **options)
        adapted: dict[str, Any] = {name: getattr(vars(self)["_adapter"], name) for name in ADAPTED}
        self._adapter: Any = Windows(**adapted)
        if full_mass is None:
            self.mass_matrix_adapter = ChosenMass()
        self._params: dict[str, Tensor] | None = None
        self._mass: Tensor | None = None

    def setup(self, warmup_steps: int, *args: object, **kwargs: object) -> None:
        """Pyro's own, and random numbers seeded by torch's."""
        super().setup(warmup_steps, *args, **kwargs)
        generator = np.random.default_rng(int(torch.randint(2**62, ())))
        self._trajectory = Trajectory(
            self.potential_fn.value_and_gradient, np.ones(1), 1.0, self._max_tree_depth, generator,
            self.use_multinomial_sampling,
        )  # fmt: skip

    @property
    def is_dense(self) -> bool:
        """Whether the mass matrix has entries beside its diagonal; none has before the first draw."""
        masses = self.inverse_mass_matrix.values()
        return any(mass.dim() == 2 and bool((mass != torch.diag_embed(mass.diagonal())).any()) for mass in masses)

    def sample(self, params: dict[str, Tensor]) -> dict[str, Tensor]:
        """One draw from ``params``."""
        if params is not self._params:
            u = params[SITE].detach().numpy()
            value, slope = self.potential_fn.value_and_gradient(u)
        else:
            u, value, slope, *_ = self.last
        self._read_adapted()
        self.last = found = self._trajectory.draw(u, value, slope)
        self._params = {SITE: torch.from_numpy(found.u)}
        self._count(found)
        return self._params

    def state(self) -> dict[str, Any]:
        """All that the next draw depends on, in numbers, tensors and text."""
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
        """Go on from :meth:`state`, after :meth:`setup`."""
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

    def _read_adapted(self) -> None:
        """Step size and mass matrix as Pyro has them now."""
        self._trajectory.step_size = float(self.step_size)
        (mass,) = self.inverse_mass_matrix.values()
        if mass is not self._mass:
            self._mass = mass
            factor = mass.sqrt() if mass.dim() == 1 else torch.linalg.cholesky(mass)
            self._trajectory.factor = factor.double().numpy()

    def _count(self, found: Draw) -> None:
        """What Pyro keeps of a draw, and its adaptation in the warm-up."""
        self._t += 1
        number = self._t - self._warmup_steps
        if number > 0:
            self._accept_cnt += int(found.moved)
            if found.diverging:
                self._divergences.append(number - 1)
        else:
            number = self._t
            self._adapter.step(self._t, self._params, np.float64(found.accept_prob))
        self._mean_accept_prob += (found.accept_prob - self._mean_accept_prob) / number


class Windows(WarmupAdapter):
    """Pyro's windows, but for short warm-ups: a third of them is left to the step size of the last mass matrix.

    Pyro, like Stan, leaves a tenth. Of fifty steps that is five, after which the step size is still that of a guess.
    """

    def _build_adaptation_schedule(self) -> list[adapt_window]:
        total = self._warmup_steps
        first, last = round(0.15 * total), round(0.35 * total)
        if total < 20 or total >= SHORT_WARMUP:
            schedule: list[adapt_window] = super()._build_adaptation_schedule()
            return schedule
        ends = (first, total - last, total)
        return [adapt_window(start, end - 1) for start, end in zip((0, *ends), ends, strict=False)]


class ChosenMass(BlockMassMatrix):
    """A dense mass matrix where the draws of a window correlate by more than chance, a diagonal one elsewhere."""

    def end_adaptation(self) -> None:
        """Choose for the draws of the window that ends here."""
        chosen = {}
        for names, scheme in self._adapt_scheme.items():
            covariance = scheme.get_covariance(regularize=True)
            dense = correlate(covariance, scheme.n_samples)
            chosen[names] = covariance if dense else torch.diag_embed(covariance.diagonal())
        self.inverse_mass_matrix = chosen


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
