"""Tests that samples come from one distribution: two of them, or several."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.features import nystrom_kernel
from ..validation import check_count
from .checks import (
    Categorical,
    as_tensor,
    categorical_columns,
    check_choice,
    check_permutations,
    check_sample,
    generator_of,
)
from .kernel_choice import KernelChoice, Kernels, choose_kernels, halves
from .linear_time import NAME, LinearTimeTwoSampleTest
from .mmd import (
    Statistic,
    between_samples,
    indicators,
    null_moments,
    quadratic_forms,
    squared_mmd,
    statistics,
    unbiased_squared_mmd,
)
from .pvalues import Null, Verdict, by_gamma, by_permutations, check_gamma
from .result import SamplesTestResult

NUMBERS = 2**25
"""Labels of points above which they are held as bools."""


def two_sample_test(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    *,
    statistic: Literal["biased", "unbiased", "linear"] = "biased",
    null: Null = "permutation",
    categorical: Categorical = None,
    num_features: int | None = None,
    progress: bool | None = None,
) -> SamplesTestResult:
    """Whether ``x`` and ``y`` are samples of one distribution, by the maximum mean discrepancy.

    The kernel is learned by evidence on the pooled sample unless one is given. The evidence does not know which point
    belongs to which sample, so the permutation test is exact: at level α it rejects equal distributions with
    probability at most α, whatever n, the dimension and the kernel.

    Args:
        x: n points, ``(n, d)``, as a tensor, a NumPy array, a data frame of numbers or lists.
        y: m points, ``(m, d)``.
        kernel: ``None`` for all maxima of the evidence beside the median heuristic; a GPyTorch kernel; several,
            whose largest standardized statistic counts; a kernel with a batch dimension or a posterior, averaged over
            its draws; or ``"evidence"`` (all maxima alone), ``"best"`` (the highest alone), ``"median"`` (the median
            heuristic), ``"split"`` (chosen for power on one half, tested on the other).
        num_permutations: B, the number of relabelings.
        seed: of the relabelings, and of the rows a large sample is learned from.
        statistic: ``"biased"``, ``"unbiased"``, or ``"linear"`` (linear time, exact by flips of signs; see
            :class:`kernel_embed.hypothesis.LinearTimeTwoSampleTest` for streams).
        null: ``"permutation"``, or ``"gamma"``, an approximation without permutations (biased statistic, one kernel).
        categorical: the columns that hold categories: ``True``, ``False``, or their numbers. By default all columns of
            integer or bool samples, none of others.
        num_features: for more points than O(N²) allows, replace every kernel k by the kernel of so many features
            (Nyström's, at rows of the pooled sample drawn at random, which know nothing of the samples either): as
            exact, and the time grows as N instead of N². With B permutations of N points and s features it takes 2NsB
            operations for each kernel and N(1 + B) bytes.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 points and more.

    Returns:
        p-value, statistic, kernels and null distribution; ``witness()`` and ``differences()`` say where the samples
        differ.

    Raises:
        ValueError: if the samples have different columns, or too few rows.

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
        return _linear(x, y, kernel, num_permutations, seed, categorical)
    formula = squared_mmd if statistic == "biased" else unbiased_squared_mmd
    question = _Question(
        "two-sample test", formula, null, kernel, num_permutations, seed, categorical, num_features, progress
    )
    return _answer(question, [x, y], ["x", "y"])


def k_sample_test(
    *samples: Tensor | ArrayLike,
    kernel: KernelChoice = None,
    num_permutations: int = 1000,
    seed: int | None = None,
    null: Null = "permutation",
    categorical: Categorical = None,
    num_features: int | None = None,
    progress: bool | None = None,
) -> SamplesTestResult:
    """Whether several samples come from one distribution; arguments as of :func:`two_sample_test`.

    Args:
        samples: two or more samples, each ``(n_i, d)``.
        kernel: as in :func:`two_sample_test`.
        num_permutations: B, the number of relabelings.
        seed: of the relabelings, and of the rows a large sample is learned from.
        null: ``"permutation"``, or ``"gamma"``, an approximation without permutations.
        categorical: the columns that hold categories.
        num_features: for more points than O(N²) allows, the number of features of every kernel.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 points and more.

    Returns:
        As of :func:`two_sample_test`.

    Raises:
        ValueError: if there are fewer than two samples, or they have different columns.

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
    question = _Question(
        test, between_samples, null, kernel, num_permutations, seed, categorical, num_features, progress
    )
    return _answer(question, list(samples), names)


@dataclasses.dataclass(frozen=True)
class _Question:
    """What is asked of samples, whichever they are."""

    test: str
    formula: Statistic
    null: Null
    kernel: KernelChoice
    num_permutations: int
    seed: int | None
    categorical: Categorical
    num_features: int | None
    progress: bool | None


def _answer(question: _Question, given: Sequence[Tensor | ArrayLike], names: list[str]) -> SamplesTestResult:
    check_choice(question.null, ("permutation", "gamma"), "null")
    check_permutations(question.num_permutations)
    samples, columns = check_samples(given, names, question.categorical)
    generator = generator_of(question.seed)
    kernels = choose_kernels(torch.cat(samples), question.kernel, columns, generator)
    if question.num_features is not None:
        kernels = _featured(kernels, torch.cat(samples), question.num_features, generator)
    if question.kernel == "split":
        kernels, samples = _split(question, samples, kernels, generator)
    if question.null == "gamma":
        verdict = _gamma(question, samples, kernels, generator)
    else:
        labeled = _relabeled(samples, question.num_permutations, generator)
        verdict = by_permutations(*statistics(kernels.kernels, *labeled, question.formula, question.progress))
    sizes = tuple(map(len, samples))
    result = verdict.on(kernels.kernels, kernels.how, question.test, sizes, SamplesTestResult)
    return dataclasses.replace(result, samples=tuple(samples), columns=column_names(given[0]), categorical=columns)


def _featured(kernels: Kernels, pooled: Tensor, num_features: int, generator: torch.Generator) -> Kernels:
    """The kernels of Nyström's features at rows that are drawn without regard to the samples."""
    check_count("num_features", num_features)
    rows = torch.randperm(len(pooled), generator=generator)[:num_features].to(pooled.device)
    approximate = tuple(nystrom_kernel(kernel, pooled[rows]) for kernel in kernels.kernels)
    return kernels._replace(kernels=approximate, how=f"{kernels.how}, {len(rows)} features")


def _relabeled(
    samples: list[Tensor], num_permutations: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, tuple[int, ...]]:
    """The pooled sample, the indicators of all labelings, and the sizes."""
    pooled, sizes = torch.cat(samples), tuple(map(len, samples))
    like = pooled if len(pooled) * num_permutations <= NUMBERS else pooled.new_empty(0, dtype=torch.bool)
    return pooled, indicators(sizes, num_permutations, generator, like), sizes


def _gamma(question: _Question, samples: list[Tensor], kernels: Kernels, generator: torch.Generator) -> Verdict:
    check_gamma(len(kernels.kernels), question.formula is unbiased_squared_mmd)
    pooled, E, sizes = _relabeled(samples, 0, generator)
    forms = quadratic_forms(kernels.kernels[0], pooled, E)
    moments = null_moments(forms, sizes, question.formula)
    return by_gamma(question.formula(forms, sizes), *moments, question.num_permutations, generator)


def _split(
    question: _Question, samples: list[Tensor], kernels: Kernels, generator: torch.Generator
) -> tuple[Kernels, list[Tensor]]:
    """The candidate that stands out most on one half of each sample, and the other halves."""
    if min(map(len, samples)) < 4:
        raise ValueError(
            f"Expected at least 4 points in each sample to split, got {min(map(len, samples))}. "
            "Give more points, or a test that does not split."
        )
    rows = [halves(len(sample), generator, sample.device) for sample in samples]
    first, second = ([sample[half[i]] for sample, half in zip(samples, rows, strict=True)] for i in range(2))
    labeled = _relabeled(first, min(question.num_permutations, 200), generator)
    best = by_permutations(*statistics(kernels.kernels, *labeled, question.formula)).best
    return Kernels((kernels.kernels[best],), "chosen on one half"), second


def _linear(
    x: Tensor | ArrayLike,
    y: Tensor | ArrayLike,
    kernel: KernelChoice,
    num_permutations: int,
    seed: int | None,
    categorical: Categorical,
) -> SamplesTestResult:
    check_permutations(num_permutations)
    samples, columns = check_samples([x, y], ["x", "y"], categorical)
    generator = generator_of(seed)
    kernels = choose_kernels(torch.cat(samples), "best" if kernel is None else kernel, columns, generator)
    if len(kernels.kernels) > 1:
        raise ValueError(
            f"Expected one kernel for the linear-time statistic, got {len(kernels.kernels)}. "
            "Choose one of them, or use another method."
        )
    signs = int(torch.randint(2**31, (), generator=generator))
    stream = LinearTimeTwoSampleTest(kernels.kernels[0], kernels.how, num_permutations, signs).update(*samples)
    result = stream.verdict().on(kernels.kernels, kernels.how, NAME, stream.sizes, SamplesTestResult)
    return dataclasses.replace(result, samples=tuple(samples), columns=column_names(x), categorical=columns)


def check_samples(
    given: Sequence[Tensor | ArrayLike], names: list[str], categorical: Categorical
) -> tuple[list[Tensor], tuple[int, ...]]:
    """The samples in float64 and their categorical columns."""
    tensors = [as_tensor(sample, name) for sample, name in zip(given, names, strict=True)]
    samples = [check_sample(sample, name) for sample, name in zip(tensors, names, strict=True)]
    widths = [sample.shape[1] for sample in samples]
    if len(set(widths)) > 1:
        got = ", ".join(f"{width} in {name}" for width, name in zip(widths, names, strict=True))
        raise ValueError(f"Expected samples of one width, got columns: {got}. Give the same features of each.")
    return [sample.to(samples[0].device) for sample in samples], categorical_columns(tensors, categorical)


def column_names(sample: Tensor | ArrayLike) -> tuple[str, ...]:
    """The names of the columns of a data frame, or their numbers."""
    names = getattr(sample, "columns", None)
    if names is not None:
        return tuple(map(str, names))
    name = getattr(sample, "name", None)
    if isinstance(name, str):  # a column of a data frame
        return (name,)
    shape = np.shape(sample)
    return tuple(f"column {j}" for j in range(shape[1] if len(shape) > 1 else 1))
