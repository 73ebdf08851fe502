r"""Tests that samples come from one distribution: two of them, or several.

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
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .aggregation import NullScale, aggregate
from .checks import (
    Categorical,
    categorical_columns,
    check_choice,
    check_permutations,
    check_sample,
    generator_of,
)
from .kernel_choice import KernelChoice, Kernels, choose_kernels
from .linear_time import LinearTimeTwoSampleTest
from .relabellings import QuadraticForms, indicators, quadratic_forms
from .result import KernelTestResult, SamplesTestResult, gamma_draws, gamma_pvalue

Statistic = Callable[[QuadraticForms, Sequence[int]], Tensor]


def two_sample_test(
    x: Tensor,
    y: Tensor,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    statistic: str = "biased",
    null: str = "permutation",
    categorical: Categorical = None,
) -> KernelTestResult:
    """Whether ``x`` and ``y`` are samples of one distribution, by the maximum mean discrepancy.

    The kernel is learned by evidence on the pooled sample unless one is given. The evidence does not know who belongs
    to which sample, so the permutation test is exact: at level α it rejects equal distributions with probability at
    most α, whatever n, the dimension and the kernel.

    Args:
        x: n points, ``(n, d)``.
        y: m points, ``(m, d)``.
        kernel: ``None`` for all maxima of the evidence beside the median heuristic; a GPyTorch kernel; several, of
            which the most telling counts; a kernel with a batch dimension or a posterior, averaged over its draws; or
            ``"evidence"`` (all maxima alone), ``"best"`` (the highest alone), ``"median"`` (the median heuristic),
            ``"split"`` (chosen for power on one half, tested on the other).
        num_permutations: B, the number of relabellings.
        seed: of the relabellings, and of the rows a large sample is learned from.
        statistic: ``"biased"``, ``"unbiased"``, or ``"linear"`` (linear time, normal approximation; see
            :class:`LinearTimeTwoSampleTest` for streams).
        null: ``"permutation"``, or ``"gamma"``, an approximation without permutations (biased statistic, one kernel).
        categorical: the columns that hold categories: ``True``, ``False``, or their numbers. By default all columns of
            integer or bool tensors, none of others.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(100, 2, generator=generator)
        >>> y = 1.5 * torch.randn(120, 2, generator=generator)
        >>> result = two_sample_test(x, y, seed=0)
        >>> result.pvalue < 0.01
        True
        >>> print(two_sample_test(x, x[torch.arange(99, -1, -1)], seed=0).pvalue)
        1.0
    """
    check_choice(statistic, ("biased", "unbiased", "linear"), "statistic")
    if statistic == "linear":
        return _linear(x, y, kernel, seed, categorical)
    formula = squared_mmd if statistic == "biased" else unbiased_squared_mmd
    return _test([x, y], ["x", "y"], kernel, num_permutations, seed, formula, null, categorical, "two-sample test")


def k_sample_test(
    *samples: Tensor,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    null: str = "permutation",
    categorical: Categorical = None,
) -> KernelTestResult:
    """Whether several samples come from one distribution; arguments as of :func:`two_sample_test`.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x, y, z = (torch.randn(50, 1, generator=generator) for _ in range(3))
        >>> k_sample_test(x, y, z + 2.0, seed=0).pvalue < 0.01
        True
    """
    if len(samples) < 2:
        raise ValueError(
            f"Expected at least 2 samples, got {len(samples)}. Give each sample as an argument of its own."
        )
    names = [f"sample {g + 1}" for g in range(len(samples))]
    test = f"{len(samples)}-sample test"
    return _test(list(samples), names, kernel, num_permutations, seed, between_samples, null, categorical, test)


# --- the statistics ---------------------------------------------------------------------------------------------------


def squared_mmd(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """MMD_b² for every labelling: ``(*batch, C)``."""
    n, m = sizes
    first, second = forms.within.unbind(-2)
    cross = forms.to_all[..., 0, :] - first  # e₁ᵀK(1 − e₁)
    return first / n**2 + second / m**2 - 2.0 * cross / (n * m)


def unbiased_squared_mmd(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """MMD_u² for every labelling: ``(*batch, C)``."""
    n, m = sizes
    first, second = (forms.within - forms.diagonal).unbind(-2)
    cross = forms.to_all[..., 0, :] - forms.within[..., 0, :]
    return first / (n * (n - 1)) + second / (m * (m - 1)) - 2.0 * cross / (n * m)


def between_samples(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """T = Σ_g n_g ‖μ̂_g − μ̂‖² for every labelling: ``(*batch, C)``."""
    counts = forms.within.new_tensor(sizes).unsqueeze(-1)
    return (forms.within / counts).sum(-2) - (forms.total / sum(sizes)).unsqueeze(-1)


# --- the test ---------------------------------------------------------------------------------------------------------


def _test(
    given: list[Tensor],
    names: list[str],
    kernel: KernelChoice,
    num_permutations: int,
    seed: int | None,
    formula: Statistic,
    null: str,
    categorical: Categorical,
    test: str,
) -> KernelTestResult:
    check_choice(null, ("permutation", "gamma"), "null")
    check_permutations(num_permutations)
    samples, columns = check_samples(given, names, categorical)
    sizes = tuple(len(sample) for sample in samples)
    generator = generator_of(seed)
    pooled = torch.cat(samples)
    kernels = choose_kernels(pooled, kernel, columns, generator)
    if kernel == "split":
        kernels, samples, sizes = _split(samples, kernels, formula, num_permutations, generator)
        pooled = torch.cat(samples)
    if null == "gamma":
        return _gamma(samples, pooled, kernels, formula, generator, test, num_permutations)
    E = indicators(sizes, num_permutations, generator, pooled)
    T, scale = statistics(kernels.kernels, pooled, E, sizes, formula)
    answer = aggregate(T, scale)
    return SamplesTestResult(
        test=test,
        statistic=float(answer.statistics[0]),
        pvalue=answer.pvalue,
        kernel=kernels.kernels[answer.best],
        null=answer.statistics[1:],
        kernels=kernels.kernels,
        statistics=T[:, 0],
        pvalues=answer.pvalues,
        kernel_choice=kernels.how,
        null_kind=f"{num_permutations} permutations",
        sizes=sizes,
        samples=tuple(samples),
    )


def statistics(
    kernels: Sequence[Kernel], pooled: Tensor, E: Tensor, sizes: Sequence[int], formula: Statistic
) -> tuple[Tensor, NullScale]:
    """T ``(J, 1 + B)`` for J kernels, each averaged over its batch, and the scale of each."""
    rows, scales = [], []
    for kernel in kernels:
        forms = quadratic_forms(kernel, pooled, E)
        T = formula(forms, sizes)
        # The statistic is linear in the kernel: the average over draws is the statistic of the average kernel.
        rows.append(T.reshape(-1, T.shape[-1]).mean(0))
        moments = null_moments(forms, sizes, formula)
        scales.append(torch.stack([m.mean() for m in (*moments, (forms.trace / len(pooled)).abs())]))
    mean, variance, size = torch.stack(scales, dim=1)
    return torch.stack(rows), NullScale(mean, variance, size, shift=float(formula is unbiased_squared_mmd))


def null_moments(forms: QuadraticForms, sizes: Sequence[int], formula: Statistic) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of the biased statistic if all samples are of one distribution, each ``batch``.

    With λ the eigenvalues of HKH/N, T of k samples tends to :math:`\sum_l \lambda_l \chi^2_{k-1}`.
    """
    N, freedom = sum(sizes), len(sizes) - 1
    factor = 1.0 if formula is between_samples else 1.0 / sizes[0] + 1.0 / sizes[1]
    mean = factor * freedom * (forms.trace - forms.total / N) / N
    return mean, 2.0 * factor**2 * freedom * forms.centred_square / N**2


def check_samples(
    given: list[Tensor], names: list[str], categorical: Categorical
) -> tuple[list[Tensor], tuple[int, ...]]:
    """The samples in float64 and their categorical columns."""
    samples = [check_sample(sample, name) for sample, name in zip(given, names, strict=True)]
    widths = [sample.shape[1] for sample in samples]
    if len(set(widths)) > 1:
        got = ", ".join(f"{width} in {name}" for width, name in zip(widths, names, strict=True))
        raise ValueError(f"Expected samples of one width, got columns: {got}. Give the same features of each.")
    return [sample.to(samples[0].device) for sample in samples], categorical_columns(given, categorical)


def _split(
    samples: list[Tensor], kernels: Kernels, formula: Statistic, num_permutations: int, generator: torch.Generator
) -> tuple[Kernels, list[Tensor], tuple[int, ...]]:
    """The candidate that stands out most on one half of each sample, and the other halves."""
    if min(map(len, samples)) < 4:
        raise ValueError(f"Expected at least 4 points in each sample to split, got {min(map(len, samples))}.")
    halves: list[list[Tensor]] = [[], []]
    for sample in samples:
        order = torch.randperm(len(sample), generator=generator).to(sample.device)
        for half, rows in zip(halves, (order[: len(order) // 2], order[len(order) // 2 :]), strict=True):
            half.append(sample[rows])
    sizes = tuple(map(len, halves[0]))
    pooled = torch.cat(halves[0])
    E = indicators(sizes, min(num_permutations, 200), generator, pooled)
    best = aggregate(*statistics(kernels.kernels, pooled, E, sizes, formula)).best
    return Kernels((kernels.kernels[best],), "chosen on one half"), halves[1], tuple(map(len, halves[1]))


def _gamma(
    samples: list[Tensor],
    pooled: Tensor,
    kernels: Kernels,
    formula: Statistic,
    generator: torch.Generator,
    test: str,
    num_draws: int,
) -> KernelTestResult:
    """A gamma distribution with the mean and the variance of the limit."""
    if len(kernels.kernels) > 1 or formula is unbiased_squared_mmd:
        raise ValueError(
            "Expected one kernel and the biased statistic for null='gamma', got "
            f"{'the unbiased one' if len(kernels.kernels) == 1 else f'{len(kernels.kernels)} kernels'}. "
            "Give a kernel, or kernel='best'; several kernels need permutations."
        )
    sizes = tuple(map(len, samples))
    E = indicators(sizes, 0, generator, pooled)
    forms = quadratic_forms(kernels.kernels[0], pooled, E)
    statistic = formula(forms, sizes).mean()
    mean, variance = (moment.mean() for moment in null_moments(forms, sizes, formula))
    p = gamma_pvalue(float(statistic), mean, variance)
    draws = gamma_draws(mean, variance, num_draws, generator) if p < 1.0 else torch.zeros(num_draws).double()
    return SamplesTestResult(
        test=test,
        statistic=float(statistic),
        pvalue=p,
        kernel=kernels.kernels[0],
        null=draws,
        kernels=kernels.kernels,
        statistics=statistic.reshape(1),
        pvalues=torch.tensor([p], dtype=torch.float64),
        kernel_choice=kernels.how,
        null_kind="gamma approximation",
        sizes=sizes,
        samples=tuple(samples),
    )


def _linear(x: Tensor, y: Tensor, kernel: KernelChoice, seed: int | None, categorical: Categorical) -> KernelTestResult:
    samples, columns = check_samples([x, y], ["x", "y"], categorical)
    kernels = choose_kernels(torch.cat(samples), "best" if kernel is None else kernel, columns, generator_of(seed))
    if len(kernels.kernels) > 1:
        raise ValueError(f"Expected one kernel for the linear-time statistic, got {len(kernels.kernels)}.")
    return LinearTimeTwoSampleTest(kernels.kernels[0], kernels.how).update(*samples).result()
