r"""Kernel ridge regressions on z, many of them at the price of a few, each with its leave-one-out residuals.

With H = I − 11ᵀ/n and :math:`H K_z H = Q \Lambda Q^\top`, the regression of Y on z with a free constant is

.. math::  S = \tfrac1n 11^\top + Q \operatorname{diag}\Big(\frac{\lambda}{\lambda + \eta}\Big) Q^\top, \qquad
           Y_i - \hat Y_{-i}(z_i) = \frac{[Y - SY]_i}{1 - S_{ii}}, \qquad
           \mathcal R[Y]_i = \frac{[Y - SY]_i}{\sqrt{1 - S_{ii}}} .

The first is the leave-one-out residual, by which a regression is chosen. Its variance grows with the leverage S_ii, and
so with the distance of z_i from the others, for whatever is regressed: a size that x and y would share. The second, the
studentized residual, has the variance of the noise everywhere if S is close to a projection, and is what is left of Y.

One decomposition of a kernel serves every η and every Y, so that kernel and η are chosen on a grid by the mean squared
leave-one-out residual: no search, no refit. Of more than 100 rows each kernel is replaced by its Nyström features at
100 + n/10 rows drawn at random, and Q has that many columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..validation import check_memory

LENGTHSCALES = (0.12, 0.3, 0.7, 1.6, 4.0)
"""For coordinates of unit spread, times √p in p dimensions."""
RIDGES = tuple(10.0 ** (e / 2) for e in range(-6, 6))
"""η."""
LEAST_LANDMARKS = 100
"""A sample of n rows has a tenth of n more."""
MAX_FREEDOM = 0.5
"""tr S at most, for each row: more is interpolation, of which leave-one-out residuals of few rows are a poor judge."""
RANK = 1e-7
"""Eigenvalues below this share of the largest are rounding."""
SMALLEST = 1e-3
"""1 − S_ii is at least this."""
MEMORY_REMEDY = "Test a random part of the rows: a few thousand tell nearly as much."


class Smoother(NamedTuple):
    """A regression on z.

    Attributes:
        Q: eigenvectors of the centred kernel, ``(n, r)``.
        f: λ/(λ + η), ``(r,)``.
        leverage: S_ii, ``(n,)``.
        gain: the share of the squared leave-one-out error of the mean that it removes; 0 for the mean itself.
    """

    Q: Tensor
    f: Tensor
    leverage: Tensor
    gain: float

    def residuals(self, Y: Tensor) -> Tensor:
        """ℛ[Y] for the columns of Y ``(n, m)``."""
        Y = Y - Y.mean(dim=0, keepdim=True)
        fitted = (self.Q * self.f) @ (self.Q.mT @ Y)
        return (Y - fitted) / (1.0 - self.leverage).clamp_min(SMALLEST).sqrt().unsqueeze(-1)

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows of S."""
        return 1.0 / self.Q.shape[0] + (self.Q[start:stop] * self.f) @ self.Q.mT


class Smoothers:
    """Regressions on any of several versions of the points z, ``(n, p)`` each, with kernels of several lengthscales.

    Beside squared exponentials there are a rough kernel, for steps, and the linear one, for what goes on far outside.
    In more than one dimension each lengthscale has two kernels, a squared exponential and the mean of those of single
    coordinates, which needs fewer rows where causes add up.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> z = torch.rand(200, 1, generator=generator, dtype=torch.float64)
        >>> y = torch.sin(6 * z) + 0.1 * torch.randn(200, 1, generator=generator, dtype=torch.float64)
        >>> smoother = Smoothers([z / z.std()], generator).choose(y)
        >>> smoother.gain > 0.95, float(smoother.residuals(y).std()) < 0.12
        (True, True)
    """

    def __init__(self, versions: Sequence[Tensor], generator: torch.Generator) -> None:
        self.n = versions[0].shape[0]
        landmarks = torch.randperm(self.n, generator=generator)[: LEAST_LANDMARKS + self.n // 10].to(versions[0].device)
        kernels = sum(_num_kernels(z) for z in versions)
        check_memory(self.n, versions[0], kernels, MEMORY_REMEDY, columns=len(landmarks), matrices=2)
        self.parts = [part for z in versions for part in _decompositions(z, landmarks)]
        eta = versions[0].new_tensor(RIDGES)
        self.grids = []
        for lam, Q in self.parts:
            f = lam.unsqueeze(-1) / (lam.unsqueeze(-1) + eta)
            leverage = 1.0 / self.n + Q.square() @ f
            self.grids.append((f, leverage, (1.0 - leverage).clamp_min(SMALLEST), f.sum(0) > MAX_FREEDOM * self.n))

    def choose(self, Y: Tensor) -> Smoother:
        """The kernel and η with the least squared leave-one-out error over the columns of Y ``(n, m)``."""
        return self.choose_each([Y])[0]

    def choose_each(self, groups: Sequence[Tensor]) -> list[Smoother]:
        """The same for several groups of columns, each with a choice of its own."""
        n, Y = self.n, torch.cat(list(groups), dim=1)
        Y = Y - Y.mean(dim=0, keepdim=True)
        # which column belongs to which group, (m, G)
        member = torch.block_diag(*(Y.new_ones(group.shape[1], 1) for group in groups))
        null = (Y / (1.0 - 1.0 / n)).square().sum(0) @ member
        errors = [null.expand(len(RIDGES), -1)]
        for (_, Q), (f, _, free, excluded) in zip(self.parts, self.grids, strict=True):
            weighted = f.unsqueeze(-1) * (Q.mT @ Y).unsqueeze(1)
            fitted = (Q @ weighted.flatten(1)).reshape(n, f.shape[1], -1)
            error = ((Y.unsqueeze(1) - fitted) / free.unsqueeze(-1)).square_().sum(0) @ member
            errors.append(error.masked_fill_(excluded.unsqueeze(-1), torch.inf))
        least, found = torch.cat(errors).min(0)
        gains = torch.where(null > 0, 1.0 - least / null, 0.0).tolist()
        where = [(int(i) // len(RIDGES) - 1, int(i) % len(RIDGES)) for i in found]
        return [self._smoother(*place, gain) for place, gain in zip(where, gains, strict=True)]

    def _smoother(self, part: int, i: int, gain: float) -> Smoother:
        if part < 0:
            nothing = self.parts[0][1].new_zeros if self.parts else torch.zeros(0, dtype=torch.float64).new_zeros
            return Smoother(nothing(self.n, 0), nothing(0), nothing(self.n) + 1.0 / self.n, gain)
        f, leverage, _, _ = self.grids[part]
        return Smoother(self.parts[part][1], f[:, i], leverage[:, i], gain)


def _decompositions(z: Tensor, landmarks: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(λ, Q) of HKH for every kernel; none where z does not vary."""
    if len(landmarks) == z.shape[0]:
        K = _grams(z, z)
        K = K - K.mean(dim=-1, keepdim=True)
        return _kept(K - K.mean(dim=-2, keepdim=True))
    answer = []
    for K, small in zip(_grams(z, z[landmarks]), _grams(z[landmarks], z[landmarks]), strict=True):
        # K ≈ ZZᵀ, Z = K_nm L⁻ᵀ with K_mm = LLᵀ
        small = small + RANK * torch.eye(len(landmarks), dtype=z.dtype, device=z.device)
        Z = torch.linalg.solve_triangular(torch.linalg.cholesky(small), K.mT, upper=False).mT
        Z = Z - Z.mean(dim=0, keepdim=True)
        for lam, W in _kept((Z.mT @ Z).unsqueeze(0)):
            answer.append((lam, Z @ (W * lam.rsqrt())))
    return answer


def _kept(matrices: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Eigenvalues above rounding and their vectors, of the matrices that have any."""
    answer = []
    for lam, Q in zip(*torch.linalg.eigh(matrices), strict=True):
        keep = lam > max(RANK * float(lam[-1]), RANK)
        if bool(keep.any()):
            answer.append((lam[keep], Q[:, keep].contiguous()))
    return answer


def _num_kernels(z: Tensor) -> int:
    """How many :func:`_grams` has."""
    return (len(LENGTHSCALES) + 2) if z.shape[-1] == 1 else (2 * len(LENGTHSCALES) + 2)


def _grams(a: Tensor, b: Tensor) -> Tensor:
    """exp(−|a − b|²/2pℓ²) for every ℓ, exp(−|a − b|/√p), aᵀb/p, and in several dimensions the mean of
    exp(−(a_j − b_j)²/2ℓ²) too.
    """
    p = a.shape[-1]
    ell = a.new_tensor(LENGTHSCALES)[:, None, None]
    joint = torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()
    K = torch.exp(-0.5 * joint / (p * ell.square()))
    rough = torch.exp(-(joint / p).sqrt()).unsqueeze(0)
    linear = (a @ b.mT / p).unsqueeze(0)
    if p == 1:
        return torch.cat([K, rough, linear])
    added = torch.zeros_like(K)
    for j in range(p):
        added += torch.exp(-0.5 * (a[:, j, None] - b[:, j]).square() / ell.square())
    return torch.cat([K, rough, linear, added / p])
