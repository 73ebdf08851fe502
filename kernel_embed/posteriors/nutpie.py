"""The No-U-Turn sampler by nutpie, whose trees are built in compiled code: for potentials that are themselves fast."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
import torch

from ..learning.parameters import Vector
from .draws import Draws
from .nuts import check_trajectories
from .potential import Potential, quiet_numbers
from .sampler import Plan, Sampler


class _NoDensityError(Exception):
    """U = ∞: the trajectory ends, as a divergence."""

    is_recoverable = True


@dataclasses.dataclass(frozen=True, kw_only=True)
class Nutpie(Sampler):
    """NUTS by `nutpie <https://pymc-devs.github.io/nutpie/>`_ (``pip install "kernel-embed[nutpie]"``).

    Trees are built in compiled code and the mass matrix is adapted from gradients, so that draws cost less for few
    data. There are no random-walk steps between draws: if the density has ripples, NUTS mixes better.

    Args:
        target_accept_prob: the acceptance probability that the step size is adapted to; nearer 1, smaller steps.
        max_tree_depth: a draw takes at most 2 to this power evaluations.
        full_mass: adapt directions in which parameters correlate too, by a low-rank change of the diagonal mass matrix.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if ``target_accept_prob`` is not between 0 and 1, or ``max_tree_depth`` is below 1.

    Example:
        >>> Nutpie(max_tree_depth=6) == Nutpie(max_tree_depth=6), Nutpie().name
        (True, 'nutpie')
    """

    target_accept_prob: float = 0.8
    max_tree_depth: int = 10
    full_mass: bool = False

    uses_warmup: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_trajectories(self.target_accept_prob, self.max_tree_depth)

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """One chain after another, each from its start with its seed."""
        try:
            import nutpie
            from nutpie.compiled_pyfunc import from_pyfunc
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "The package nutpie is not installed, which sampler=Nutpie() needs. Install it, "
                'pip install "kernel-embed[nutpie]", or use NUTS(), which is Pyro\'s.'
            ) from error

        def log_density(u: Vector) -> tuple[float, Vector]:
            value, gradient = potential.value_and_gradient(np.array(u))
            if not math.isfinite(value):
                raise _NoDensityError("the posterior has no density there")
            return -value, -gradient

        traces: list[Any] = []
        interrupted = False
        for start, seed in zip(plan.starts, plan.seeds, strict=True):
            model = from_pyfunc(
                potential.dimension, lambda: log_density, lambda *_: lambda u: {"u": np.array(u)},
                [np.dtype("float64")], [(potential.dimension,)], ["u"], make_initial_point_fn=lambda _, at=start: at,
            )  # fmt: skip
            try:
                with quiet_numbers():
                    trace = nutpie.sample(
                        model, draws=plan.num_samples, tune=plan.warmup_steps, chains=1, cores=1, seed=seed,
                        save_warmup=False, progress_bar=False, target_accept=self.target_accept_prob,
                        maxdepth=self.max_tree_depth, low_rank_modified_mass_matrix=self.full_mass,
                    )  # fmt: skip
            except KeyboardInterrupt:
                interrupted = True
                break
            traces.append(trace)
            plan.bar.update(plan.num_samples + plan.warmup_steps)
        if not traces:
            raise KeyboardInterrupt("interrupted before the first chain ended")

        def stacked(group: str, name: str) -> torch.Tensor:
            return torch.from_numpy(np.concatenate([np.asarray(getattr(trace, group)[name]) for trace in traces]))

        names = ("logp", "diverging", "energy", "depth", "step_size_bar")
        logp, diverging, energy, depth, steps = (stacked("sample_stats", name) for name in names)
        details = {"step_size": steps[:, -1].tolist(), "random_walk": False}
        u = stacked("posterior", "u")
        return Draws(u, logp, diverging, interrupted=interrupted, energy=energy, depth=depth.long(), details=details)
