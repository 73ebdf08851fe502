r"""Ridge regressions on z with many kernels and ridges, and permutations among rows of similar z.

With H = I − 11ᵀ/n and :math:`H K_z H = Q \Lambda Q^\top`, the regression of Y on z with a free constant is

.. math::  S = \tfrac1n 11^\top + Q \operatorname{diag}\Big(\frac{\lambda}{\lambda + \eta}\Big) Q^\top, \qquad
           Y_i - \hat Y_{-i}(z_i) = \frac{[Y - SY]_i}{1 - S_{ii}}, \qquad
           \mathcal R[Y]_i = \frac{[Y - SY]_i}{\sqrt{1 - S_{ii}}} .

The first is the leave-one-out residual, which selects kernel and η on a grid by its mean square. Its variance grows
with the leverage S_ii, and so with the distance of z_i from the others, whatever Y is: x and y would share it. The
second, the studentized residual, has the variance of the noise everywhere if S is close to a projection; the tests use
it.

A kernel is represented by its Nyström features at landmarks: all rows, or 100 + n/10 random ones if there are more, of
which a pivoted Cholesky factorization keeps as many as the kernel needs.

**Permutations among neighbors.** The part of x and y that depends on z, but that a regression has missed, varies slowly
with z. A permutation inside small blocks of neighbors preserves it and destroys the rest. The blocks come from
splitting the rows repeatedly in two, at a random place along a random direction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..linalg.ridge_path import RidgePath
from ..validation import check_memory

LENGTHSCALES = (0.12, 0.3, 0.7, 1.6, 4.0)  # for coordinates of unit spread, times √p in p dimensions
PAIRED = (2, 3)  # the indices of those used for kernels of two coordinates
MAX_PAIRED = 5  # the most coordinates for which pairs have kernels of their own
RIDGES = tuple(10.0 ** (2 * e / 3) for e in range(-4, 5))  # η
LEAST_LANDMARKS = 100  # in addition to a tenth of the rows
MAX_FREEDOM = 0.5
"""The largest tr S per row: above it the regression interpolates, and leave-one-out residuals are unreliable."""
PIVOT = 1e-6  # the residual variance, for a row of unit variance, at which the factorization stops
RANK = 1e-7  # eigenvalues below this share of the largest are rounding
SMALLEST = 1e-3  # a lower bound of 1 − S_ii
MEMORY_REMEDY = "Test a random subset of the rows: a few thousand are nearly as informative."
BLOCK = 3  # the smallest number of rows in a block of neighbors; a block has fewer than twice as many
LARGEST = 6  # the largest value of block_size
NUM_PARTITIONS = 10


class Smoother(NamedTuple):
    """A regression on z."""

    features: Tensor  # F with S = 11ᵀ/n + F diag(shrinkage) Fᵀ, (n, r)
    shrinkage: Tensor  # 1/(λ + η), (r,)
    leverage: Tensor  # S_ii, (n,)
    freedom: float  # tr S
    gain: float  # the share of the squared leave-one-out error of the mean that the regression removes

    def residuals(self, Y: Tensor) -> Tensor:
        """ℛ[Y] of the columns of Y ``(n, m)``."""
        Y = Y - Y.mean(dim=0, keepdim=True)
        fitted = (self.features * self.shrinkage) @ (self.features.mT @ Y)
        return (Y - fitted) / (1.0 - self.leverage).sqrt().unsqueeze(-1)

    def rows(self, part: slice) -> Tensor:
        """Rows of S."""
        return 1.0 / len(self.features) + (self.features[part] * self.shrinkage) @ self.features.mT


class Smoothers:
    """Regressions on any of several versions of the points z, ``(n, p)`` each, with the kernels of :func:`_grams`."""

    def __init__(self, versions: Sequence[Tensor], generator: torch.Generator) -> None:
        self.n, self.ridges = len(versions[0]), versions[0].new_tensor(RIDGES)
        count = LEAST_LANDMARKS + self.n // 10
        landmarks = torch.randperm(self.n, generator=generator, device="cpu")[:count].to(versions[0].device)
        num_kernels = sum(
            len(LENGTHSCALES) * (1 if p == 1 else 2) + 2 + len(PAIRED) * len(_pairs(p))
            for p in (z.shape[-1] for z in versions)
        )
        check_memory(self.n, versions[0], num_kernels, MEMORY_REMEDY, columns=len(landmarks), matrices=2)
        self.paths: list[tuple[RidgePath, Tensor, Tensor]] = []
        """For each kernel, the ridge path, the rotated features ``(n, r)`` and the leverages ``(n, E)``."""
        for z in versions:
            for K in _grams(z, z[landmarks]):
                Z = _factor(K, landmarks)
                Z = Z - Z.mean(dim=0, keepdim=True)
                path = RidgePath.from_sums(Z.mT @ Z).truncated(RANK)
                if len(path.eigenvalues):  # z varies
                    F = path.rotate(Z)
                    leverage = (1.0 / self.n + path.leverage(F, self.ridges)).clamp_max(1.0 - SMALLEST)
                    self.paths.append((path, F, leverage))

    def select(self, groups: Sequence[Tensor]) -> list[Smoother]:
        """For each group of targets ``(n, m)`` the kernel and η with the least squared leave-one-out error."""
        n, Y = self.n, torch.cat(list(groups), dim=1)
        Y = Y - Y.mean(dim=0, keepdim=True)
        # which column belongs to which group, (m, G)
        member = torch.block_diag(*(Y.new_ones(group.shape[1], 1) for group in groups))
        null = (Y / (1.0 - 1.0 / n)).square().sum(0) @ member
        errors = [null.expand(len(RIDGES), -1)]
        for path, F, leverage in self.paths:
            interpolates = path.degrees_of_freedom(self.ridges) > MAX_FREEDOM * n
            error = path.squared_errors(F, Y, self.ridges, leverage) @ member
            errors.append(error.masked_fill_(interpolates.unsqueeze(-1), torch.inf))
        least, index = torch.cat(errors).min(0)
        gains = torch.where(null > 0, 1.0 - least / null, 0.0).tolist()
        pairs = zip(index.tolist(), gains, strict=True)
        return [self.smoother(i // len(RIDGES) - 1, i % len(RIDGES), gain) for i, gain in pairs]

    def smoother(self, kernel: int, ridge: int, gain: float) -> Smoother:
        """The regression with this kernel and ridge, by their indices; kernel −1 is the mean."""
        if kernel < 0:
            zero = self.ridges.new_zeros
            return Smoother(zero(self.n, 0), zero(0), zero(self.n) + 1.0 / self.n, 1.0, gain)
        path, F, leverage = self.paths[kernel]
        eta = self.ridges[ridge]
        freedom = 1.0 + float(path.degrees_of_freedom(eta))
        return Smoother(F, path.shrinkage(eta), leverage[:, ridge], freedom, gain)


def _factor(K: Tensor, landmarks: Tensor) -> Tensor:
    """Z with ZZᵀ ≈ the Gram matrix of all rows, from its columns K ``(n, m)`` of the landmarks."""
    from scipy.linalg.lapack import dpstrf

    L, pivots, rank, _ = dpstrf(K[landmarks].numpy(force=True), tol=PIVOT, lower=1)
    used = torch.from_numpy(pivots[:rank] - 1).to(K.device)
    L = torch.from_numpy(L[:rank, :rank]).to(K.device)
    # K_nr L⁻ᵀ
    Z: Tensor = torch.linalg.solve_triangular(L, K[:, used].mT, upper=False).mT
    return Z


def _pairs(p: int) -> list[tuple[int, int]]:
    """The pairs of coordinates with kernels of their own."""
    return list(itertools.combinations(range(p), 2)) if 2 < p <= MAX_PAIRED else []


def _grams(a: Tensor, b: Tensor) -> Tensor:
    """exp(−|a − b|²/2pℓ²) for every ℓ; exp(−|a − b|/√p), for steps; aᵀb/p, for extrapolation.

    In several dimensions also the means over coordinates of exp(−(a_j − b_j)²/2ℓ²), for additive effects; in three to
    five, squared exponentials of two coordinates plus a tenth of that mean, for interactions of two.
    """
    p = a.shape[-1]
    ell = a.new_tensor(LENGTHSCALES)[:, None, None]
    each = (a.mT.unsqueeze(-1) - b.mT.unsqueeze(-2)).square()  # (p, n, m)
    joint = each.sum(0)
    K = torch.exp(-0.5 * joint / (p * ell.square()))
    rough = torch.exp(-(joint / p).sqrt()).unsqueeze(0)
    linear = (a @ b.mT / p).unsqueeze(0)
    if p == 1:
        return torch.cat([K, rough, linear])
    additive = torch.zeros_like(K)
    for square in each:
        additive += torch.exp(-0.5 * square / ell.square())
    additive /= p
    paired = [
        0.9 * torch.exp(-0.25 * (each[i] + each[j]) / LENGTHSCALES[at] ** 2) + 0.1 * additive[at]
        for i, j in _pairs(p)
        for at in PAIRED
    ]
    return torch.cat([K, rough, linear, additive, *(gram.unsqueeze(0) for gram in paired)])


def block_size(n: int, p: int, freedom: float) -> int:
    """The smallest number of rows in a block of :func:`local_permutations`, for n rows and p columns of z.

    ``freedom`` has the degrees of freedom of the regression on z. What a regression with few of them leaves unexplained
    varies slowly with z, so that permutations inside larger blocks preserve it.
    """
    return min(max(int(n / (4.0 * p * freedom)), BLOCK), LARGEST)


def local_permutations(z: Tensor, num_permutations: int, generator: torch.Generator, block_size: int = BLOCK) -> Tensor:
    """Permutations ``(B, n)`` of the rows of ``z`` (``(n, p)``) inside blocks of neighbors, or of equal rows."""
    n = len(z)
    if is_grouped(z):
        blocks = z.unique(dim=0, return_inverse=True)[1].unsqueeze(0).numpy(force=True)
    else:
        blocks = partitions(z, min(NUM_PARTITIONS, num_permutations), generator, block_size)
    keys = torch.rand(num_permutations, n, generator=generator, dtype=torch.float64, device="cpu").numpy()
    orders = np.empty((num_permutations, n), dtype=np.int64)
    for g, block in enumerate(blocks):
        own = slice(g, None, len(blocks))
        # NumPy sorts ten times as fast as torch here.
        orders[own, np.argsort(block, kind="stable")] = np.argsort(block + keys[own], axis=-1)
    return torch.from_numpy(orders).to(z.device)


def is_grouped(z: Tensor) -> bool:
    """Whether so many rows of ``z`` are equal that permutations among equal rows suffice."""
    most = len(z) // BLOCK
    if any(len(column.unique()) > most for column in z.unbind(-1)):
        return False
    return len(z.unique(dim=0)) <= most


def partitions(z: Tensor, count: int, generator: torch.Generator, block_size: int = BLOCK) -> NDArray[np.int64]:
    """The block of each row, ``(count, n)``, in random partitions into blocks of s to 2s − 1 rows, s the block size."""
    n, p = z.shape
    points = z.numpy(force=True)
    line = np.arange(count)[:, None]
    order = np.tile(np.argsort(points[:, 0], kind="stable"), (count, 1))
    block = np.zeros((count, n), dtype=np.int64)  # of the rows in this order, ascending
    while True:
        number = int(block.max()) + 1
        size = np.bincount((block + number * line).ravel(), minlength=count * number).reshape(count, number)
        if int(size.max()) < 2 * block_size:
            blocks = np.empty_like(block)
            blocks[line, order] = block
            return blocks
        if p > 1:  # sort by block, and inside a block along its direction
            direction = torch.randn(count, number, p, generator=generator, dtype=torch.float64, device="cpu").numpy()
            along = np.einsum("cnp,cnp->cn", points[order], direction[line, block])
            along = (along - along.min()) / max(np.ptp(along), np.finfo(along.dtype).tiny)
            order = order[line, np.argsort(block + 0.999 * along, axis=-1, kind="stable")]
        # cut each block at random, with enough rows on both sides and near the middle of a large one
        share = torch.rand(count, number, generator=generator, dtype=torch.float64, device="cpu").numpy()
        low = np.maximum(block_size, (0.35 * size).astype(np.int64))
        cut = np.where(size < 2 * block_size, size, low + (share * (size - 2 * low + 1)).astype(np.int64))
        begins = np.zeros((count, n + 1), dtype=np.int64)
        first = np.cumsum(size, axis=-1) - size
        begins[line, first] = begins[line, first + cut] = 1
        block = np.cumsum(begins[:, :n], axis=-1) - 1
