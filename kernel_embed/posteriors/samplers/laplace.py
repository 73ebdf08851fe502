r"""The Laplace approximation: the Gaussian :math:`\mathcal N(\hat u, H^{-1})` at the highest mode."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch

from ...learning.parameters import Vector
from ...validation import check_count
from ..draws import Draws, independent_draws
from ..potential import Potential
from ..priors import DEFAULT_SPREAD
from ..starts import Plan
from .base import Sampler

FLAT = 1e-2
"""Curvature below which a direction counts as flat: a standard deviation of ten in log θ."""

DIFFERENCE = 1e-3
"""Step of the differences of gradients that give H."""


def highest_mode(potential: Potential, starts: Sequence[Vector], max_evaluations: int = 200) -> Vector:
    """û, the lowest potential that L-BFGS finds from ``starts``."""
    from scipy.optimize import minimize

    best, lowest = starts[0], math.inf
    for start in starts:
        edge = abs(potential.value(start)) * 10.0 + 1e3

        def evaluate(u: Vector, edge: float = edge) -> tuple[float, Vector]:
            value, gradient = potential.value_and_gradient(u)
            return (value if math.isfinite(value) else edge), gradient

        answer = minimize(evaluate, start, jac=True, method="L-BFGS-B", options={"maxfun": max_evaluations})
        value = potential.value(answer.x)
        if value < lowest:
            best, lowest = answer.x, value
    return best


def hessian(potential: Potential, u: Vector) -> Vector:
    """∂²U/∂u², from differences of the closed-form gradient."""
    rows = []
    for step in DIFFERENCE * np.eye(len(u)):
        ahead, behind = (potential.value_and_gradient(u + sign * step)[1] for sign in (1.0, -1.0))
        rows.append((ahead - behind) / (2.0 * DIFFERENCE))
    H = np.stack(rows)
    symmetric: Vector = 0.5 * (H + H.T)
    return symmetric


@dataclasses.dataclass(frozen=True, kw_only=True)
class Laplace(Sampler):
    """The Gaussian at the highest mode found from all starts, in raw parameters, with its evidence: a first look.

    ``log_evidence`` is that of :class:`kernel_embed.posteriors.Posterior` with the Gaussian in place of exp(−U).

    Args:
        max_evaluations: of L-BFGS from each start.

    Raises:
        TypeError: if ``max_evaluations`` is not a whole number.
        ValueError: if it is below 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.BayesianMeanEmbedding(gpytorch.kernels.RBFKernel())
        >>> x = torch.randn(15, 1, dtype=torch.float64)
        >>> posterior = ke.sample_posterior(embedding, ke.EmbeddingEvidence(), x, num_samples=20, sampler=ke.Laplace())
        >>> posterior.log_evidence is not None
        True
    """

    max_evaluations: int = 200

    is_independent: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count("max_evaluations", self.max_evaluations)

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """Independent draws, as many for each seed."""
        started = time.perf_counter()
        mode = highest_mode(potential, plan.starts.points, self.max_evaluations)
        values, vectors = np.linalg.eigh(hessian(potential, mode))
        # A direction in which the density is flat or rises has no Gaussian; it is given the spread of a default prior.
        values = np.where(values > FLAT, values, DEFAULT_SPREAD**-2)
        spread = vectors / np.sqrt(values)
        z = np.stack(
            [np.random.default_rng(seed).standard_normal((plan.num_samples, len(mode))) for seed in plan.seeds]
        )
        height = -potential.value(mode)
        plan.bar.update(plan.bar.total or 0)
        return independent_draws(
            potential,
            torch.from_numpy(mode + z @ spread.T),
            torch.from_numpy(height - 0.5 * np.square(z).sum(-1)),
            started,
            log_evidence=height + 0.5 * len(mode) * math.log(2.0 * math.pi) - 0.5 * float(np.log(values).sum()),
            is_approximate=True,
            details={"mode": potential.constrained(torch.from_numpy(mode))},
        )
