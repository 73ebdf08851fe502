r"""Draws of all chains, their summary, and problems: where chains do not move, disagree or diverge.

R-hat and effective sample sizes are those of ArviZ (Vehtari, Gelman, Simpson, Carpenter and Bürkner, 2021): chains are
split in halves and draws replaced by the normal scores of their ranks, so that heavy tails do no harm. With W the
variance within chains and B/n that of their means,

.. math::  \hat R = \sqrt{\tfrac{n-1}n + \tfrac{B}{n W}}, \qquad
           \text{ESS} = \frac{mn}{-1 + 2 \sum_{t \le T} \hat\rho_t}

with the sum truncated where pairs of autocorrelations turn negative (Geyer). :math:`\hat R` is the larger of that of
the draws and that of their distances from the median; the effective size of the tail is the smaller of those of the 5 %
and 95 % quantiles.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..learning.parameters import Vector
from ..results import table

MAX_R_HAT = 1.1
MIN_DRAWS = 20  # draws of a chain below which its diagnostics are not worth a warning
MAX_DIVERGENCES = 0.01  # as a share of the draws; a single divergence after a short warm-up is common
MIN_E_BFMI = 0.3  # below it the momenta of NUTS do not reach all levels of the density (Betancourt 2016)
MAX_TRUNCATED = 0.1  # share of trajectories that end at the largest depth
SAME_MODE_R_HAT = 1.5  # R-hat in every parameter below which two chains are in one mode; 2 sd apart they have 1.5
MIN_HALVES = 4  # draws of a chain below which it cannot be split in halves
QUANTILES = {"10%": 0.1, "median": 0.5, "90%": 0.9}
COLUMNS = dict.fromkeys(("mean", "std", *QUANTILES), ".3g") | {"n_eff": ".0f", "n_eff_tail": ".0f", "r_hat": ".2f"}


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """The draws of all chains, each ``(num_chains, num_samples)`` but ``u``.

    Attributes:
        u: raw draws, ``(num_chains, num_samples, dimension)``.
        log_density: log of the unnormalized posterior density of u; that of the approximation if ``is_approximate``.
        diverging: draws whose trajectory diverged; none by default.
        seconds: wall-clock time; this and the next two are filled in by :func:`kernel_embed.sample_posterior`.
        num_evaluations: evaluations of the potential.
        num_rejected: evaluations at points where the density does not exist.
        interrupted: whether Ctrl-C ended the sampling.
        log_evidence: log ∫ exp(−U) du, for samplers that estimate it.
        is_approximate: whether the draws come from one approximation, the same for all chains.
        energy: U + ½‖r‖² at each draw, for samplers with trajectories.
        depth: number of doublings of each trajectory, likewise.
        details: further results of the sampler.

    Example:
        >>> Draws(u=torch.zeros(2, 10, 3), log_density=torch.zeros(2, 10)).diverging.any()
        tensor(False)
    """

    u: Tensor
    log_density: Tensor
    diverging: Tensor = None  # type: ignore[assignment]
    seconds: float = 0.0
    num_evaluations: int = 0
    num_rejected: int = 0
    interrupted: bool = False
    log_evidence: float | None = None
    is_approximate: bool = False
    energy: Tensor | None = None
    depth: Tensor | None = None
    details: Mapping[str, object] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.diverging is None:
            object.__setattr__(self, "diverging", torch.zeros_like(self.log_density, dtype=torch.bool))

    def at(self, keep: Tensor) -> Draws:
        """The draws with indices ``keep`` of each chain."""
        tensors: dict[str, Any] = {
            name: value[:, keep]
            for name in ("u", "log_density", "diverging", "energy", "depth")
            if (value := getattr(self, name)) is not None
        }
        return dataclasses.replace(self, **tensors)


class Summary(dict[str, dict[str, Tensor]]):
    """The statistics of each parameter, and for samplers with trajectories the E-BFMI of each chain; prints a table."""

    num_divergences: int = 0
    e_bfmi: Tensor | None = None
    tree_depth: int | None = None

    def __str__(self) -> str:
        rows: list[list[str]] = []
        for name, statistics in self.items():
            columns = [[f"{v:{form}}" for v in statistics[key].reshape(-1).tolist()] for key, form in COLUMNS.items()]
            labels = [name] if len(columns[0]) == 1 else [f"{name}[{i}]" for i in range(len(columns[0]))]
            rows += [list(row) for row in zip(labels, *columns, strict=True)]
        head, _, *lines = table(["", *("tail" if key == "n_eff_tail" else key for key in COLUMNS)], rows).splitlines()
        lines = [head, *lines]
        if self.e_bfmi is not None:
            divergences = f"{self.num_divergences} divergences, tree depth up to {self.tree_depth}"
            lines.append(f"{divergences}, E-BFMI {float(self.e_bfmi.min()):.2f} or more")
        return "\n".join(lines)


def summarize(by_chain: Mapping[str, Tensor], weights: Tensor, draws: Draws) -> Summary:
    """Statistics of draws ``(num_chains, num_samples, *shape)`` by name, with weights ``(S,)`` of all draws."""
    summary = Summary()
    for name, values in by_chain.items():
        flat = values.flatten(0, 1).cpu().double()
        mean = torch.tensordot(weights, flat, dims=1)
        summary[name] = {
            "mean": mean,
            "std": torch.tensordot(weights, (flat - mean).square(), dims=1).sqrt(),
            **{key: weighted_quantile(flat, weights, level) for key, level in QUANTILES.items()},
            "n_eff": n_eff(values),
            "n_eff_tail": n_eff_tail(values),
            "r_hat": rank_r_hat(values),
        }
    summary.num_divergences = int(draws.diverging.sum())
    if draws.energy is not None and draws.depth is not None:
        summary.e_bfmi, summary.tree_depth = energy_information(draws.energy), int(draws.depth.max())
    return summary


def weighted_quantile(draws: Tensor, weights: Tensor, level: float) -> Tensor:
    """The smallest draw with at least ``level`` of the weight at or below it, for ``draws`` ``(S, *shape)``."""
    ordered, order = draws.sort(dim=0)
    total = weights.to(draws)[order].cumsum(dim=0)
    # Rounding must not push the level past the last draw.
    position = (total < level * total[-1] - 1e-12).sum(dim=0, keepdim=True).clamp_max(draws.shape[0] - 1)
    return ordered.gather(0, position).squeeze(0)


def modes(u: Tensor) -> list[list[int]]:
    """The chains ``(num_chains, num_samples, dimension)`` grouped by mode: chains that overlap share a group."""

    def overlap(pair: Tensor) -> bool:
        return pair.shape[1] < MIN_HALVES or bool((r_hat(pair) < SAME_MODE_R_HAT).all())

    groups: list[list[int]] = []
    for chain in range(u.shape[0]):
        joined = [g for g in groups if any(overlap(u[[chain, other]]) for other in g)]
        groups = [g for g in groups if g not in joined] + [sorted(sum(joined, [chain]))]
    return sorted(groups)


def problems(draws: Draws, by_chain: Mapping[str, Tensor], max_depth: int | None) -> Iterator[str]:
    """Texts of warnings where chains do not move or disagree, or trajectories diverge or are cut off."""
    u, diverging, energy, depth = draws.u, draws.diverging, draws.energy, draws.depth
    if u.shape[1] >= MIN_DRAWS:
        stuck = (u == u[:, :1]).all(-1).all(-1).nonzero().flatten().tolist()
        if stuck:
            yield (
                f"Chains that never moved: {str(stuck)[1:-1]}, of {u.shape[0]}. Start elsewhere, initial='current', or "
                "take smaller steps, sampler=NUTS(step_size=0.01)."
            )
        largest = {name: float(rank_r_hat(values).max()) for name, values in by_chain.items()}
        worst, value = max(largest.items(), key=lambda item: item[1])
        if value > MAX_R_HAT:
            advice = _advice(modes(u), by_chain[worst])
            yield f"The chains disagree: R-hat of {worst} is {value:.2f}, and should be below {MAX_R_HAT}. {advice}"
    count = int(diverging.sum())
    if count > max(2.0, MAX_DIVERGENCES * diverging.numel()):
        yield (
            f"{count} of {diverging.numel()} trajectories diverged, where the density is too steep for the step size, "
            "or K cannot be factorized. Take smaller steps, sampler=NUTS(target_accept_prob=0.95), or narrower priors."
        )
    if energy is not None and energy.shape[1] >= MIN_DRAWS and bool((energy.var(1) > 0).all()):
        smallest = float(energy_information(energy).min())
        if smallest < MIN_E_BFMI:
            yield (
                f"The energy of a chain moves slowly: its E-BFMI is {smallest:.2f}, and should be above {MIN_E_BFMI}. "
                "Use priors with lighter tails, or raise num_samples."
            )
    if depth is not None and max_depth is not None:
        share = float((depth >= max_depth).double().mean())
        if share > MAX_TRUNCATED:
            yield (
                f"{share:.0%} of the trajectories were cut off at max_tree_depth={max_depth}, so that successive draws "
                "are correlated. Raise max_tree_depth, or warmup_steps, in which the mass matrix is adapted."
            )


def _advice(groups: list[list[int]], draws: Tensor) -> str:
    if len(groups) == 1:
        return "They have not mixed yet: raise warmup_steps and num_samples."
    centres = [draws[g].flatten(0, 1).double().mean(0).flatten()[:4].tolist() for g in groups]
    texts = [", ".join(f"{value:.3g}" for value in centre) for centre in centres]
    places = "; ".join(f"chains {str(g)[1:-1]} around {text}" for g, text in zip(groups, texts, strict=True))
    return (
        f"They are in {len(groups)} modes ({places}) and do not move between them, so that their shares are not "
        "the weights of the modes. Weigh them by evidence, posterior.weigh_modes(), or use sampler=SMC()."
    )


def r_hat(draws: Tensor) -> Tensor:
    """R-hat of the halves of chains ``(num_chains, num_samples, *shape)``; NaN for fewer than four draws per chain."""
    return _each(draws, lambda halves, _: _r_hat(halves), math.nan)


def rank_r_hat(draws: Tensor) -> Tensor:
    """The same for normal scores of the ranks of the draws, and of their distances from the median."""
    return _each(draws, lambda h, _: max(_r_hat(_scores(h)), _r_hat(_scores(np.abs(h - np.median(h))))), math.nan)


def n_eff(draws: Tensor) -> Tensor:
    """Effective sample size for the centre of the distribution; the number of draws for fewer than four per chain."""
    return _each(draws, lambda halves, _: _size(_scores(halves)), float(draws.shape[:2].numel()))


def n_eff_tail(draws: Tensor) -> Tensor:
    """Effective sample size for the 5 % and 95 % quantiles."""

    def statistic(halves: Vector, values: Vector) -> float:
        return min(_size((halves <= level).astype(float)) for level in np.quantile(values, (0.05, 0.95)))

    return _each(draws, statistic, float(draws.shape[:2].numel()))


def _each(draws: Tensor, statistic: Callable[[Vector, Vector], float], otherwise: float) -> Tensor:
    """``statistic(halves of chains, chains)`` of each entry of a parameter; ``otherwise`` if chains are too short."""
    half = draws.shape[1] // 2
    if draws.shape[1] < MIN_HALVES:
        return torch.full(draws.shape[2:], otherwise, dtype=torch.float64, device="cpu")
    columns = draws.detach().cpu().double().reshape(*draws.shape[:2], -1).numpy()
    halves = np.concatenate([columns[:, :half], columns[:, -half:]])
    values = [statistic(halves[..., j], columns[..., j]) for j in range(columns.shape[-1])]
    return torch.tensor(values, dtype=torch.float64, device="cpu").reshape(draws.shape[2:])


def _scores(values: Vector) -> Vector:
    """Normal scores of the ranks; ties have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1.0))[inverse.reshape(values.shape)]
    scores: Vector = torch.special.ndtri(torch.from_numpy((ranks - 0.375) / (values.size + 0.25))).numpy()
    return scores


def _r_hat(values: Vector) -> float:
    """1 for chains that never move from one point, and ∞ from several."""
    if not (np.ptp(values, axis=1) > 0).any():
        return math.inf if np.ptp(values) > 0 else 1.0
    n = values.shape[1]
    within, between = values.var(axis=1, ddof=1).mean(), values.mean(axis=1).var(ddof=1)
    return math.sqrt((n - 1.0) / n + between / within)


def _size(values: Vector) -> float:
    """The effective size of chains ``(m, n)``; equal draws count once each, as in ArviZ."""
    m, n = values.shape
    if np.ptp(values) < np.finfo(float).resolution:
        return float(m * n)
    centered = values - values.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centered, 2 * n, axis=1)) ** 2
    autocovariances = (np.fft.irfft(spectrum, 2 * n, axis=1)[:, :n] / n).mean(axis=0)
    within = autocovariances[0] * n / (n - 1.0)
    rho = 1.0 - (within - autocovariances) / (autocovariances[0] + values.mean(axis=1).var(ddof=1))
    rho[0] = 1.0
    # Sums of pairs, up to the first that is not positive, must not increase; of that pair the even one counts half.
    pairs = rho[: n - n % 2].reshape(-1, 2).sum(1)
    last = min(int(np.argmax(np.append(pairs, 0.0) <= 0.0)), max(0, (n - 3) // 2))
    even = rho[2 * last] if rho[2 * last] > 0.0 or pairs[last] >= 0.0 else 0.0
    tau = -1.0 + 2.0 * np.minimum.accumulate(pairs[:last]).sum() + even
    return float(m * n / max(tau, 1.0 / math.log10(m * n)))


def energy_information(energy: Tensor) -> Tensor:
    r"""E-BFMI of each chain, :math:`\sum_t (E_t - E_{t-1})^2 / \sum_t (E_t - \bar E)^2` for ``energy`` ``(m, n)``."""
    squares = (energy - energy.mean(1, keepdim=True)).square().sum(1)
    return energy.diff(dim=1).square().sum(1) / squares.clamp_min(1e-300)
