r"""Posteriors with several modes: sequential Monte Carlo from the prior, and weights of chains by bridge sampling.

**Sequential Monte Carlo.** Particles follow :math:`p_\beta(u) \propto p(u)\, \ell(u)^\beta` as :math:`\beta` grows from
0 to 1. Here p is the density of the priors that can be drawn from, and :math:`\ell = e^{-c q} \prod_f p_f` has those
that are factors:

.. math::  w_i = \ell(u_i)^{\beta_{t} - \beta_{t-1}}, \qquad
           \log Z = \log P + \sum_t \log \tfrac1N \sum_i w_i ,

resampling by w and moving by random-walk Metropolis at every step. P is the mass of the priors inside the constraints,
estimated by the share of their draws there: Z is ∫ exp(−U) du, as for the other samplers, with priors as they were
registered. While β is small the particles cover the whole prior, so that each mode keeps its share of them. The steps
of β keep the effective number of particles at a half.

**Bridge sampling** (Meng and Wong, 1996). The weight of a mode is its evidence Z. With draws :math:`u_i` of a mode of
the unnormalized density q and :math:`\tilde u_j` of a Gaussian g fitted to other draws of it, Z solves

.. math::  Z = \frac{\frac1{N_2} \sum_j h(\tilde u_j)\, q(\tilde u_j)}{\frac1{N_1} \sum_i h(u_i)\, g(u_i)}, \qquad
           h = \frac{1}{N_1 q / Z + N_2 g} .
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from ..learning.parameters import Vector
from ..validation import check_count, check_setting
from .draws import Draws, modes
from .potential import Potential
from .priors import prior_draw
from .sampler import Plan, Sampler

MIN_EFFECTIVE = 0.5
SCALES = np.array([1.0, 0.3, 0.1])  # of proposals, relative to the adapted one: modes may be narrow
ACCEPTANCE = 0.3
MAX_OUTSIDE = 2000  # draws from the prior outside the constraints for each one inside
MAX_TEMPERATURES = 2000  # dozens are usual; particles cannot follow a density that needs more


@dataclasses.dataclass(frozen=True, kw_only=True)
class SMC(Sampler):
    """Sequential Monte Carlo from the prior, one run per chain: correct weights of several modes, and the evidence.

    Args:
        num_moves: Metropolis steps at every temperature.
        num_particles: of each run; ``None`` for ``num_samples``. If there are more, the draws are evenly spaced.

    Raises:
        TypeError: if a setting is not a whole number.
        ValueError: if ``num_moves`` or ``num_particles`` is below 1.

    Example:
        >>> SMC(num_moves=3).name
        'smc'
    """

    num_moves: int = 10
    num_particles: int | None = None

    uses_starts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_count("num_moves", self.num_moves)
        if self.num_particles is not None:
            check_count("num_particles", self.num_particles)

    def sample(self, potential: Potential, plan: Plan) -> Draws:
        """One run for each seed; Ctrl-C keeps the finished runs."""
        least = plan.num_samples
        num_particles = least if self.num_particles is None else self.num_particles
        check_setting("num_particles", num_particles, num_particles >= least, f"of at least num_samples={least}")
        runs: list[_Run] = []
        interrupted = False
        plan.bar.reset(len(plan.seeds))
        try:
            for seed in plan.seeds:
                runs.append(_Run(potential, num_particles, seed).run(self.num_moves))
                plan.bar.update()
        except KeyboardInterrupt:
            if not runs:
                raise
            interrupted = True
        keep = np.linspace(0, num_particles - 1, plan.num_samples).round().astype(int)
        evidences = [run.log_evidence for run in runs]
        return Draws(
            torch.from_numpy(np.stack([run.u[keep] for run in runs])),
            torch.from_numpy(np.stack([(run.likelihood + run.prior)[keep] for run in runs])),
            interrupted=interrupted,
            log_evidence=float(np.logaddexp.reduce(evidences) - math.log(len(evidences))),
            details={"log_evidences": evidences, "temperatures": [run.betas for run in runs]},
        )


class _Run:
    """A population of particles between the prior and the posterior."""

    def __init__(self, potential: Potential, num_particles: int, seed: int) -> None:
        self.potential, self.generator = potential, np.random.default_rng(seed)
        self.u, self.log_evidence = _from_prior(potential, num_particles, seed)
        self.likelihood, self.prior = self._parts(self.u)
        self.betas, self.scale = [0.0], 2.38 / math.sqrt(self.u.shape[1])
        if not np.isfinite(self.likelihood).any():
            raise ValueError(
                f"The objective cannot be evaluated at any of {num_particles} draws from the prior. Scale x, look for "
                "outliers in it, narrow the prior, or take more particles, SMC(num_particles=…)."
            )

    def run(self, num_moves: int) -> _Run:
        """From β = 0 to β = 1."""
        while self.betas[-1] < 1.0:
            beta = self._next()
            if len(self.betas) > MAX_TEMPERATURES:
                raise self._too_steep()
            weights = (beta - self.betas[-1]) * self.likelihood
            total = np.logaddexp.reduce(weights)
            self.log_evidence += float(total - math.log(len(weights)))
            shares = np.exp(weights - total).cumsum()
            ticks = (self.generator.uniform() + np.arange(len(weights))) / len(weights)
            rows = np.searchsorted(shares / shares[-1], ticks)
            self.u, self.likelihood, self.prior = self.u[rows], self.likelihood[rows], self.prior[rows]
            self.betas.append(beta)
            covariance = np.atleast_2d(np.cov(self.u.T)) + 1e-10 * np.eye(self.u.shape[1])
            values, vectors = np.linalg.eigh(covariance)
            for _ in range(num_moves):
                self._move(vectors * np.sqrt(np.maximum(values, 1e-12)), beta)
        return self

    def _next(self) -> float:
        """The largest β at which the effective number of particles is at least a half."""
        now = self.betas[-1]
        if _effective((1.0 - now) * self.likelihood) >= MIN_EFFECTIVE:
            return 1.0
        low, high = now, 1.0
        for _ in range(60):
            middle = 0.5 * (low + high)
            is_enough = _effective((middle - now) * self.likelihood) >= MIN_EFFECTIVE
            low, high = (middle, high) if is_enough else (low, middle)
        if low > now:
            return low
        if np.isfinite(self.likelihood).all():
            raise self._too_steep()
        # Particles without a likelihood may leave less than half from the start: any step removes them.
        return max(high, math.nextafter(now, 1.0))

    def _too_steep(self) -> ValueError:
        spread = float(self.likelihood.max() - self.likelihood.min())
        return ValueError(
            f"Particles cannot follow the density from the prior: log likelihoods are {spread:.1e} apart at "
            f"β = {self.betas[-1]:.1e}. Scale x, narrow the prior, lower the temperature, or sample with NUTS()."
        )

    def _move(self, factor: Vector, beta: float) -> None:
        N, D = self.u.shape
        scales = self.scale * self.generator.choice(SCALES, N)
        proposed = self.u + scales[:, None] * (self.generator.standard_normal((N, D)) @ factor.T)
        likelihood, prior = self._parts(proposed)
        ratio = beta * (likelihood - self.likelihood) + prior - self.prior
        accepted = np.log(self.generator.uniform(size=N)) < ratio
        self.u[accepted], self.likelihood[accepted] = proposed[accepted], likelihood[accepted]
        self.prior[accepted] = prior[accepted]
        self.scale *= math.exp(accepted.mean() - ACCEPTANCE)

    def _parts(self, u: Vector) -> tuple[Vector, Vector]:
        parts = np.array([self.potential.parts(point) for point in u])
        return parts[:, 0], np.where(np.isfinite(parts[:, 1]), parts[:, 1], -1e300)


def _from_prior(potential: Potential, num_particles: int, seed: int) -> tuple[Vector, float]:
    """Draws from the prior inside the constraints, and log P: the log of their share of all draws."""
    current, num_draws = potential.vector.get(), 0
    points: list[Vector] = []
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        while len(points) < num_particles:
            point = prior_draw(potential.sites, potential.vector, current)
            num_draws += 1
            if point is not None:
                points.append(point)
            elif num_draws >= MAX_OUTSIDE * (len(points) + 1):
                raise ValueError(
                    f"Only {len(points)} of {num_draws} draws from the priors lie inside the constraints. Change the "
                    "prior or the constraint; a prior on a closure needs a setting_closure that fits it."
                )
    return np.stack(points), math.log(num_particles / num_draws)


def _effective(weights: Vector) -> float:
    """(Σw)² / (N Σw²) of log weights."""
    total = np.logaddexp.reduce(weights)
    if not math.isfinite(total):
        return 0.0
    return float(np.exp(2.0 * total - np.logaddexp.reduce(2.0 * weights)) / len(weights))


def mode_weights(potential: Potential, draws: Draws, seed: int = 0) -> Tensor:
    """Weights ``(S,)`` of draws: that of a mode is its evidence, shared equally by the draws of its chains."""
    u, groups = draws.u, modes(draws.u)
    evidences = [log_evidence(potential, u[g].flatten(0, 1), draws.log_density[g].flatten(), seed) for g in groups]
    shares = torch.tensor(evidences, dtype=torch.float64, device="cpu").softmax(0)
    weights = torch.zeros(u.shape[:2], dtype=torch.float64, device="cpu")
    for share, group in zip(shares, groups, strict=True):
        weights[group] = share / (len(group) * u.shape[1])
    return weights.reshape(-1)


def log_evidence(potential: Potential, u: Tensor, log_density: Tensor, seed: int = 0) -> float:
    """log Z over the mode that the draws ``u`` ``(S, dimension)`` come from; priors are not renormalized."""
    if u.shape[0] < 8:
        raise ValueError(f"The evidence of a mode needs at least 8 draws, got {u.shape[0]}. Raise num_samples.")
    # Every other draw fits the Gaussian, the rest are compared with it.
    fitting, points, q1 = u[::2].numpy(), u[1::2].numpy(), log_density[1::2].numpy()
    mean = fitting.mean(axis=0)
    covariance = np.atleast_2d(np.cov(fitting.T))
    covariance = covariance + 1e-9 * max(np.trace(covariance), 1e-9) * np.eye(len(mean))
    factor = np.linalg.cholesky(covariance)
    proposals = mean + np.random.default_rng(seed).standard_normal(points.shape) @ factor.T
    q2 = np.array([-potential.value(point) for point in proposals])
    constant = np.log(np.diag(factor)).sum() + 0.5 * len(mean) * math.log(2.0 * math.pi)

    def log_gaussian(at: Vector) -> Vector:
        density: Vector = -0.5 * np.square(np.linalg.solve(factor, (at - mean).T)).sum(axis=0) - constant
        return density

    # The fixed point in log Z, for log q/g at draws of q and of g.
    l1, l2 = q1 - log_gaussian(points), q2 - log_gaussian(proposals)
    log_n1, log_n2, log_z = math.log(len(l1)), math.log(len(l2)), float(np.median(l1))
    for _ in range(1000):
        upper = np.logaddexp.reduce(l2 - np.logaddexp(log_n1 + l2 - log_z, log_n2)) - log_n2
        lower = np.logaddexp.reduce(-np.logaddexp(log_n1 + l1 - log_z, log_n2)) - log_n1
        before, log_z = log_z, float(upper - lower)
        if abs(log_z - before) < 1e-10:
            break
    return log_z
