"""The test of independence by the Hilbert–Schmidt criterion."""

from __future__ import annotations

from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..splits import halves
from ..validation import check_count, generator_of
from .checks import Categorical, check_choice, check_pairs, read_samples
from .hsic import pairs_of, statistics
from .kernel_choice import KernelChoice, Kernels, choose_kernels
from .pvalues import Null, by_gamma, by_permutations, check_gamma
from .result import KernelTestResult


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

    Kernels are learned on x alone and on y alone, without the pairing: the test is exact, and rescaling x or y changes
    nothing.

    Args:
        x: n observations, ``(n, d)``, as a tensor, a NumPy array, a data frame of numbers or lists.
        y: the second variable of each observation, ``(n, d')``.
        kernel: of x; as in :func:`two_sample_test`.
        num_permutations: B, the number of permutations: rotations of random orders of the y.
        seed: of the permutations, and of the rows from which kernels are learned in a large sample.
        kernel_y: of y; by default the same rule as ``kernel``, where that is a rule by name.
        statistic: ``"biased"`` or ``"unbiased"``.
        null: ``"permutation"``, or ``"gamma"`` for an approximation without permutations (biased, one kernel each).
        categorical: the categorical columns of x; by default all where x is integer or bool.
        categorical_y: those of y.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 observations and more.

    Returns:
        p-value, statistic, kernels and null distribution.

    Raises:
        TypeError: if a sample is not made of real numbers.
        ValueError: if the samples have different numbers of rows, too few of them, or values that are not finite; if
            an option is unknown; or if ``null="gamma"`` is used with several kernels or the unbiased statistic.

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
    if null == "gamma":
        check_gamma(len(pairs), unbiased)
        T, scale = statistics(kernels_x, kernels_y, x, y, 0, generator)
        decision = by_gamma(T[0, 0], scale.mean[0], scale.variance[0], num_permutations, generator)
    else:
        T, scale = statistics(kernels_x, kernels_y, x, y, num_permutations, generator, unbiased, progress)
        decision = by_permutations(T, scale)
    return decision.result(KernelTestResult, "independence test", pairs, how, sizes=(len(x),))


def _split(
    x: Tensor, y: Tensor, kernels_x: Kernels, kernels_y: Kernels, unbiased: bool, generator: torch.Generator
) -> tuple[Kernels, Kernels, Tensor]:
    """The pair with the largest statistic on one half of the observations, and the rows of the other half."""
    if len(x) < 8:
        raise ValueError(f"kernel='split' needs at least 8 observations, but there are {len(x)}.")
    first, second = halves(len(x), generator, x.device)
    best = by_permutations(*statistics(kernels_x, kernels_y, x[first], y[first], 200, generator, unbiased)).best
    i, j = pairs_of(kernels_x, kernels_y)[best]
    return Kernels((kernels_x.kernels[i],), ""), Kernels((kernels_y.kernels[j],), ""), second
