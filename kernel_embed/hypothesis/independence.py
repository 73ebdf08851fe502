r"""The test of independence by the Hilbert–Schmidt criterion, x and y each with kernels of their own.

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
from gpytorch.kernels import Kernel
from torch import Tensor

from .aggregation import NullScale, aggregate
from .checks import (
    Categorical,
    categorical_columns,
    check_choice,
    check_pairs,
    check_permutations,
    check_sample,
    generator_of,
)
from .kernel_choice import KernelChoice, Kernels, choose_kernels, pairs_of
from .result import KernelTestResult, gamma_draws, gamma_pvalue
from .rotations import Correlations, correlations


def independence_test(
    x: Tensor,
    y: Tensor,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    kernel_y: KernelChoice = None,
    statistic: str = "biased",
    null: str = "permutation",
    categorical: Categorical = None,
    categorical_y: Categorical = None,
) -> KernelTestResult:
    """Whether ``x`` and ``y`` are independent, by the Hilbert–Schmidt independence criterion.

    Kernels are learned on x alone and on y alone, which says nothing of who goes with whom: the test stays exact, and
    rescaling x or y changes nothing.

    Args:
        x: n observations, ``(n, d)``.
        y: what goes with each, ``(n, d')``.
        kernel: of x; as in :func:`two_sample_test`.
        num_permutations: B, the number of permutations: rotations of random orders of the y.
        seed: of the permutations, and of the rows a large sample is learned from.
        kernel_y: of y; where ``kernel`` is a rule by name, the same rule by default.
        statistic: ``"biased"`` or ``"unbiased"``.
        null: ``"permutation"``, or ``"gamma"`` for an approximation without permutations (biased, one kernel each).
        categorical: the columns of x that hold categories; by default all of an integer or bool tensor.
        categorical_y: those of y.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(100, 1, generator=generator)
        >>> y = x.square() + 0.5 * torch.randn(100, 1, generator=generator)
        >>> independence_test(x, y, seed=0).pvalue < 0.01
        True
        >>> independence_test(x, 100 * y, seed=0).pvalue == independence_test(x, y, seed=0).pvalue
        True
    """
    check_choice(statistic, ("biased", "unbiased"), "statistic")
    check_choice(null, ("permutation", "gamma"), "null")
    check_permutations(num_permutations)
    columns = categorical_columns([x], categorical), categorical_columns([y], categorical_y)
    minimum = 2 if statistic == "biased" else 4
    x, y = check_sample(x, "x", minimum), check_sample(y, "y", minimum)
    check_pairs(x, y)
    y = y.to(x.device)
    generator = generator_of(seed)
    if kernel_y is None and isinstance(kernel, str):
        kernel_y = kernel
    split = kernel == "split" or kernel_y == "split"
    chosen_x = choose_kernels(x, kernel, columns[0], generator)
    chosen_y = choose_kernels(y, kernel_y, columns[1], generator, "y")
    how = chosen_x.how if chosen_x.how == chosen_y.how else f"{chosen_x.how}; {chosen_y.how}"
    unbiased = statistic == "unbiased"
    if split:
        (chosen_x, chosen_y), rows = _split(x, y, chosen_x, chosen_y, unbiased, generator)
        x, y, how = x[rows], y[rows], "chosen on one half"
    chosen = pairs_of(chosen_x, chosen_y)
    pairs = tuple((chosen_x.kernels[i], chosen_y.kernels[j]) for i, j in chosen)
    if null == "gamma":
        return _gamma(x, y, pairs, unbiased, generator, how, num_permutations)
    T, scale = statistics(chosen_x, chosen_y, x, y, num_permutations, generator, unbiased)
    answer = aggregate(T, scale)
    return KernelTestResult(
        test="independence test",
        statistic=float(answer.statistics[0]),
        pvalue=answer.pvalue,
        kernel=pairs[answer.best],
        null=answer.statistics[1:],
        kernels=pairs,
        statistics=T[:, 0],
        pvalues=answer.pvalues,
        kernel_choice=how,
        null_kind=f"{T.shape[1] - 1} permutations",
        sizes=(x.shape[0],),
    )


def statistics(
    kernels_x: Kernels,
    kernels_y: Kernels,
    x: Tensor,
    y: Tensor,
    num_permutations: int,
    generator: torch.Generator,
    unbiased: bool = False,
) -> tuple[Tensor, NullScale]:
    """T ``(J, 1 + B)`` for the pairs of kernels that take part, averaged over batches of draws, and their scale."""
    n = x.shape[0]
    c = correlations(kernels_x.kernels, kernels_y.kernels, x, y, num_permutations, generator)
    T = (unbiased_hsic if unbiased else hsic)(c, n)
    # The other permutations are exchangeable with the observed one, and so are any B of them.
    others = 1 + torch.randperm(T.shape[-1] - 1, generator=generator)[:num_permutations].to(T.device)
    T = torch.cat([T[..., :1], T[..., others]], dim=-1)
    size = (c.trace_x / n).abs()[:, None] * (c.trace_y / n).abs()
    rows, columns = zip(*pairs_of(kernels_x, kernels_y), strict=True)
    T, *scale = (
        _average(value, kernels_x.kernels, kernels_y.kernels)[list(rows), list(columns)]
        for value in (T, *null_moments(c, n), size)
    )
    return T, NullScale(scale[0], scale[1], scale[2], shift=float(unbiased))


def null_moments(c: Correlations, n: int) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of HSIC_b if x and y are independent, for every pair of kernels.

    With λ, μ the eigenvalues of HKH/n, HLH/n, n·HSIC_b tends to :math:`\sum_{lq} \lambda_l \mu_q \chi^2_1`.
    """
    mean = (c.trace_x - c.total_x / n)[:, None] * (c.trace_y - c.total_y / n) / n**3
    return mean, 2.0 * c.square_x[:, None] * c.square_y / n**6


def hsic(c: Correlations, n: int) -> Tensor:
    """HSIC_b for every pair of kernels and every permutation."""
    product = c.total_x[:, None] * c.total_y
    return (c.product - 2.0 / n * c.sums + product.unsqueeze(-1) / n**2) / n**2


def unbiased_hsic(c: Correlations, n: int) -> Tensor:
    """HSIC_u for every pair of kernels and every permutation."""
    if n < 4:
        raise ValueError(f"Expected at least 4 observations for the unbiased statistic, got {n}.")
    product = c.product - c.diagonal_product
    sums = c.sums - c.diagonal_sums_x - c.diagonal_sums_y + c.diagonal_product
    totals = (c.total_x - c.trace_x)[:, None] * (c.total_y - c.trace_y)
    return (product - 2.0 / (n - 2) * sums + totals.unsqueeze(-1) / ((n - 1) * (n - 2))) / (n * (n - 3))


def _average(T: Tensor, kernels_x: tuple[Kernel, ...], kernels_y: tuple[Kernel, ...]) -> Tensor:
    """Means over the batch of each kernel; with draws of x and of y all pairs count."""
    for dim, kernels in enumerate((kernels_x, kernels_y)):
        counts = [max(1, torch.Size(kernel.batch_shape).numel()) for kernel in kernels]
        T = torch.stack([part.mean(dim) for part in T.split(counts, dim)], dim)
    return T


def _split(
    x: Tensor, y: Tensor, kernels_x: Kernels, kernels_y: Kernels, unbiased: bool, generator: torch.Generator
) -> tuple[tuple[Kernels, Kernels], Tensor]:
    if x.shape[0] < 8:
        raise ValueError(f"Expected at least 8 observations to split, got {x.shape[0]}.")
    order = torch.randperm(x.shape[0], generator=generator).to(x.device)
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    T, scale = statistics(kernels_x, kernels_y, x[first], y[first], 200, generator, unbiased)
    i, j = pairs_of(kernels_x, kernels_y)[aggregate(T, scale).best]
    return (Kernels((kernels_x.kernels[i],), ""), Kernels((kernels_y.kernels[j],), "")), second


def _gamma(
    x: Tensor,
    y: Tensor,
    pairs: tuple[tuple[Kernel, Kernel], ...],
    unbiased: bool,
    generator: torch.Generator,
    how: str,
    num_draws: int,
) -> KernelTestResult:
    """A gamma distribution with the mean and the variance of the limit."""
    if len(pairs) > 1 or unbiased:
        raise ValueError(
            "Expected one kernel of each and the biased statistic for null='gamma', got "
            f"{f'{len(pairs)} pairs of kernels' if len(pairs) > 1 else 'the unbiased one'}. "
            "Give kernels, or kernel='best'; several kernels need permutations."
        )
    n = x.shape[0]
    c = correlations((pairs[0][0],), (pairs[0][1],), x, y, 0, generator)
    statistic = hsic(c, n)[..., 0].mean()
    mean, variance = (moment.mean() for moment in null_moments(c, n))
    p = gamma_pvalue(float(statistic), mean, variance)
    draws = gamma_draws(mean, variance, num_draws, generator) if p < 1.0 else torch.zeros(num_draws).double()
    return KernelTestResult(
        test="independence test",
        statistic=float(statistic),
        pvalue=p,
        kernel=pairs[0],
        null=draws,
        kernels=pairs,
        statistics=statistic.reshape(1),
        pvalues=torch.tensor([p], dtype=torch.float64),
        kernel_choice=how,
        null_kind="gamma approximation",
        sizes=(n,),
    )
