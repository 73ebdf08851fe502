"""Stochastic variational inference: a Gaussian guide of Pyro's in the raw parameters, fitted to the same potential."""

from __future__ import annotations

import time
from typing import Any

import pyro
import torch
from pyro.distributions import Normal
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal, AutoMultivariateNormal
from pyro.infer.autoguide.initialization import init_to_value
from pyro.optim import ClippedAdam

from ...learning.parameters import Vector
from ..potential import SITE, Potential
from .laplace import highest_mode
from .nuts import DENSE_DIMENSIONS, Draws, independent_draws


def svi(
    potential: Potential,
    starts: list[Vector],
    num_samples: int,
    seeds: list[int],
    bar: Any,
    num_steps: int = 500,
    learning_rate: float = 0.05,
    guide: Any = None,
) -> Draws:
    """Draws of a guide fitted by ``num_steps`` steps of Adam, starting at the highest mode.

    ``guide`` is a class of ``pyro.infer.autoguide``; by default a Gaussian with dense covariance up to twenty
    parameters and with a diagonal one above.
    """
    started = time.perf_counter()
    mode = torch.from_numpy(highest_mode(potential, starts))
    if guide is None:
        guide = AutoMultivariateNormal if len(mode) <= DENSE_DIMENSIONS else AutoDiagonalNormal

    def model() -> None:
        flat = Normal(torch.zeros_like(mode), torch.ones_like(mode)).mask(False).to_event(1)
        u = pyro.sample(SITE, flat)
        pyro.factor("log density", -potential({SITE: u}))

    losses = []
    with pyro.get_param_store().scope(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds[0])
        approximation = guide(model, init_loc_fn=init_to_value(values={SITE: mode}), init_scale=0.1)
        decay = 0.1 ** (1.0 / num_steps)
        search = SVI(model, approximation, ClippedAdam({"lr": learning_rate, "lrd": decay}), Trace_ELBO())
        bar.reset(num_steps)
        for _ in range(num_steps):
            losses.append(search.step())
            bar.update()
        found = approximation.get_posterior()
        u = found.sample((len(seeds), num_samples)).detach()
        log_density = found.log_prob(u).detach()
    if log_density.dim() > 2:
        log_density = log_density.sum(-1)
    return independent_draws(
        potential,
        u,
        log_density,
        started,
        details={"losses": losses},
    )
