r"""The Hilbert–Schmidt independence criterion, of pairs of kernels and for all permutations.

With K, L the Gram matrices of x and y and H = I − 11ᵀ/n,

.. math::
    \mathrm{HSIC}_b &= \frac1{n^2} \operatorname{tr} KHLH = \frac1{n^2} \Big[ \sum_{ij} K_{ij} L_{ij}
        - \frac2n \sum_i (K1)_i (L1)_i + \frac{1^\top K 1 \; 1^\top L 1}{n^2} \Big] \\
    \mathrm{HSIC}_u &= \frac1{n(n-3)} \Big[ \operatorname{tr} \tilde K \tilde L
        - \frac{2}{n-2} 1^\top \tilde K \tilde L 1 + \frac{1^\top \tilde K 1 \; 1^\top \tilde L 1}{(n-1)(n-2)} \Big] ,

where ˜ means a diagonal set to zero (Song et al., 2012).
"""

from __future__ import annotations

import torch
from torch import Tensor

from .kernel_choice import Kernels
from .pvalues import NullScale
from .rotations import Correlations, correlations


def statistics(
    kernels_x: Kernels,
    kernels_y: Kernels,
    x: Tensor,
    y: Tensor,
    num_permutations: int,
    generator: torch.Generator,
    unbiased: bool = False,
    progress: bool | None = False,
) -> tuple[Tensor, NullScale]:
    """T ``(J, 1 + B)`` for the pairs of kernels that take part, and their scale."""
    n = x.shape[0]
    c = correlations(kernels_x.kernels, kernels_y.kernels, x, y, num_permutations, generator, progress)
    T = (unbiased_hsic if unbiased else hsic)(c, n)
    # The other permutations are exchangeable with the observed one, and so are any B of them.
    others = 1 + torch.randperm(T.shape[-1] - 1, generator=generator)[:num_permutations].to(T.device)
    T = torch.cat([T[..., :1], T[..., others]], dim=-1)
    size = (c.trace_x / n).abs()[:, None] * (c.trace_y / n).abs()
    rows, columns = zip(*pairs_of(kernels_x, kernels_y), strict=True)
    mean, variance = null_moments(c, n)
    T, mean, variance, size = (value[list(rows), list(columns)] for value in (T, mean, variance, size))
    return T, NullScale(mean, variance, size, shift=float(unbiased))


def pairs_of(x: Kernels, y: Kernels) -> list[tuple[int, int]]:
    """Which kernel of x goes with which of y: every maximum (or given one) with every other, medians with their like.

    All pairs would be many, and most of them between scales that nobody has asked for.

    Example:
        >>> x, y = Kernels((), "", (None, 1.0, 4.0)), Kernels((), "", (None, None, 1.0, 4.0))
        >>> pairs_of(x, y)
        [(0, 0), (0, 1), (1, 2), (2, 3)]
    """

    def free(kernels: Kernels) -> list[int]:
        maxima = [i for i, multiple in enumerate(kernels.multiples) if multiple is None]
        return maxima or [kernels.multiples.index(1.0)]  # without a maximum the median stands for it

    found = [(i, j) for i in free(x) for j in free(y)]
    like = [(i, j) for i, a in enumerate(x.multiples) for j, b in enumerate(y.multiples) if a is not None and a == b]
    return found + [pair for pair in like if pair not in found]


def null_moments(c: Correlations, n: int) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of HSIC_b if x and y are independent, for every pair of kernels.

    With λ, μ the eigenvalues of HKH/n, HLH/n, n·HSIC_b tends to :math:`\sum_{lq} \lambda_l \mu_q \chi^2_1`.
    """
    mean = (c.trace_x - c.total_x / n)[:, None] * (c.trace_y - c.total_y / n) / n**3
    # n⁶ by halves: as one whole number it is beyond 64 bits from n = 1449 on
    return mean, 2.0 * (c.square_x / n**3)[:, None] * (c.square_y / n**3)


def hsic(c: Correlations, n: int) -> Tensor:
    """HSIC_b for every pair of kernels and every permutation."""
    product = c.total_x[:, None] * c.total_y
    return (c.product - 2.0 / n * c.sums + product.unsqueeze(-1) / n**2) / n**2


def unbiased_hsic(c: Correlations, n: int) -> Tensor:
    """HSIC_u for every pair of kernels and every permutation."""
    if n < 4:
        raise ValueError(
            f"Expected at least 4 observations for the unbiased statistic, got {n}. "
            "Give more observations, or unbiased=False."
        )
    product = c.product - c.diagonal_product
    sums = c.sums - c.diagonal_sums_x - c.diagonal_sums_y + c.diagonal_product
    totals = (c.total_x - c.trace_x)[:, None] * (c.total_y - c.trace_y)
    return (product - 2.0 / (n - 2) * sums + totals.unsqueeze(-1) / ((n - 1) * (n - 2))) / (n * (n - 3))
