"""Gaussian approximations of a posterior: at its highest mode, and a guide fitted by Pyro."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyro
import pyro.infer
import torch
from pyro.distributions import Normal
from pyro.infer.autoguide import AutoContinuous, AutoDiagonalNormal, AutoMultivariateNormal
from pyro.infer.autoguide.initialization import init_to_value
from pyro.optim import ClippedAdam
from torch import Tensor

from ..learning.parameters import Vector
from ..learning.priors import DEFAULT_SPREAD
from ..runtime import ProgressBar
from ..validation import check_count, check_number, check_setting
from .draws import Draws
from .nuts import DENSE_DIMENSIONS
from .potential import SITE, Potential
from .sampler import Plan, Sampler

FLAT = 1e-2  # curvature below which a direction counts as flat: a standard deviation of ten in log θ
DIFFERENCE = 1e-3  # step of the differences of gradients that give H


def highest_mode(potential: Potential, starts: Sequence[Vector], max_evaluations: int = 200) -> Vector:
    """û, the lowest potential that L-BFGS finds from ``starts``."""
    from scipy.optimize import minimize

    best, lowest = starts[0], math.inf
    for start in starts:
        edge = abs(potential.value(start)) * 10.0 + 1e3

        def evaluate(u: Vector, edge: float = edge) -> tuple[float, Vector]:
            value, gradient = potential.value_and_gradient(u)
            return (value if math.isfinite(value) else edge), gradient

        solution = minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxfun": max_evaluations})
        value = potential.value(solution.x)
        if value < lowest:
            best, lowest = solution.x, value
    return best


def hessian(potential: Potential, u: Vector) -> Vector:
    """∂²U/∂u², from differences of the gradient."""
    slopes = [
        [potential.value_and_gradient(u + sign * step)[1] for sign in (1.0, -1.0)]
        for step in DIFFERENCE * np.eye(len(u))
    ]
    H = np.array([(ahead - behind) / (2.0 * DIFFERENCE) for ahead, behind in slopes])
    symmetric: Vector = 0.5 * (H + H.T)
    return symmetric


@dataclasses.dataclass(frozen=True, kw_only=True)
class Laplace(Sampler):
    """The Gaussian at the highest mode found from all starts, in raw parameters, with its evidence, which is fast.

    Args:
        max_evaluations: of L-BFGS from each start.

    Raises:
        TypeError: if ``max_evaluations`` is not a whole number.
        ValueError: if it is below 1.

    Example:
        >>> Laplace(max_evaluations=50).name
        'laplace'
    """

    max_evaluations: int = 200

    is_independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("max_evaluations", self.max_evaluations)

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Independent draws, ``num_samples`` for each seed."""
        mode = highest_mode(potential, plan.starts, self.max_evaluations)
        values, vectors = np.linalg.eigh(hessian(potential, mode))
        # There is no Gaussian in directions where the density is flat or rises; they get the spread of a default prior.
        values = np.where(values > FLAT, values, DEFAULT_SPREAD**-2)
        spread = vectors / np.sqrt(values)
        shape = (plan.num_samples, len(mode))
        z = np.stack([np.random.default_rng(seed).standard_normal(shape) for seed in plan.seeds])
        height = -potential.value(mode)
        plan.bar.update(plan.bar.total or 0)
        return Draws(
            torch.from_numpy(mode + z @ spread.T),
            torch.from_numpy(height - 0.5 * np.square(z).sum(-1)),
            log_evidence=height + 0.5 * len(mode) * math.log(2.0 * math.pi) - 0.5 * float(np.log(values).sum()),
            is_approximate=True,
            details={"mode": potential.constrained(torch.from_numpy(mode))},
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SVI(Sampler):
    """Stochastic variational inference by Pyro: a guide fitted by Adam from the highest mode, for many parameters.

    Args:
        num_steps: of Adam.
        learning_rate: of Adam; it falls to a tenth.
        guide: a class of ``pyro.infer.autoguide``; by default a Gaussian, with a dense covariance for up to 200
            parameters and a diagonal one above.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if ``num_steps`` is below 1, or ``learning_rate`` not positive.

    Example:
        >>> SVI(num_steps=20).name
        'svi'
    """

    num_steps: int = 500
    learning_rate: float = 0.05
    guide: type[AutoContinuous] | None = None

    is_independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("num_steps", self.num_steps)
        rate = check_number("learning_rate", self.learning_rate)
        check_setting("learning_rate", self.learning_rate, rate > 0, "above 0")

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Independent draws from the guide, ``num_samples`` for each seed."""
        mode = torch.from_numpy(highest_mode(potential, plan.starts))
        with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(plan.seeds[0])
            guide, losses = self._fit(potential, mode, plan.bar)
            approximation = guide.get_posterior()
            u = approximation.sample((len(plan.seeds), plan.num_samples)).detach()
            log_density = approximation.log_prob(u).detach()
        log_density = log_density.sum(-1) if log_density.dim() > 2 else log_density
        return Draws(u, log_density, is_approximate=True, details={"losses": losses})

    def _fit(self, potential: Potential, mode: Tensor, bar: ProgressBar) -> tuple[AutoContinuous, list[float]]:
        """The guide fitted from ``mode``, and the loss at every step."""

        def model() -> None:
            flat = Normal(torch.zeros_like(mode), torch.ones_like(mode)).mask(False).to_event(1)
            u = pyro.sample(SITE, flat)
            pyro.factor("log density", -potential({SITE: u}))

        default = AutoMultivariateNormal if len(mode) <= DENSE_DIMENSIONS else AutoDiagonalNormal
        guide = (self.guide or default)(model, init_loc_fn=init_to_value(values={SITE: mode}), init_scale=0.1)
        rates = {"lr": self.learning_rate, "lrd": 0.1 ** (1.0 / self.num_steps)}
        search = pyro.infer.SVI(model, guide, ClippedAdam(rates), pyro.infer.Trace_ELBO())
        losses: list[float] = []
        bar.reset(self.num_steps)
        for _ in range(self.num_steps):
            losses.append(search.step())
            bar.update()
        return guide, losses
