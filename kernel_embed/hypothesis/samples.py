"""Tests whether two or several samples come from one distribution."""

from __future__ import annotations

from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.approximations import nystrom_kernel
from ..splits import halves
from ..validation import check_count, generator_of
from .checks import Categorical, check_choice, column_names, read_samples
from .kernel_choice import KernelChoice, Kernels, choose_kernels
from .linear_time import LINEAR_TIME, LinearTimeTwoSampleTest
from .mmd import BETWEEN_SAMPLES, STATISTICS, Statistic, indicators, statistics
from .result import Null, NullScale, SamplesTestResult, by_permutations, decide


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
    """Test whether ``x`` and ``y`` are samples of one distribution, by the maximum mean discrepancy.

    Kernels are learned by the evidence of the pooled sample, which does not depend on which point belongs to which
    sample. So the permutation test is exact: at level α it rejects equal distributions with probability at most α, for
    every n, dimension and kernel.

    Args:
        x: n points, ``(n, d)``, as a tensor, a NumPy array, a data frame or lists; text is categorical.
        y: m points, ``(m, d)``.
        kernel: ``None`` for all maxima of the evidence and the median heuristic; a GPyTorch kernel; several, of which
            the largest standardized statistic counts; a kernel with a batch dimension or a posterior, averaged over
            its draws; or ``"evidence"`` (all maxima), ``"best"`` (the highest maximum), ``"median"`` (the median
            heuristic), ``"split"`` (chosen for power on one half of the data, tested on the other).
        num_permutations: B, the number of relabelings.
        seed: of the relabelings, and of the rows from which kernels are learned in a large sample.
        statistic: ``"biased"``, ``"unbiased"``, or ``"linear"`` (linear time, exact by sign flips).
        null: ``"permutation"``, or ``"gamma"``, an approximation without permutations (biased statistic, one kernel).
        categorical: the categorical columns: ``True``, ``False``, or their indices. By default all columns of integer
            or bool samples, none of others.
        num_features: for samples too large for O(N²), approximate every kernel by this many Nyström features at
            random rows of the pooled sample. The test remains exact, and takes O(NsB) time for s features.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 points and more.

    Returns:
        p-value, statistic, kernels and null distribution; ``differences()`` shows where the samples differ.

    Raises:
        ValueError: if the samples have different columns, or too few rows.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x = torch.randn(100, 2, generator=generator)
        >>> y = 1.5 * torch.randn(120, 2, generator=generator)
        >>> two_sample_test(x, y, seed=0).pvalue < 0.01
        True
    """
    check_choice(statistic, (*STATISTICS, "linear"), "statistic")
    name = "two-sample test" if statistic in STATISTICS else LINEAR_TIME
    mmd, data = STATISTICS.get(statistic), {"x": x, "y": y}
    return _test_samples(name, mmd, data, kernel, num_permutations, seed, null, categorical, num_features, progress)


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
    """Test whether several samples come from one distribution; see :func:`two_sample_test`.

    Args:
        samples: two or more samples, each ``(n_i, d)``.
        kernel: as in :func:`two_sample_test`, like all other arguments.
        num_permutations: B, the number of relabelings.
        seed: of the relabelings.
        null: ``"permutation"`` or ``"gamma"``.
        categorical: the categorical columns.
        num_features: the number of Nyström features, for large samples.
        progress: show a progress bar.

    Raises:
        ValueError: if there are fewer than two samples, or they have different columns.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x, y, z = torch.randn(3, 50, 1, generator=generator)
        >>> k_sample_test(x, y, z + 2.0, seed=0).pvalue < 0.01
        True
    """
    if len(samples) < 2:
        raise ValueError(f"k_sample_test needs at least 2 samples, not {len(samples)}. Pass each as an argument.")
    name, data = f"{len(samples)}-sample test", {f"sample {g + 1}": sample for g, sample in enumerate(samples)}
    return _test_samples(
        name, BETWEEN_SAMPLES, data, kernel, num_permutations, seed, null, categorical, num_features, progress
    )


def _test_samples(
    name: str, statistic: Statistic | None, data: dict[str, Tensor | ArrayLike], kernel: KernelChoice,
    num_permutations: int, seed: int | None, null: Null, categorical: Categorical, num_features: int | None,
    progress: bool | None,
) -> SamplesTestResult:  # fmt: skip
    """The test by this statistic; without one, by the linear-time statistic."""
    check_choice(null, ("permutation", "gamma"), "null")
    check_count("num_permutations", num_permutations)
    samples, categories = read_samples(data, categorical)
    generator = generator_of(seed)
    if kernel is None and statistic is None:
        kernel = "best"
    pooled = torch.cat(samples)
    kernels = choose_kernels(pooled, kernel, categories, generator)
    if statistic is None:
        if null == "gamma" or num_features is not None:
            raise ValueError("statistic='linear' takes neither null='gamma' nor num_features. Leave them out.")
        if (count := len(kernels.kernels)) > 1:
            raise ValueError(f"statistic='linear' needs one kernel, not {count}. Pass one, or use 'biased'.")
        signs = int(torch.randint(2**31, (), generator=generator))
        test = LinearTimeTwoSampleTest(kernels.kernels[0], kernels.how, num_permutations, signs).update(*samples)
        decision, sizes = test.decision(), test.sizes
    else:
        if num_features is not None:
            check_count("num_features", num_features)
            # Nyström approximations at rows drawn without regard to the samples
            rows = torch.randperm(len(pooled), generator=generator)[:num_features].to(pooled.device)
            features = tuple(nystrom_kernel(kernel, pooled[rows]) for kernel in kernels.kernels)
            kernels = kernels._replace(kernels=features, how=f"{kernels.how}, {len(rows)} features")
        if kernel == "split":
            kernels, samples = _split(kernels, samples, statistic, num_permutations, generator)
        num_relabelings = num_permutations if null == "permutation" else 0
        T, scale = _statistics(kernels, samples, statistic, num_relabelings, generator, progress)
        decision, sizes = decide(T, scale, null, num_permutations, generator), tuple(map(len, samples))
    columns = column_names(next(iter(data.values())))
    fields = {"sizes": sizes, "samples": tuple(samples), "columns": columns, "categorical": categories}
    return decision.result(SamplesTestResult, name, kernels.kernels, kernels.how, **fields)


def _statistics(
    kernels: Kernels, samples: list[Tensor], statistic: Statistic, num_permutations: int, generator: torch.Generator,
    progress: bool | None = False,
) -> tuple[Tensor, NullScale]:  # fmt: skip
    pooled, sizes = torch.cat(samples), tuple(map(len, samples))
    E = indicators(sizes, num_permutations, generator, pooled)
    return statistics(kernels.kernels, pooled, E, sizes, statistic, progress)


def _split(
    kernels: Kernels, samples: list[Tensor], statistic: Statistic, num_permutations: int, generator: torch.Generator
) -> tuple[Kernels, list[Tensor]]:
    """The kernel with the largest statistic on one half of every sample, and the other halves."""
    least = min(map(len, samples))
    if least < 4:
        raise ValueError(f"kernel='split' needs at least 4 points in each sample, but one has {least}.")
    rows = [halves(len(sample), generator, sample.device) for sample in samples]
    first, second = ([sample[half[i]] for sample, half in zip(samples, rows, strict=True)] for i in range(2))
    best = by_permutations(*_statistics(kernels, first, statistic, min(num_permutations, 200), generator)).best
    return Kernels((kernels.kernels[best],), "chosen on one half"), second
