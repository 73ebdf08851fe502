r"""Summaries of chains, and warnings where they do not move, disagree or diverge.

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

import math
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import torch
from torch import Tensor

from ..learning.parameters import Vector
from ..results import table
from .priors import PosteriorWarning
from .sampler import Draws

MAX_R_HAT = 1.1
MIN_DRAWS = 20
"""Draws of a chain below which its diagnostics are not worth a warning."""
MAX_DIVERGENCES = 0.01
"""As a share of the draws; a single divergence after a short warm-up is common."""
MIN_E_BFMI = 0.3
MAX_TRUNCATED = 0.1
"""Share of trajectories that end at the largest depth."""
SAME_MODE_R_HAT = 1.5
"""Two chains whose R-hat is below this in every parameter are in one mode; chains 2 sd apart have at least 1.5."""
QUANTILES = {"10%": 0.1, "median": 0.5, "90%": 0.9}
MIN_HALVES = 4
"""Draws of a chain below which it cannot be split in halves."""
COLUMNS = {"mean": ".3g", "std": ".3g", "10%": ".3g", "median": ".3g", "90%": ".3g", "n_eff": ".0f"}
COLUMNS |= {"n_eff_tail": ".0f", "r_hat": ".2f"}
"""Statistics of a summary, with their formats in the printed table."""


class Summary(dict[str, dict[str, Tensor]]):
    """For each parameter its mean, sd, quantiles, ``n_eff``, ``n_eff_tail`` and ``r_hat``; printed, a table.

    Attributes:
        num_divergences: trajectories that diverged.
        e_bfmi: of each chain, ``(num_chains,)``; ``None`` for samplers without trajectories.
        tree_depth: the largest of any trajectory; likewise.
    """

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
    """Statistics of draws ``(num_chains, num_samples, *shape)`` by name, with weights ``(num_chains, num_samples)``."""
    summary = Summary()
    for name, values in by_chain.items():
        flat, w = values.flatten(0, 1).double(), weights.reshape(-1)
        column = w.reshape(-1, *[1] * (flat.dim() - 1))
        mean = (column * flat).sum(0)
        summary[name] = {
            "mean": mean,
            "std": (column * (flat - mean).square()).sum(0).sqrt(),
            **{key: weighted_quantile(flat, w, level) for key, level in QUANTILES.items()},
            "n_eff": n_eff(values),
            "n_eff_tail": n_eff_tail(values),
            "r_hat": rank_r_hat(values),
        }
    summary.num_divergences = int(draws.diverging.sum())
    if draws.energy is not None and draws.depth is not None:
        summary.e_bfmi, summary.tree_depth = energy_information(draws.energy), int(draws.depth.max())
    return summary


def weighted_quantile(draws: Tensor, weights: Tensor, level: float) -> Tensor:
    """The smallest draw with at least ``level`` of the weight at or below it, for ``draws`` ``(S, *shape)``.

    Example:
        >>> weighted_quantile(torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.1, 0.8, 0.1]), 0.5)
        tensor(1.)
    """
    ordered, order = draws.sort(dim=0)
    total = weights.to(draws)[order].cumsum(dim=0)
    # Rounding must not push the level past the last draw.
    position = (total < level * total[-1] - 1e-12).sum(dim=0, keepdim=True).clamp_max(draws.shape[0] - 1)
    return ordered.gather(0, position).squeeze(0)


def modes(u: Tensor) -> list[list[int]]:
    """The chains ``(num_chains, num_samples, dimension)`` grouped by mode: chains that overlap share a group.

    Example:
        >>> u = torch.randn(4, 50, 1, generator=torch.Generator().manual_seed(0))
        >>> u[1] += 20.0
        >>> modes(u)
        [[0, 2, 3], [1]]
    """
    groups: list[list[int]] = []
    for chain in range(u.shape[0]):
        joined = [g for g in groups if any(_overlap(u[[chain, other]]) for other in g)]
        groups = [g for g in groups if g not in joined] + [sorted(sum(joined, [chain]))]
    return sorted(groups)


def _overlap(pair: Tensor) -> bool:
    return pair.shape[1] < MIN_HALVES or bool((r_hat(pair) < SAME_MODE_R_HAT).all())


def warn_diagnostics(draws: Draws, by_chain: Mapping[str, Tensor], max_depth: int | None) -> None:
    """Warn if chains do not move or disagree, or trajectories diverge or are cut off."""
    for problem in _problems(draws, by_chain, max_depth):
        warnings.warn(problem, PosteriorWarning, stacklevel=4)


def _problems(draws: Draws, by_chain: Mapping[str, Tensor], max_depth: int | None) -> Iterator[str]:
    u, diverging, energy, depth = draws.u, draws.diverging, draws.energy, draws.depth
    if u.shape[1] >= MIN_DRAWS:
        stuck = (u == u[:, :1]).all(-1).all(-1).nonzero().flatten().tolist()
        if stuck:
            yield (
                f"Chains that never moved: {str(stuck)[1:-1]}, of {u.shape[0]}. Every proposal was rejected. Start "
                "elsewhere, initial='current' or your own values, or take smaller steps, sampler=NUTS(step_size=0.01)."
            )
        yield from _disagreement(u, by_chain)
    count = int(diverging.sum())
    if count > max(2.0, MAX_DIVERGENCES * diverging.numel()):
        yield (
            f"{count} of {diverging.numel()} trajectories diverged: the density has regions too steep for the step "
            "size, or where K cannot be factorized, and draws near them may be missing. Take smaller steps, "
            "sampler=NUTS(target_accept_prob=0.95), or use priors that keep parameters from extremes."
        )
    if energy is not None and energy.shape[1] >= MIN_DRAWS and bool((energy.var(1) > 0).all()):
        smallest = float(energy_information(energy).min())
        if smallest < MIN_E_BFMI:
            yield (
                f"The energy of a chain moves slowly: its E-BFMI is {smallest:.2f}, and should be above {MIN_E_BFMI}. "
                "The posterior has long tails. Use priors with lighter tails, or raise num_samples."
            )
    if depth is not None and max_depth is not None:
        share = float((depth >= max_depth).double().mean())
        if share > MAX_TRUNCATED:
            yield (
                f"{share:.0%} of the trajectories were cut off at max_tree_depth={max_depth}, so that successive draws "
                "are correlated. Raise max_tree_depth, or warmup_steps, in which the mass matrix is adapted."
            )


def _disagreement(u: Tensor, by_chain: Mapping[str, Tensor]) -> Iterator[str]:
    largest = {name: float(rank_r_hat(draws).max()) for name, draws in by_chain.items()}
    worst = max(largest, key=lambda name: largest[name])
    if not largest[worst] > MAX_R_HAT:
        return
    groups = modes(u)
    advice = "They have not mixed yet: raise warmup_steps and num_samples."
    if len(groups) > 1:
        places = "; ".join(f"chains {str(g)[1:-1]} around {_centre(by_chain[worst][g])}" for g in groups)
        advice = (
            f"They are in {len(groups)} modes ({places}) and do not move between them, so that their shares are not "
            "the weights of the modes. Weigh them by evidence, posterior.weigh_modes(), or use sampler=SMC()."
        )
    yield f"The chains disagree: R-hat of {worst} is {largest[worst]:.2f}, and should be below {MAX_R_HAT}. {advice}"


def _centre(draws: Tensor) -> str:
    return ", ".join(f"{value:.3g}" for value in draws.flatten(0, 1).double().mean(0).reshape(-1)[:4].tolist())


def r_hat(draws: Tensor) -> Tensor:
    """R-hat of the halves of chains ``(num_chains, num_samples, *shape)``; NaN for fewer than four draws per chain.

    Chains that never move have R-hat 1 if they are all at the same point, and ∞ otherwise.
    """
    return _each(draws, lambda values: _r_hat(_split(values)), math.nan)


def rank_r_hat(draws: Tensor) -> Tensor:
    """The same for normal scores of the ranks of the draws, and of their distances from the median.

    Example:
        >>> draws = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
        >>> rank_r_hat(draws).item() < 1.02, rank_r_hat(draws + torch.arange(4).unsqueeze(1)).item() > 1.5
        (True, True)
    """
    return _each(draws, _rank_r_hat, math.nan)


def n_eff(draws: Tensor) -> Tensor:
    """Effective sample size for the centre of the distribution; the number of draws for fewer than four per chain."""
    return _each(draws, lambda values: _size(_scores(_split(values))), float(draws.shape[0] * draws.shape[1]))


def n_eff_tail(draws: Tensor) -> Tensor:
    """Effective sample size for the 5 % and 95 % quantiles."""
    return _each(draws, _tail_size, float(draws.shape[0] * draws.shape[1]))


def _each(draws: Tensor, statistic: Callable[[Vector], float], otherwise: float) -> Tensor:
    shape = draws.shape[2:]
    if draws.shape[1] < MIN_HALVES:
        return torch.full(shape, otherwise, dtype=torch.float64)
    columns = draws.detach().double().cpu().reshape(*draws.shape[:2], -1).numpy()
    values = [statistic(columns[..., j]) for j in range(columns.shape[-1])]
    return torch.tensor(values, dtype=torch.float64).reshape(shape)


def _split(values: Vector) -> Vector:
    half = values.shape[1] // 2
    return np.concatenate([values[:, :half], values[:, -half:]])


def _scores(values: Vector) -> Vector:
    """Normal scores of the ranks; ties have their mean rank."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1.0))[inverse.reshape(values.shape)]
    shares = torch.from_numpy((ranks - 0.375) / (values.size + 0.25))
    scores: Vector = torch.special.ndtri(shares).numpy()
    return scores


def _rank_r_hat(values: Vector) -> float:
    halves = _split(values)
    folded = np.abs(halves - np.median(halves))
    return max(_r_hat(_scores(halves)), _r_hat(_scores(folded)))


def _r_hat(values: Vector) -> float:
    if not (np.ptp(values, axis=1) > 0).any():
        return math.inf if np.ptp(values) > 0 else 1.0
    n = values.shape[1]
    within, between = values.var(axis=1, ddof=1).mean(), values.mean(axis=1).var(ddof=1)
    return math.sqrt((n - 1.0) / n + between / within)


def _tail_size(values: Vector) -> float:
    levels = np.quantile(values, (0.05, 0.95))
    return min(_size(_split((values <= level).astype(float))) for level in levels)


def _size(values: Vector) -> float:
    """The effective size of chains ``(m, n)``; equal draws count once each, as in ArviZ."""
    m, n = values.shape
    if np.ptp(values) < np.finfo(float).resolution:
        return float(m * n)
    centered = values - values.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centered, 2 * n, axis=1)) ** 2
    autocovariances = (np.fft.irfft(spectrum, 2 * n, axis=1)[:, :n] / n).mean(axis=0)
    within = autocovariances[0] * n / (n - 1.0)
    total = autocovariances[0] + (values.mean(axis=1).var(ddof=1) if m > 1 else 0.0)
    rho = 1.0 - (within - autocovariances) / total
    rho[0] = 1.0
    kept, t = np.zeros(n), 1
    kept[:2] = even, odd = 1.0, rho[1]
    while t < n - 3 and even + odd > 0.0:
        even, odd = rho[t + 1], rho[t + 2]
        if even + odd >= 0.0:
            kept[t + 1], kept[t + 2] = even, odd
        t += 2
    last = t - 2
    if even > 0.0:
        kept[last + 1] = even
    for t in range(1, last - 1, 2):  # sums of pairs must not increase
        if kept[t + 1] + kept[t + 2] > kept[t - 1] + kept[t]:
            kept[t + 1] = kept[t + 2] = 0.5 * (kept[t - 1] + kept[t])
    tau = -1.0 + 2.0 * kept[: last + 1].sum() + kept[last + 1 : last + 2].sum()
    return float(m * n / max(tau, 1.0 / math.log10(m * n)))


def energy_information(energy: Tensor) -> Tensor:
    r"""E-BFMI of each chain, :math:`\sum_t (E_t - E_{t-1})^2 / \sum_t (E_t - \bar E)^2` for ``energy`` ``(m, n)``.

    Below 0.3 the momenta of NUTS do not reach all levels of the density (Betancourt 2016).
    """
    return energy.diff(dim=1).square().sum(1) / (energy - energy.mean(1, keepdim=True)).square().sum(1).clamp_min(
        1e-300
    )
