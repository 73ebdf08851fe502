r"""Kernel ridge regressions on z, many of them at the price of a few, each with its leave-one-out residuals.

With H = I − 11ᵀ/n and :math:`H K_z H = Q \Lambda Q^\top`, the regression of Y on z with a free constant is

.. math::  S = \tfrac1n 11^\top + Q \operatorname{diag}\Big(\frac{\lambda}{\lambda + \eta}\Big) Q^\top, \qquad
           Y_i - \hat Y_{-i}(z_i) = \frac{[Y - SY]_i}{1 - S_{ii}}, \qquad
           \mathcal R[Y]_i = \frac{[Y - SY]_i}{\sqrt{1 - S_{ii}}} .

The first is the leave-one-out residual, by which a regression is chosen. Its variance grows with the leverage S_ii, and
so with the distance of z_i from the others, for whatever is regressed: a size that x and y would share. The second, the
studentized residual, has the variance of the noise everywhere if S is close to a projection, and is what is left of Y.

One decomposition of a kernel serves every η and every Y, so that kernel and η are chosen on a grid by the mean squared
leave-one-out residual: no search, no refit. Each kernel is replaced by its Nyström features at landmarks, all rows or
100 + n/10 drawn at random if there are more, of which a factorization with pivots keeps as many as the kernel needs.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ..validation import check_memory

LENGTHSCALES = (0.12, 0.3, 0.7, 1.6, 4.0)
"""For coordinates of unit spread, times √p in p dimensions."""
PAIRED = (2, 3)
"""Which of them the kernels of two coordinates have."""
MAX_PAIRED = 5
"""Above so many coordinates there are none of two."""
RIDGES = tuple(10.0 ** (2 * e / 3) for e in range(-4, 5))
"""η."""
LEAST_LANDMARKS = 100
"""A sample of n rows has a tenth of n more."""
MAX_FREEDOM = 0.5
"""tr S at most, for each row: more is interpolation, of which leave-one-out residuals of few rows are a poor judge."""
PIVOT = 1e-6
"""Of a row of unit size, what may be left of it when others are known."""
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

    @property
    def freedom(self) -> float:
        """tr S."""
        return 1.0 + float(self.f.sum())

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
    coordinates, which needs fewer rows where causes add up. Of three to five coordinates every two have kernels of
    their own, which need fewer rows where two causes act together and the others do not.

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
            weight = (1.0 - leverage).clamp_min(SMALLEST).pow(-2)
            self.grids.append((f, leverage, weight, f.sum(0) > MAX_FREEDOM * self.n))

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
        for (_, Q), (f, _, weight, excluded) in zip(self.parts, self.grids, strict=True):
            weighted = f.unsqueeze(-1) * (Q.mT @ Y).unsqueeze(1)
            rest = (Q @ weighted.flatten(1)).reshape(n, f.shape[1], -1).sub_(Y.unsqueeze(1))
            error = torch.einsum("nem,ne->em", rest.square_(), weight) @ member
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
    answer = []
    for K in _grams(z, z[landmarks]):
        Z = _factor(K, landmarks)
        Z = Z - Z.mean(dim=0, keepdim=True)
        lam, W = torch.linalg.eigh(Z.mT @ Z)
        keep = lam > RANK * lam.clamp_min(1.0).amax(0, keepdim=True) if len(lam) else lam > 0
        if bool(keep.any()):
            lam, W = lam[keep], W[:, keep]
            answer.append((lam, Z @ (W * lam.rsqrt())))
    return answer


def _factor(K: Tensor, landmarks: Tensor) -> Tensor:
    """Z with ZZᵀ ≈ the Gram matrix of all rows, from its columns K ``(n, m)`` of the landmarks.

    A Cholesky factorization with pivots takes the landmarks one by one, each time the one that those before it say the
    least about, until what is left of all is below :data:`PIVOT`. Smooth kernels need few.
    """
    from scipy.linalg.lapack import dpstrf

    L, pivots, rank, _ = dpstrf(K[landmarks].numpy(force=True), tol=PIVOT, lower=1)
    chosen = torch.from_numpy(pivots[:rank] - 1).to(K.device)
    L = torch.from_numpy(L[:rank, :rank]).to(K.device)
    # K_nr L⁻ᵀ
    Z: Tensor = torch.linalg.solve_triangular(L, K[:, chosen].mT, upper=False).mT
    return Z


def _num_kernels(z: Tensor) -> int:
    """How many :func:`_grams` has."""
    p = z.shape[-1]
    return len(LENGTHSCALES) * (1 if p == 1 else 2) + 2 + len(PAIRED) * len(_pairs(p))


def _pairs(p: int) -> list[tuple[int, int]]:
    """The pairs of coordinates that have kernels of their own."""
    return list(itertools.combinations(range(p), 2)) if 2 < p <= MAX_PAIRED else []


def _grams(a: Tensor, b: Tensor) -> Tensor:
    """exp(−|a − b|²/2pℓ²) for every ℓ, exp(−|a − b|/√p), aᵀb/p; in several dimensions the means over coordinates of
    exp(−(a_j − b_j)²/2ℓ²) too, and in a few a squared exponential of every two coordinates, and a tenth of that mean.
    """
    p = a.shape[-1]
    ell = a.new_tensor(LENGTHSCALES)[:, None, None]
    each = (a.mT.unsqueeze(-1) - b.mT.unsqueeze(-2)).square()  # one (n, m) for each coordinate
    joint = each.sum(0)
    K = torch.exp(-0.5 * joint / (p * ell.square()))
    rough = torch.exp(-(joint / p).sqrt()).unsqueeze(0)
    linear = (a @ b.mT / p).unsqueeze(0)
    if p == 1:
        return torch.cat([K, rough, linear])
    added = torch.zeros_like(K)
    for square in each:
        added += torch.exp(-0.5 * square / ell.square())
    added /= p
    paired = [
        0.9 * torch.exp(-0.25 * (each[i] + each[j]) / LENGTHSCALES[at] ** 2) + 0.1 * added[at]
        for i, j in _pairs(p)
        for at in PAIRED
    ]
    return torch.cat([K, rough, linear, added, *(gram.unsqueeze(0) for gram in paired)])
