r"""How many independent draws chains are worth, and whether they agree: by ranks, as ArviZ has them.

Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021): chains are split in halves, draws replaced by the normal
scores of their ranks, so that heavy tails do no harm. With W the variance within chains and B/n that of their means,

.. math::  \hat R = \sqrt{\tfrac{n-1}n + \tfrac{B}{n W}}, \qquad
           \text{ESS} = \frac{mn}{-1 + 2 \sum_{t \le T} \hat\rho_t}

with the sum cut where pairs of autocorrelations turn negative (Geyer). :math:`\hat R` is the larger of that of the
draws and that of their distances from the median; the effective size of the tail is the smaller of those of the
5 % and 95 % quantiles.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from ..learning.parameters import Vector

TAILS = (0.05, 0.95)
FEWEST = 4
"""Draws of a chain below which nothing is said."""


def rank_r_hat(draws: Tensor) -> Tensor:
    """R-hat of draws ``(num_chains, num_samples, *shape)``; NaN for fewer than four of a chain.

    Chains that never move agree where they stand at one place, R-hat 1, and have R-hat ∞ where they do not.

    Example:
        >>> draws = torch.randn(4, 200, generator=torch.Generator().manual_seed(0))
        >>> rank_r_hat(draws).item() < 1.02, rank_r_hat(draws + torch.arange(4).unsqueeze(1)).item() > 1.5
        (True, True)
    """
    return _each(draws, _r_hat, math.nan)


def bulk_size(draws: Tensor) -> Tensor:
    """Effective size for the middle of the distribution; as many as there are for fewer than four of a chain."""
    return _each(draws, lambda values: _size(_scores(_split(values))), float(draws.shape[0] * draws.shape[1]))


def tail_size(draws: Tensor) -> Tensor:
    """Effective size for the 5 % and 95 % quantiles."""
    return _each(draws, _tail_size, float(draws.shape[0] * draws.shape[1]))


def _each(draws: Tensor, statistic: object, otherwise: float) -> Tensor:
    shape = draws.shape[2:]
    if draws.shape[1] < FEWEST:
        return torch.full(shape, otherwise, dtype=torch.float64)
    assert callable(statistic)
    columns = draws.detach().double().cpu().reshape(*draws.shape[:2], -1).numpy()
    found = [statistic(columns[..., j]) for j in range(columns.shape[-1])]
    return torch.tensor(found, dtype=torch.float64).reshape(shape)


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


def _r_hat(values: Vector) -> float:
    halves = _split(values)
    if not (np.ptp(values, axis=1) > 0).any():
        return math.inf if np.ptp(values) > 0 else 1.0
    folded = np.abs(halves - np.median(halves))
    return max(_plain_r_hat(_scores(halves)), _plain_r_hat(_scores(folded)))


def _plain_r_hat(values: Vector) -> float:
    n = values.shape[1]
    within, between = values.var(axis=1, ddof=1).mean(), values.mean(axis=1).var(ddof=1)
    if not within > 0.0:
        return 1.0 if not between > 0.0 else math.inf
    return math.sqrt((n - 1.0) / n + between / within)


def _tail_size(values: Vector) -> float:
    levels = np.quantile(values, TAILS)
    return min(_size(_split((values <= level).astype(float))) for level in levels)


def _size(values: Vector) -> float:
    """The effective size of chains ``(m, n)``; draws that are all alike count once each, as ArviZ has it."""
    m, n = values.shape
    if np.ptp(values) < np.finfo(float).resolution:
        return float(m * n)
    covariances = _autocovariances(values).mean(axis=0)
    within = covariances[0] * n / (n - 1.0)
    total = covariances[0] + (values.mean(axis=1).var(ddof=1) if m > 1 else 0.0)
    rho = 1.0 - (within - covariances) / total
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
    for t in range(1, last - 1, 2):  # pairs may only fall
        if kept[t + 1] + kept[t + 2] > kept[t - 1] + kept[t]:
            kept[t + 1] = kept[t + 2] = 0.5 * (kept[t - 1] + kept[t])
    tau = -1.0 + 2.0 * kept[: last + 1].sum() + kept[last + 1 : last + 2].sum()
    return float(m * n / max(tau, 1.0 / math.log10(m * n)))


def _autocovariances(values: Vector) -> Vector:
    n = values.shape[1]
    centered = values - values.mean(axis=1, keepdims=True)
    spectrum = np.abs(np.fft.rfft(centered, 2 * n, axis=1)) ** 2
    answer: Vector = np.fft.irfft(spectrum, 2 * n, axis=1)[:, :n] / n
    return answer


def energy_information(energy: Tensor) -> Tensor:
    r"""E-BFMI of each chain, :math:`\sum_t (E_t - E_{t-1})^2 / \sum_t (E_t - \bar E)^2` for ``energy`` ``(m, n)``.

    Below 0.3 the momenta of NUTS do not reach all levels of the density (Betancourt 2016).

    Example:
        >>> energy = torch.randn(1, 1000, generator=torch.Generator().manual_seed(0))
        >>> 1.8 < energy_information(energy).item() < 2.2                # independent energies
        True
    """
    spread = (energy - energy.mean(1, keepdim=True)).square().sum(1)
    return energy.diff(dim=1).square().sum(1) / spread.clamp_min(1e-300)
