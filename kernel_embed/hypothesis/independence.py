r"""The test of independence by the Hilbert–Schmidt criterion, for all permutations in one product of spectra.

With K, L the Gram matrices of x and y and H = I − 11ᵀ/n,

.. math::
    \mathrm{HSIC}_b &= \frac1{n^2} \operatorname{tr} KHLH = \frac1{n^2} \Big[ \sum_{ij} K_{ij} L_{ij}
        - \frac2n \sum_i (K1)_i (L1)_i + \frac{1^\top K 1 \; 1^\top L 1}{n^2} \Big] \\
    \mathrm{HSIC}_u &= \frac1{n(n-3)} \Big[ \operatorname{tr} \tilde K \tilde L
        - \frac{2}{n-2} 1^\top \tilde K \tilde L 1 + \frac{1^\top \tilde K 1 \; 1^\top \tilde L 1}{(n-1)(n-2)} \Big] ,

where ˜ means a diagonal set to zero (Song et al., 2012).

**Rotations** :math:`\pi_i = i + s \bmod n` are n permutations whose sums :math:`\sum_{ij} K_{ij} L_{\pi_i \pi_j}` are a
circular correlation. With :math:`\kappa_d(i) = K_{i, i+d}` and :math:`\lambda_d(i) = L_{i, i+d}` (indices mod n)

.. math::  \sum_{ij} K_{ij} L_{i+s, j+s} = \sum_d w_d \sum_i \kappa_d(i) \lambda_d(i + s)
           = \mathcal F^{-1} \Big[ \sum_d w_d\, \overline{\hat\kappa_d}\, \hat\lambda_d \Big]_s ,

with d from 0 to n/2 and w_d = 2 except at the ends, because K and L are symmetric.

Take R random orders of the y and all n rotations of each. If x and y are independent, the observed pairing is as likely
as any other to be the one at any rotation of any order: the nR statistics are exchangeable, and
:math:`p = \#\{T \ge T_0\} / nR` is exact.

The n × n/2 diagonals are formed in blocks of offsets, without an n × n matrix where it would be too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..runtime import ProgressBar, cpu_by_default
from ..splits import halves
from ..validation import check_count, generator_of
from .checks import Categorical, bar_of_test, check_choice, check_pairs, finite_gram, paired_values, read_samples
from .kernel_choice import KernelChoice, Kernels, choose_kernels
from .mmd import centred_square
from .result import KernelTestResult, Null, NullScale, by_permutations, decide

MEMORY = 2**27  # bytes of a block of diagonals; the Gram matrix itself is formed if it is smaller than four such blocks


def statistics(
    kernels_x: Kernels, kernels_y: Kernels, x: Tensor, y: Tensor, num_permutations: int, generator: torch.Generator,
    unbiased: bool = False, progress: bool | None = False,
) -> tuple[Tensor, NullScale]:  # fmt: skip
    """T ``(J, 1 + B)`` and the scale of the pairs of kernels in :func:`pairs_of`."""
    num_orders = math.ceil((num_permutations + 1) / len(x))
    orders = [torch.randperm(len(x), generator=generator, device="cpu").to(x.device) for _ in range(num_orders)]
    T, scale = rotated_hsic(kernels_x.kernels, kernels_y.kernels, x, y, orders, unbiased, progress)
    if num_permutations:
        # The other rotations are exchangeable with the observed pairing, and so are any B of them.
        others = 1 + torch.randperm(T.shape[-1] - 1, generator=generator, device="cpu")[:num_permutations].to(T.device)
        T = torch.cat([T[..., :1], T[..., others]], dim=-1)
    rows, columns = map(list, zip(*pairs_of(kernels_x, kernels_y), strict=True))
    T, mean, variance, size = (value[rows, columns] for value in (T, scale.mean, scale.variance, scale.size))
    return T, NullScale(mean, variance, size, scale.shift)


def pairs_of(x: Kernels, y: Kernels) -> list[tuple[int, int]]:
    """The pairs in the test: all maxima (or given kernels) with each other, and equal multiples of the medians."""

    def maxima(kernels: Kernels) -> list[int]:
        free = [i for i, multiple in enumerate(kernels.multiples) if multiple is None]
        return free or [kernels.multiples.index(1.0)]  # without a maximum, the median

    pairs = [(i, j) for i in maxima(x) for j in maxima(y)]
    equal = [(i, j) for i, a in enumerate(x.multiples) for j, b in enumerate(y.multiples) if a is not None and a == b]
    return pairs + [pair for pair in equal if pair not in pairs]


def rotated_hsic(
    kernels_x: Sequence[Kernel], kernels_y: Sequence[Kernel], x: Tensor, y: Tensor, orders: list[Tensor],
    unbiased: bool = False, progress: bool | None = False,
) -> tuple[Tensor, NullScale]:  # fmt: skip
    r"""HSIC ``(J, J', Rn)`` of every pair of kernels and all rotations of R orders, the observed pairing first.

    The scale has shape ``(J, J')``. With λ, μ the eigenvalues of HKH/n, HLH/n, n·HSIC_b of independent x and y tends to
    :math:`\sum_{lq} \lambda_l \mu_q \chi^2_1`.
    """
    n = len(x)
    K, L = Diagonals(kernels_x, x), Diagonals(kernels_y, y)
    with bar_of_test(n // 2 + 1, n, progress) as bar:
        spectrum, sums_x, sums_y, square_x, square_y = _spectra(K, L, orders, bar)
    zero = torch.zeros(1, dtype=torch.long, device=x.device)
    diagonal_x = K.block(zero, orders[0])[:, 0]
    diagonal_y = torch.stack([L.block(zero, order)[:, 0] for order in orders])
    trace_x, trace_y = diagonal_x.sum(-1), diagonal_y[0].sum(-1)
    size = (trace_x / n).abs()[:, None] * (trace_y / n).abs()
    mean = (trace_x - sums_x.sum(-1) / n)[:, None] * (trace_y - sums_y[0].sum(-1) / n) / n**3
    centred_x, centred_y = centred_square(square_x, sums_x), centred_square(square_y, sums_y[0])
    # n⁶ in two factors: as one integer it exceeds 64 bits from n = 1449 on
    variance = 2.0 * (centred_x / n**3)[:, None] * (centred_y / n**3)
    product = torch.fft.irfft(spectrum, n=n).flatten(-2)
    if unbiased:
        product = product - _circular(diagonal_x, diagonal_y)
        sums_x, sums_y = sums_x - diagonal_x, sums_y - diagonal_y
    sums = _circular(sums_x, sums_y)
    totals = (sums_x.sum(-1)[:, None] * sums_y[0].sum(-1)).unsqueeze(-1)
    if unbiased:
        T = (product - 2.0 / (n - 2) * sums + totals / ((n - 1) * (n - 2))) / (n * (n - 3))
    else:
        T = (product - 2.0 / n * sums + totals / n**2) / n**2
    return T, NullScale(mean, variance, size, shift=float(unbiased))


class Diagonals:
    """κ_d(i) = k(x_i, x_{i+d}) for blocks of offsets d: from the Gram matrices where they fit, else pair by pair."""

    def __init__(self, kernels: Sequence[Kernel], x: Tensor) -> None:
        self.kernels, self.x = kernels, x
        self.grams = [finite_gram(kernel, x) for kernel in kernels] if len(x) ** 2 * 8 <= 4 * MEMORY else []

    def block(self, offsets: Tensor, order: Tensor) -> Tensor:
        """The diagonals of all J kernels for the points in this order, ``(J, len(offsets), n)``."""
        n = len(self.x)
        partner = order[(torch.arange(n, device=self.x.device) + offsets.unsqueeze(-1)) % n]
        if self.grams:
            return torch.stack([K.flatten()[order * n + partner] for K in self.grams])
        x = self.x[order]
        return torch.stack([torch.stack([paired_values(k, x, self.x[b]) for b in partner]) for k in self.kernels])


def _spectra(
    K: Diagonals, L: Diagonals, orders: list[Tensor], bar: ProgressBar
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Σ_d w_d conj(κ̂_d) λ̂_d ``(J, J', R, n/2 + 1)``, the row sums ``(J, n)``, ``(R, J', n)`` and ‖·‖² of K and L."""
    x, n, half = K.x, len(orders[0]), len(orders[0]) // 2
    J, Jy = len(K.kernels), len(L.kernels)
    spectrum = torch.zeros(J, Jy, len(orders), half + 1, dtype=torch.complex128, device=x.device)
    sums_x, sums_y = x.new_zeros(J, n), x.new_zeros(len(orders), Jy, n)
    square_x, square_y = x.new_zeros(J), x.new_zeros(Jy)
    width = max(1, MEMORY // (16 * n * (J + Jy)))
    for start in range(0, half + 1, width):
        offsets = torch.arange(start, min(start + width, half + 1), device=x.device)
        # offsets d and n − d are the same pairs of rows, counted once
        w = torch.where((offsets == 0) | (2 * offsets == n), 1.0, 2.0).to(x)
        kappa = K.block(offsets, orders[0])
        sums_x += _row_sums(kappa, offsets, w)
        square_x += (kappa.square().sum(-1) * w).sum(-1)
        spectrum_x = torch.fft.rfft(kappa).conj() * w.unsqueeze(-1)
        for r, order in enumerate(orders):
            lam = L.block(offsets, order)
            sums_y[r] += _row_sums(lam, offsets, w)
            if r == 0:
                square_y += (lam.square().sum(-1) * w).sum(-1)
            spectrum_y = torch.fft.rfft(lam)
            for j in range(J):
                spectrum[j, :, r] += (spectrum_x[j] * spectrum_y).sum(-2)
        bar.update(len(offsets))
    return spectrum, sums_x, sums_y, square_x, square_y


def _row_sums(kappa: Tensor, offsets: Tensor, w: Tensor) -> Tensor:
    """The part of K1 from these diagonals: K_{i,i+d} in row i, and where w = 2 also in row i + d."""
    n = kappa.shape[-1]
    sums = kappa.sum(-2)
    twice = (w > 1.5).nonzero().squeeze(-1)
    if len(twice):
        back = (torch.arange(n, device=kappa.device) - offsets[twice].unsqueeze(-1)) % n
        sums = sums + kappa[:, twice].gather(-1, back.expand(kappa.shape[0], -1, -1)).sum(-2)
    return sums


def _circular(a: Tensor, b: Tensor) -> Tensor:
    """Σ_i a(i) b(i + s) for all s: from ``(J, n)`` and ``(R, J', n)`` to ``(J, J', Rn)``."""
    product = torch.fft.rfft(a).conj()[:, None, None] * torch.fft.rfft(b).transpose(0, 1)
    sums: Tensor = torch.fft.irfft(product, n=a.shape[-1]).flatten(-2)
    return sums


@cpu_by_default()
def independence_test(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    kernel_y: KernelChoice = None,
    statistic: Literal["biased", "unbiased"] = "biased",
    null: Null = "permutation",
    categorical: Categorical = None,
    categorical_y: Categorical = None,
    progress: bool | None = None,
) -> KernelTestResult:
    """Test whether ``x`` and ``y`` are independent, by the Hilbert–Schmidt independence criterion.

    Kernels are learned on x alone and on y alone, without the pairing, so that the test is exact.

    Args:
        x: n observations, ``(n, d)``, as a tensor, a NumPy array, a data frame or lists; text is categorical.
        y: the second variable of each observation, ``(n, d')``.
        kernel: of x; as in :func:`two_sample_test`.
        num_permutations: B, the number of permutations: rotations of random orders of the y.
        seed: of the permutations, and of the rows from which kernels are learned in a large sample.
        kernel_y: of y; by default the same rule as ``kernel``, if that is the name of a rule.
        statistic: ``"biased"`` or ``"unbiased"``.
        null: ``"permutation"``, or ``"gamma"`` for an approximation without permutations (biased, one kernel each).
        categorical: the categorical columns of x; by default all where x is integer or bool.
        categorical_y: those of y.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 observations and more.

    Raises:
        TypeError: if a sample is not made of real numbers.
        ValueError: if the samples have different numbers of rows, too few of them, or values that are not finite; if
            an option is unknown; or if ``null="gamma"`` is used with several kernels or the unbiased statistic.

    Example:
        >>> x, noise = torch.randn(2, 100, 1, generator=torch.Generator().manual_seed(0))
        >>> independence_test(x, x.square() + 0.5 * noise, seed=0).pvalue < 0.01
        True
    """
    check_choice(statistic, ("biased", "unbiased"), "statistic")
    check_choice(null, ("permutation", "gamma"), "null")
    check_count("num_permutations", num_permutations)
    unbiased = statistic == "unbiased"
    (x,), columns_x = read_samples({"x": x}, categorical, minimum=4 if unbiased else 2)
    (y,), columns_y = read_samples({"y": y}, categorical_y, minimum=4 if unbiased else 2)
    check_pairs(x=x, y=y)
    y = y.to(x.device)
    generator = generator_of(seed)
    if kernel_y is None and isinstance(kernel, str):
        kernel_y = kernel
    kernels_x = choose_kernels(x, kernel, columns_x, generator)
    kernels_y = choose_kernels(y, kernel_y, columns_y, generator, "y")
    how = kernels_x.how if kernels_x.how == kernels_y.how else f"{kernels_x.how}; {kernels_y.how}"
    if kernel == "split" or kernel_y == "split":
        kernels_x, kernels_y, rows = _split(x, y, kernels_x, kernels_y, unbiased, generator)
        x, y, how = x[rows], y[rows], "chosen on one half"
    pairs = tuple((kernels_x.kernels[i], kernels_y.kernels[j]) for i, j in pairs_of(kernels_x, kernels_y))
    num_rotations = num_permutations if null == "permutation" else 0
    T, scale = statistics(kernels_x, kernels_y, x, y, num_rotations, generator, unbiased, progress)
    decision = decide(T, scale, null, num_permutations, generator)
    return decision.result(KernelTestResult, "independence test", pairs, how, sizes=(len(x),))


def _split(
    x: Tensor, y: Tensor, kernels_x: Kernels, kernels_y: Kernels, unbiased: bool, generator: torch.Generator
) -> tuple[Kernels, Kernels, Tensor]:
    """The pair with the largest statistic on one half of the observations, and the rows of the other half."""
    if len(x) < 8:
        raise ValueError(f"kernel='split' needs at least 8 observations, but there are {len(x)}.")
    first, second = halves(len(x), generator, x.device)
    T, scale = statistics(kernels_x, kernels_y, x[first], y[first], 200, generator, unbiased)
    best = by_permutations(T, scale).best
    i, j = pairs_of(kernels_x, kernels_y)[best]
    return Kernels((kernels_x.kernels[i],), ""), Kernels((kernels_y.kernels[j],), ""), second
