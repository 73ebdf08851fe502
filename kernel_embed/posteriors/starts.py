"""Draws from the prior: starting points of chains, and whether the prior fits the constraints."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import Literal

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..learning.parameters import Vector
from .potential import Potential
from .priors import PosteriorWarning, PriorSite, describe, user_name
from .sampler import Starts

Initial = Literal["prior", "current"] | Mapping[str, Tensor]
MAX_TRIES = 200
SUPPORT_DRAWS = 1000
MAX_OUTSIDE = 0.005
"""Share of the prior mass outside the constraint above which there is a warning."""


def starting_points(potential: Potential, initial: Initial, num_chains: int, seed: int) -> Starts:
    """One raw vector for each chain; ``initial`` and ``seed`` as in :func:`kernel_embed.sample_posterior`."""
    current = potential.vector.get()
    if isinstance(initial, Mapping):
        points = [_initial_values(potential, current, initial, chain, num_chains) for chain in range(num_chains)]
    elif initial == "current":
        points = [current.copy() for _ in range(num_chains)]
    elif initial == "prior":
        points = prior_draws(potential, num_chains, seed)
    else:
        raise ValueError(f"initial must be 'prior', 'current' or a dictionary of values by name, not {initial!r}.")
    for point in points:
        if not math.isfinite(potential.value(point)):
            values = potential.constrained(torch.from_numpy(point)).items()
            text = ", ".join(f"{name} = {value.flatten()[:4].tolist()}" for name, value in values)
            raise ValueError(
                f"The posterior density is not finite at the starting point {text}. Start elsewhere: initial='prior', "
                "or other values."
            )
    return Starts(tuple(points), initial == "prior")


def prior_draws(potential: Potential, count: int, seed: int) -> list[Vector]:
    """Draws from the prior at which the likelihood exists; the others are drawn again."""
    current = potential.vector.get()
    points: list[Vector] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for _ in range(count):
            for _ in range(MAX_TRIES):
                point = prior_draw(potential, current)
                if point is not None and math.isfinite(potential.value(point)):
                    break
            else:
                raise ValueError(
                    f"The objective cannot be evaluated under the prior: at none of {MAX_TRIES} draws does K factorize "
                    "with finite values. Narrow the prior, or start at initial='current'."
                )
            points.append(point)
    return points


def prior_draw(potential: Potential, current: Vector) -> Vector | None:
    """One draw from the prior with the global generator; ``None`` if it violates a constraint."""
    potential.vector.set(current)
    try:
        for site in potential.sites:
            if site.raw is not None:
                site.set(site.draw())
    except ValueError:
        return None
    point = potential.vector.get()
    return point if np.isfinite(point).all() else None


def _initial_values(
    potential: Potential, current: Vector, initial: Mapping[str, Tensor], chain: int, num_chains: int
) -> Vector:
    potential.vector.set(current)
    shapes = {name: value.shape for name, value in potential.constrained(torch.from_numpy(current)).items()}
    values_of_chain = {}
    for name, values in initial.items():
        values = torch.as_tensor(values)
        by_chain = values.dim() > len(shapes.get(name, ())) and values.shape[0] == num_chains
        by_chain = by_chain or (values.dim() == 1 and len(values) == num_chains > 1)
        values_of_chain[name] = values[chain] if by_chain else values
    return potential.unconstrained(values_of_chain)


def check_support(sites: list[PriorSite], embedding: gpytorch.Module) -> None:
    """Warn of priors with mass outside the constraint of their parameter, by draws with the global generator."""
    for site in sites:
        constraint = None if site.parameter is None else embedding.constraint_for_parameter_name(site.parameter)
        if site.is_default or constraint is None or site.name != user_name(str(site.parameter)):
            continue
        try:
            draws = site.draw(SUPPORT_DRAWS)
        except TypeError:
            continue
        share = float((~((draws >= constraint.lower_bound) & (draws <= constraint.upper_bound))).double().mean())
        if share > 1.0 - MAX_OUTSIDE:
            raise ValueError(
                f"All draws from the prior {describe(site.prior)} on {site.name} lie outside its constraint "
                f"{constraint}. Change one of them."
            )
        if share > MAX_OUTSIDE:
            warnings.warn(
                f"The prior {describe(site.prior)} on {site.name} has {100 * share:.0f} % of its mass outside the "
                f"constraint {constraint}. The posterior uses the truncated prior. Use a prior on positive numbers, "
                "such as LogNormalPrior or GammaPrior.",
                PosteriorWarning,
                stacklevel=3,
            )
