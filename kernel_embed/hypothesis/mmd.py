r"""The maximum mean discrepancy of two samples and its generalization to several, observed and relabeled.

With :math:`\hat\mu_P, \hat\mu_Q` the empirical embeddings of x (n points) and y (m points),

.. math::
    \mathrm{MMD}_b^2 &= \lVert \hat\mu_P - \hat\mu_Q \rVert^2
        = \tfrac1{n^2} \sum_{ij} k(x_i, x_j) + \tfrac1{m^2} \sum_{ij} k(y_i, y_j) - \tfrac2{nm} \sum_{ij} k(x_i, y_j) \\
    \mathrm{MMD}_u^2 &= \tfrac1{n(n-1)} \sum_{i \ne j} k(x_i, x_j) + \tfrac1{m(m-1)} \sum_{i \ne j} k(y_i, y_j)
        - \tfrac2{nm} \sum_{ij} k(x_i, y_j) .

For k samples of n_g points with pooled embedding :math:`\hat\mu`, and equal to :math:`\frac{nm}{n+m} \mathrm{MMD}_b^2`
for two,

.. math::  T = \sum_g n_g \lVert \hat\mu_g - \hat\mu \rVert^2
           = \sum_g \tfrac1{n_g} e_g^\top K e_g - \tfrac1N 1^\top K 1 .

With :math:`e \in \{0, 1\}^N` the indicator of a sample among the pooled points, all statistics follow from
:math:`e^\top K e`, :math:`e^\top K \mathbf 1` and :math:`\mathbf 1^\top K \mathbf 1`. The indicators of all relabelings
are the columns of E (N × C), so that :math:`e^\top K e` for all of them is the column sums of :math:`E \circ (K E)`.
K is symmetric: only the blocks on and above its diagonal are formed, one at a time.

Where k is an inner product of p features, K = ZZᵀ, the same forms take O(NpC) instead of O(N²C), from blocks of Z:

.. math::  e^\top K e = \lVert Z^\top e \rVert^2, \qquad e^\top K \mathbf 1 = (Z^\top e)^\top Z^\top \mathbf 1, \qquad
           \lVert HKH \rVert^2 = \lVert Z^\top H Z \rVert^2 .
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import explicit_features, gram_diagonal
from ..kernels.gram import finite_values
from ..kernels.structure import has_explicit_features
from ..runtime import ProgressBar
from .checks import bar_of_test, finite_gram
from .result import NullScale

MEMORY = 2**27  # bytes of a block of the Gram matrix
RANDOM_NUMBERS = 2**22  # drawn at once
FEATURE_ROWS = 4096  # of a block of features
BLOCK = 256  # the least rows of a block: symmetry saves half of the product, and a block still fills the processor
LABELS = 2**25  # the number of labels above which they are stored as bools


class QuadraticForms(NamedTuple):
    """Quadratic forms of K with the indicators E ``(N, k, C)``."""

    within: Tensor  # eᵀKe, (k, C)
    to_all: Tensor  # eᵀK1, (k, C)
    diagonal: Tensor  # Σ e_i K_ii, (k, C)
    total: Tensor  # 1ᵀK1
    trace: Tensor  # Σ K_ii
    centred_square: Tensor  # ‖HKH‖², with H = I − 11ᵀ/N


class Statistic(NamedTuple):
    r"""A statistic of k samples, and its null distribution.

    With λ the eigenvalues of HKH/N, it tends to :math:`c \sum_l \lambda_l \chi^2_{k-1}` if all samples are of one
    distribution; the mean of the limit is subtracted if it is ``unbiased``.
    """

    formula: Callable[[QuadraticForms, Sequence[int]], Tensor]  # T of all labelings (C,), from the sample sizes
    factor: Callable[[Sequence[int]], float]  # c, from the sample sizes
    unbiased: bool = False


def squared_mmd(forms: QuadraticForms, sizes: Sequence[int], unbiased: bool = False) -> Tensor:
    """MMD_b² or MMD_u² for every labeling, ``(C,)``."""
    n, m = sizes
    omitted = int(unbiased)  # MMD_u² omits i = j
    first, second = (forms.within - omitted * forms.diagonal).unbind()
    cross = forms.to_all[0] - forms.within[0]  # e₁ᵀK(1 − e₁)
    return first / (n * (n - omitted)) + second / (m * (m - omitted)) - 2.0 * cross / (n * m)


def between_samples(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """T = Σ_g n_g ‖μ̂_g − μ̂‖² for every labeling, ``(C,)``."""
    counts = forms.within.new_tensor(sizes).unsqueeze(-1)
    return (forms.within / counts).sum(0) - forms.total / sum(sizes)


def _mmd_factor(sizes: Sequence[int]) -> float:
    return 1.0 / sizes[0] + 1.0 / sizes[1]


STATISTICS = {
    "biased": Statistic(squared_mmd, _mmd_factor),
    "unbiased": Statistic(functools.partial(squared_mmd, unbiased=True), _mmd_factor, unbiased=True),
}
"""The statistics of two samples, by name."""
BETWEEN_SAMPLES = Statistic(between_samples, lambda sizes: 1.0)


def statistics(
    kernels: Sequence[Kernel], pooled: Tensor, E: Tensor, sizes: Sequence[int], statistic: Statistic,
    progress: bool | None = False,
) -> tuple[Tensor, NullScale]:  # fmt: skip
    """T ``(J, 1 + B)`` for J kernels, and the scale of each: the moments of c Σ λ_l χ²_{k−1}."""
    rows, scales = [], []
    N, freedom, c = len(pooled), len(sizes) - 1, statistic.factor(sizes)
    with bar_of_test(len(kernels) * N, N, progress) as bar:
        for kernel in kernels:
            forms = quadratic_forms(kernel, pooled, E, bar)
            rows.append(statistic.formula(forms, sizes))
            mean = c * freedom * (forms.trace - forms.total / N) / N
            variance = 2.0 * c**2 * freedom * forms.centred_square / N**2
            scales.append(torch.stack([mean, variance, (forms.trace / N).abs()]))
    mean, variance, size = torch.stack(scales, dim=1)
    return torch.stack(rows), NullScale(mean, variance, size, shift=float(statistic.unbiased))


def indicators(sizes: Sequence[int], num_permutations: int, generator: torch.Generator, like: Tensor) -> Tensor:
    """E of shape ``(N, k, 1 + B)``: which point belongs to which of k samples, first as observed, then relabeled.

    For two samples only the first is marked, ``(N, 1, 1 + B)``. E has the dtype of ``like``, or bool if it is large.
    """
    N, stops = sum(sizes), np.cumsum(sizes).tolist()
    marked = stops[:1] if len(sizes) == 2 else stops
    dtype = like.dtype if N * num_permutations <= LABELS else torch.bool
    E = torch.zeros(N, len(marked), 1 + num_permutations, dtype=dtype, device=like.device)
    for g, stop in enumerate(marked):
        E[stop - sizes[g] : stop, g, 0] = 1
    count = max(1, RANDOM_NUMBERS // N)
    for first in range(1, 1 + num_permutations, count):
        # One number for each point; a sample is the points whose numbers lie between two order statistics.
        u = torch.rand(
            min(count, 1 + num_permutations - first), N, generator=generator, dtype=torch.float64, device="cpu"
        )
        below = torch.zeros_like(u, dtype=torch.bool)
        for g, stop in enumerate(marked):
            # NumPy selects several times faster than torch
            last = torch.from_numpy(np.partition(u.numpy(), stop - 1, axis=-1)[:, stop - 1 : stop])
            upto = u <= last if stop < N else torch.ones_like(below)
            E[:, g, first : first + len(u)] = (upto & ~below).T
            below = upto
    return E


def quadratic_forms(kernel: Kernel, x: Tensor, E: Tensor, bar: ProgressBar) -> QuadraticForms:
    """The forms of the points ``x`` and the indicators E (see :func:`indicators`)."""
    one = explicit_features(kernel, x[:1]) if has_explicit_features(kernel) else None
    by_features = one is not None and 2 * one.shape[-1] <= len(x)
    forms = (_feature_forms if by_features else _gram_forms)(kernel, x, E.flatten(1), bar)
    within, to_all, diagonal, total, trace, _ = forms
    if E.shape[1] > 1:
        return forms._replace(**{name: getattr(forms, name).reshape(E.shape[1:]) for name in forms._fields[:3]})
    # The second sample has ē = 1 − e: ēᵀKē = 1ᵀK1 − 2eᵀK1 + eᵀKe.
    return forms._replace(
        within=torch.stack([within, total - 2.0 * to_all + within]),
        to_all=torch.stack([to_all, total - to_all]),
        diagonal=torch.stack([diagonal, trace - diagonal]),
    )


def _gram_forms(kernel: Kernel, x: Tensor, E: Tensor, bar: ProgressBar) -> QuadraticForms:
    """From blocks of the Gram matrix."""
    E, N = E.to(x), len(x)
    diagonal = finite_values(gram_diagonal(kernel, x).detach().double(), kernel)
    within, sums, square = x.new_zeros(E.shape[1]), x.new_zeros(N), x.new_zeros(())
    rows = min(N, max(1, MEMORY // (x.element_size() * N)), max(BLOCK, N // 16))
    for start in range(0, N, rows):
        stop = min(start + rows, N)
        K = finite_gram(kernel, x[start:stop], x[start:])
        own, rest = K[:, : stop - start], K[:, stop - start :]
        # Σ over the blocks (I, I), and twice those (I, J) with J > I
        product = own @ E[start:stop] + 2.0 * (rest @ E[stop:])
        within += (E[start:stop] * product).sum(-2)
        sums[start:stop] += K.sum(-1)
        sums[stop:] += rest.sum(-2)
        square += own.square().sum() + 2.0 * rest.square().sum()
        bar.update(stop - start)
    centred = centred_square(square, sums)
    return QuadraticForms(within, sums @ E, diagonal @ E, sums.sum(), diagonal.sum(), centred)


def centred_square(square: Tensor, sums: Tensor) -> Tensor:
    """‖HKH‖² = ‖K‖² − (2/n) Σ_i (K1)_i² + (1ᵀK1)²/n², from ‖K‖² and K1."""
    n = sums.shape[-1]
    return (square - 2.0 / n * sums.square().sum(-1) + sums.sum(-1).square() / n**2).clamp_min(0.0)


def _feature_forms(kernel: Kernel, x: Tensor, E: Tensor, bar: ProgressBar) -> QuadraticForms:
    """From blocks of rows of the features of ``kernel``."""
    sums, total, second, diagonal, trace = (x.new_zeros(()) for _ in range(5))
    for block, e in zip(x.split(FEATURE_ROWS), E.split(FEATURE_ROWS), strict=True):
        Z, e = explicit_features(kernel, block), e.to(x)
        assert Z is not None
        Z = finite_values(Z.detach().double(), kernel)
        length = Z.square().sum(-1)
        sums = sums + Z.mT @ e
        total = total + Z.sum(-2)
        second = second + Z.mT @ Z
        diagonal = diagonal + length @ e
        trace = trace + length.sum()
        bar.update(len(e))
    centred = (second - total.unsqueeze(-1) * total / len(x)).square().sum()
    return QuadraticForms(sums.square().sum(0), total @ sums, diagonal, total.square().sum(), trace, centred)
