r"""All permutations of a test of independence in one product of spectra.

HSIC needs :math:`\sum_{ij} K_{ij} L_{\pi_i \pi_j}` for many permutations π: for each of them n² values of L in another
order. Rotations :math:`\pi_i = i + s \bmod n` are n permutations whose sums are a circular correlation. Along the
diagonal at offset d let :math:`\kappa_d(i) = K_{i, i+d}` and :math:`\lambda_d(i) = L_{i, i+d}` (indices mod n). Then

.. math::  \sum_{ij} K_{ij} L_{i+s, j+s} = \sum_d w_d \sum_i \kappa_d(i) \lambda_d(i + s)
           = \mathcal F^{-1} \Big[ \sum_d w_d\, \overline{\hat\kappa_d}\, \hat\lambda_d \Big]_s ,

with d from 0 to n/2 and w_d = 2 but for the ends, K and L being symmetric: n permutations for n/2 Fourier transforms.

**Exact.** Take R random orders :math:`h_1, \dots, h_R` of the y and all n rotations of each. If x and y are
independent, the observed pairing is as likely as any other to be the one at any rotation of any of the orders: the
nR statistics are exchangeable, and :math:`p = \#\{T \ge T_0\} / nR` is exact. The x and y are put into one random order
first, so that neighboring rows mean nothing.

The n × n/2 diagonals are formed in blocks of offsets, so that no n × n matrix is held where it would not fit.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram
from ..kernels.gram import cross_evaluation
from ..progress import ProgressBar
from .checks import bar_of_test, check_gram

MEMORY = 2**27
"""Bytes of a block of diagonals; the Gram matrix itself is formed where it is smaller than four such blocks."""


class Diagonals:
    """κ_d(i) = k(x_i, x_{i+d}) for blocks of offsets d: from the Gram matrix where it fits, else pair by pair."""

    def __init__(self, kernel: Kernel, x: Tensor) -> None:
        self.kernel, self.x = kernel, x
        n = x.shape[0]
        self.batch = torch.Size(kernel.batch_shape)
        self.K: Tensor | None = None
        if n * n * 8 * self.batch.numel() <= 4 * MEMORY:
            self.K = check_gram(gram(kernel, x), kernel)
            self.batch = self.K.shape[:-2]

    def block(self, offsets: Tensor, order: Tensor) -> Tensor:
        """``(*batch, len(offsets), n)`` for the points taken in this order."""
        n = self.x.shape[0]
        partner = order[(torch.arange(n, device=self.x.device) + offsets.unsqueeze(-1)) % n]
        if self.K is not None:
            flat = self.K.reshape(*self.batch, n * n)
            return flat[..., order * n + partner]
        left = self.x[order].expand(*offsets.shape, n, self.x.shape[1])
        with cross_evaluation(self.kernel):
            values = [self.kernel(a, self.x[b], diag=True) for a, b in zip(left, partner, strict=True)]
        return check_gram(torch.stack(values, dim=-2), self.kernel)


class Correlations(NamedTuple):
    """For every kernel of x (J), of y (J') and every one of the R·n permutations, the observed pairing first.

    Attributes:
        product: Σ_ij K_ij L_{π_i π_j}, ``(J, J', Rn)``.
        sums: Σ_i (K1)_i (L1)_{π_i}, the same shape.
        diagonal_product: Σ_i K_ii L_{π_i π_i}, the same shape.
        diagonal_sums_x: Σ_i K_ii (L1)_{π_i}, the same shape.
        diagonal_sums_y: Σ_i (K1)_i L_{π_i π_i}, the same shape.
        total_x: 1ᵀK1, ``(J,)``.
        total_y: 1ᵀL1, ``(J',)``.
        trace_x: Σ K_ii, ``(J,)``.
        trace_y: Σ L_ii, ``(J',)``.
        square_x: ‖HKH‖², ``(J,)``.
        square_y: ‖HLH‖², ``(J',)``.
    """

    product: Tensor
    sums: Tensor
    diagonal_product: Tensor
    diagonal_sums_x: Tensor
    diagonal_sums_y: Tensor
    total_x: Tensor
    total_y: Tensor
    trace_x: Tensor
    trace_y: Tensor
    square_x: Tensor
    square_y: Tensor


def correlations(
    kernels_x: tuple[Kernel, ...],
    kernels_y: tuple[Kernel, ...],
    x: Tensor,
    y: Tensor,
    num_permutations: int,
    generator: torch.Generator,
    progress: bool | None = False,
) -> Correlations:
    """The sums of every pair of kernels for at least ``num_permutations`` permutations beside the observed pairing.

    A kernel with a batch dimension (draws of a posterior) counts as that many kernels.
    """
    n = x.shape[0]
    num_orders = max(1, math.ceil((num_permutations + 1) / n)) if num_permutations else 1
    orders = [torch.randperm(n, generator=generator).to(x.device) for _ in range(num_orders)]
    Ks, Ls = ([Diagonals(kernel, data) for kernel in kernels] for kernels, data in ((kernels_x, x), (kernels_y, y)))
    with bar_of_test(n // 2 + 1, n, progress) as bar:
        found = _spectra(Ks, Ls, orders, bar)
    zero = torch.zeros(1, dtype=torch.long, device=x.device)
    diagonal_x = _stack(Ks, zero, orders[0])[:, 0]
    diagonal_y = torch.stack([_stack(Ls, zero, order)[:, 0] for order in orders])
    total_x, total_y = found.sums_x.sum(-1), found.sums_y[0].sum(-1)
    return Correlations(
        torch.fft.irfft(found.spectrum, n=n).flatten(-2),
        _circular(found.sums_x, found.sums_y),
        _circular(diagonal_x, diagonal_y),
        _circular(diagonal_x, found.sums_y),
        _circular(found.sums_x, diagonal_y),
        total_x,
        total_y,
        diagonal_x.sum(-1),
        diagonal_y[0].sum(-1),
        _centred_square(found.square_x, found.sums_x),
        _centred_square(found.square_y, found.sums_y[0]),
    )


class _Spectra(NamedTuple):
    """Σ_d w_d conj(κ̂_d) λ̂_d ``(J, J', R, n/2 + 1)``, and of K and L the row sums and ‖·‖²."""

    spectrum: Tensor
    sums_x: Tensor
    sums_y: Tensor
    square_x: Tensor
    square_y: Tensor


def _spectra(Ks: list[Diagonals], Ls: list[Diagonals], orders: list[Tensor], bar: ProgressBar) -> _Spectra:
    x, n, half = Ks[0].x, len(orders[0]), len(orders[0]) // 2
    J, Jy = (sum(D.batch.numel() for D in Ds) for Ds in (Ks, Ls))
    spectrum = torch.zeros(J, Jy, len(orders), half + 1, dtype=torch.complex128, device=x.device)
    sums_x, sums_y = x.new_zeros(J, n), x.new_zeros(len(orders), Jy, n)
    square_x, square_y = x.new_zeros(J), x.new_zeros(Jy)
    width = max(1, MEMORY // (16 * n * (J + Jy)))
    for start in range(0, half + 1, width):
        offsets = torch.arange(start, min(start + width, half + 1), device=x.device)
        # each pair of rows once: offsets d and n − d are the same pairs
        w = torch.where((offsets == 0) | (2 * offsets == n), 1.0, 2.0).to(x)
        kappa = _stack(Ks, offsets, orders[0])
        sums_x += _row_sums(kappa, offsets, w)
        square_x += (kappa.square().sum(-1) * w).sum(-1)
        spectrum_x = torch.fft.rfft(kappa).conj() * w.unsqueeze(-1)
        for r, order in enumerate(orders):
            lam = _stack(Ls, offsets, order)
            sums_y[r] += _row_sums(lam, offsets, w)
            if r == 0:
                square_y += (lam.square().sum(-1) * w).sum(-1)
            spectrum_y = torch.fft.rfft(lam)
            for j in range(J):
                spectrum[j, :, r] += (spectrum_x[j] * spectrum_y).sum(-2)
        bar.update(len(offsets))
    return _Spectra(spectrum, sums_x, sums_y, square_x, square_y)


def _circular(a: Tensor, b: Tensor) -> Tensor:
    """Σ_i a(i) b(i + s) for all s: from ``(J, n)`` and ``(R, J', n)`` to ``(J, J', Rn)``."""
    product = torch.fft.rfft(a).conj()[:, None, None] * torch.fft.rfft(b).transpose(0, 1)
    answer: Tensor = torch.fft.irfft(product, n=a.shape[-1]).flatten(-2)
    return answer


def _centred_square(square: Tensor, sums: Tensor) -> Tensor:
    """‖HKH‖² = ‖K‖² − (2/n) Σ_i (K1)_i² + (1ᵀK1)²/n²."""
    n = sums.shape[-1]
    return (square - 2.0 / n * sums.square().sum(-1) + sums.sum(-1).square() / n**2).clamp_min(0.0)


def _stack(diagonals: list[Diagonals], offsets: Tensor, order: Tensor) -> Tensor:
    """Blocks of all kernels, batches flattened: ``(J, len(offsets), n)``."""
    return torch.cat([D.block(offsets, order).reshape(-1, len(offsets), len(order)) for D in diagonals])


def _row_sums(kappa: Tensor, offsets: Tensor, w: Tensor) -> Tensor:
    """What these diagonals add to K1: K_{i,i+d} to row i, and where w = 2 also to row i + d."""
    n = kappa.shape[-1]
    sums = kappa.sum(-2)
    twice = (w > 1.5).nonzero().squeeze(-1)
    if len(twice):
        back = (torch.arange(n, device=kappa.device) - offsets[twice].unsqueeze(-1)) % n
        sums = sums + kappa[:, twice].gather(-1, back.expand(kappa.shape[0], -1, -1)).sum(-2)
    return sums
