"""The test of independence by the Hilbert–Schmidt criterion, x and y each with kernels of their own."""

from __future__ import annotations

from typing import Literal

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from .checks import (
    Categorical,
    as_tensor,
    categorical_columns,
    check_choice,
    check_pairs,
    check_permutations,
    check_sample,
    generator_of,
)
from .hsic import hsic, null_moments, pairs_of, statistics
from .kernel_choice import KernelChoice, Kernels, choose_kernels, halves
from .pvalues import Null, Verdict, by_gamma, by_permutations, check_gamma
from .result import KernelTestResult
from .rotations import correlations


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
    """Whether ``x`` and ``y`` are independent, by the Hilbert–Schmidt independence criterion.

    Kernels are learned on x alone and on y alone, without looking at the pairs: the test stays exact, and rescaling x
    or y changes nothing.

    Args:
        x: n observations, ``(n, d)``, as a tensor, a NumPy array, a data frame of numbers or lists.
        y: what goes with each, ``(n, d')``.
        kernel: of x; as in :func:`two_sample_test`.
        num_permutations: B, the number of permutations: rotations of random orders of the y.
        seed: of the permutations, and of the rows a large sample is learned from.
        kernel_y: of y; where ``kernel`` is a rule by name, the same rule by default.
        statistic: ``"biased"`` or ``"unbiased"``.
        null: ``"permutation"``, or ``"gamma"`` for an approximation without permutations (biased, one kernel each).
        categorical: the columns of x that hold categories; by default all where x is integer or bool.
        categorical_y: those of y.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 observations and more.

    Returns:
        p-value, statistic, kernels and null distribution.

    Raises:
        TypeError: if a sample is not made of real numbers.
        ValueError: if the samples have different numbers of rows, too few of them, or values that are not finite; if
            an option is unknown; or if ``null="gamma"`` is asked for several kernels or the unbiased statistic.

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
    x, y = as_tensor(x, "x"), as_tensor(y, "y")
    columns = categorical_columns([x], categorical), categorical_columns([y], categorical_y)
    minimum = 2 if statistic == "biased" else 4
    x, y = check_sample(x, "x", minimum), check_sample(y, "y", minimum)
    check_pairs(x, y)
    y = y.to(x.device)
    generator = generator_of(seed)
    if kernel_y is None and isinstance(kernel, str):
        kernel_y = kernel
    chosen_x = choose_kernels(x, kernel, columns[0], generator)
    chosen_y = choose_kernels(y, kernel_y, columns[1], generator, "y")
    how = chosen_x.how if chosen_x.how == chosen_y.how else f"{chosen_x.how}; {chosen_y.how}"
    unbiased = statistic == "unbiased"
    if kernel == "split" or kernel_y == "split":
        chosen_x, chosen_y, rows = _split(x, y, chosen_x, chosen_y, unbiased, generator)
        x, y, how = x[rows], y[rows], "chosen on one half"
    pairs = tuple((chosen_x.kernels[i], chosen_y.kernels[j]) for i, j in pairs_of(chosen_x, chosen_y))
    if null == "gamma":
        check_gamma(len(pairs), unbiased, "kernel of each", "pairs of kernels")
        verdict = _gamma(x, y, pairs[0], generator, num_permutations)
    else:
        found = statistics(chosen_x, chosen_y, x, y, num_permutations, generator, unbiased, progress)
        verdict = by_permutations(*found)
    return verdict.on(pairs, how, "independence test", (x.shape[0],), KernelTestResult)


def _split(
    x: Tensor, y: Tensor, kernels_x: Kernels, kernels_y: Kernels, unbiased: bool, generator: torch.Generator
) -> tuple[Kernels, Kernels, Tensor]:
    """The pair that stands out most on one half of the observations, and the rows of the other half."""
    if x.shape[0] < 8:
        raise ValueError(
            f"Expected at least 8 observations to split, got {x.shape[0]}. "
            "Give more observations, or a test that does not split."
        )
    first, second = halves(x.shape[0], generator, x.device)
    best = by_permutations(*statistics(kernels_x, kernels_y, x[first], y[first], 200, generator, unbiased)).best
    i, j = pairs_of(kernels_x, kernels_y)[best]
    return Kernels((kernels_x.kernels[i],), ""), Kernels((kernels_y.kernels[j],), ""), second


def _gamma(x: Tensor, y: Tensor, pair: tuple[Kernel, Kernel], generator: torch.Generator, num_draws: int) -> Verdict:
    n = x.shape[0]
    c = correlations(pair[:1], pair[1:], x, y, 0, generator)
    mean, variance = null_moments(c, n)
    return by_gamma(hsic(c, n)[0, 0, 0], mean[0, 0], variance[0, 0], num_draws, generator)
