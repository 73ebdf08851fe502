r"""Tests whether two or several samples come from one distribution; the linear-time statistic, for streams.

The linear-time statistic of consecutive pairs of points is

.. math::
    h_i &= k(x_{2i-1}, x_{2i}) + k(y_{2i-1}, y_{2i}) - k(x_{2i-1}, y_{2i}) - k(x_{2i}, y_{2i-1}) \\
    \mathrm{MMD}_l^2 &= \frac1M \sum_{i=1}^M h_i .

Where P = Q, exchanging x_{2i} and y_{2i}, which are exchangeable, turns h_i into −h_i. So the statistic is as likely as
any :math:`\frac1M \sum_i s_{ib}\, h_i` with :math:`s_{ib} = \pm 1` by fair coins, b = 1, …, B, and its rank among them
is an exact p-value. Memory holds B sums, whatever the length of the stream.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.approximations import nystrom_kernel
from ..kernels.structure import check_columns
from ..runtime import cpu_by_default
from ..splits import halves
from ..validation import check_count, generator_of
from .checks import Categorical, check_choice, column_names, paired_values, read_samples
from .kernel_choice import HasKernelDraws, KernelChoice, Kernels, choose_kernels, unbatched_kernels
from .mmd import BETWEEN_SAMPLES, STATISTICS, Statistic, indicators, statistics
from .result import (
    ROUNDING,
    KernelTestResult,
    Null,
    NullScale,
    SamplesTestResult,
    TestDecision,
    by_permutations,
    decide,
    exceedance,
)

LINEAR_TIME = "two-sample test, linear time"
SIGNS = 2**20  # random signs drawn at once


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
    sample, so that the permutation test is exact. ``differences()`` of the result shows where the samples differ.

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


@cpu_by_default()
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
    fields: dict[str, Any] = {"columns": column_names(next(iter(data.values()))), "categorical": categories}
    if statistic is None:
        if null == "gamma" or num_features is not None:
            raise ValueError("statistic='linear' takes neither null='gamma' nor num_features. Leave them out.")
        if (count := len(kernels.kernels)) > 1:
            raise ValueError(f"statistic='linear' needs one kernel, not {count}. Pass one, or use 'biased'.")
        signs = int(torch.randint(2**31, (), generator=generator, device="cpu"))
        test = LinearTimeTwoSampleTest(kernels.kernels[0], kernels.how, num_permutations, signs)
        return SamplesTestResult(**vars(test.update(*samples).result()), samples=tuple(samples), **fields)
    if num_features is not None:
        check_count("num_features", num_features)
        # Nyström approximations at rows drawn without regard to the samples
        rows = torch.randperm(len(pooled), generator=generator, device="cpu")[:num_features].to(pooled.device)
        features = tuple(nystrom_kernel(kernel, pooled[rows]) for kernel in kernels.kernels)
        kernels = kernels._replace(kernels=features, how=f"{kernels.how}, {len(rows)} features")
    if kernel == "split":
        kernels, samples = _split(kernels, samples, statistic, num_permutations, generator)
    num_relabelings = num_permutations if null == "permutation" else 0
    T, scale = _statistics(kernels, samples, statistic, num_relabelings, generator, progress)
    decision, sizes = decide(T, scale, null, num_permutations, generator), tuple(map(len, samples))
    return decision.result(
        SamplesTestResult, name, kernels.kernels, kernels.how, sizes=sizes, samples=tuple(samples), **fields
    )


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


class LinearTimeTwoSampleTest:
    """An exact two-sample test of two streams, in constant memory if both streams bring as many points.

    Points are used in pairs; a point without a partner is kept until it has one. Learn the kernel on other data, such
    as the beginning of the stream, or without using which stream a point comes from.

    Args:
        kernel: any GPyTorch kernel; a batch of kernels, or a posterior, is averaged over its draws.
        kernel_choice: how it was chosen, for the summary.
        num_permutations: B, the number of random sign vectors.
        seed: of the signs.

    Raises:
        TypeError: if ``kernel`` is neither one kernel nor a posterior, or ``num_permutations`` not a whole number.
        ValueError: if ``num_permutations`` is below 1.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x, y = torch.randn(2, 2000, 1)
        >>> LinearTimeTwoSampleTest(RBFKernel(), seed=0).update(x, y + 1.0).result().pvalue < 0.01
        True
    """

    def __init__(
        self, kernel: Kernel | HasKernelDraws, kernel_choice: str = "given", num_permutations: int = 1000,
        seed: int | None = None,
    ) -> None:  # fmt: skip
        if not isinstance(kernel, Kernel | HasKernelDraws):
            raise TypeError(f"kernel must be one gpytorch.kernels.Kernel or a posterior, not {kernel!r:.40}.")
        self.kernel = copy.deepcopy(unbatched_kernels(kernel)[0]).double().requires_grad_(False)
        self.kernel_choice, self.num_pairs = kernel_choice, 0
        check_count("num_permutations", num_permutations)
        self._generator = generator_of(seed)
        self._sums, self._size = torch.zeros(1 + num_permutations, dtype=torch.float64, device="cpu"), 0.0
        self._waiting: list[list[Tensor]] = [[], []]  # of each stream, the points without a partner

    def update(self, x: Tensor | ArrayLike, y: Tensor | ArrayLike) -> LinearTimeTwoSampleTest:
        """Add the next points of both streams (any number of each); returns the test.

        Raises:
            TypeError: if a sample is not made of real numbers.
            ValueError: if the samples have other columns than each other or the kernel, or values that are not finite.
        """
        samples, _ = read_samples({"x": x, "y": y}, False, minimum=1)
        check_columns(self.kernel, samples[0].shape[1])
        first, second = (torch.cat([*old, new]) for old, new in zip(self._waiting, samples, strict=True))
        used = 2 * (min(len(first), len(second)) // 2)
        self._waiting = [[first[used:].clone()], [second[used:].clone()]]
        x1, x2, y1, y2 = first[:used:2], first[1:used:2], second[:used:2], second[1:used:2]
        if used:
            pairs = (x1, x2), (y1, y2), (x1, y2), (x2, y1)
            same_x, same_y, cross1, cross2 = (paired_values(self.kernel, *pair) for pair in pairs)
            self._add((same_x + same_y - cross1 - cross2).cpu())
        return self

    def _add(self, h: Tensor) -> None:
        """Add Σ_i s_ib h_i, b = 0 as observed; each random byte holds the signs of eight b."""
        B, places = len(self._sums) - 1, 2 ** torch.arange(8, dtype=torch.uint8, device="cpu")
        for part in h.split(max(1, SIGNS // B)):
            size = (len(part), -(-B // 8), 1)
            signs = torch.randint(256, size, generator=self._generator, dtype=torch.uint8, device="cpu")
            positive = (signs & places).ne(0).flatten(1)[:, :B].double()
            total = part.sum()
            self._sums[0] += total
            self._sums[1:] += 2.0 * (part @ positive) - total
        self._size += float(h.abs().sum())
        self.num_pairs += len(h)

    def result(self) -> KernelTestResult:
        """The result for all points so far.

        Raises:
            ValueError: if there are fewer than two pairs.
        """
        size = 2 * self.num_pairs
        if size < 4:
            raise ValueError(f"The linear-time test needs at least 4 points of each sample, but it has {size}.")
        T = self._sums / self.num_pairs
        p = exceedance(T, ROUNDING * self._size / self.num_pairs)
        kind, how = f"{len(T) - 1} random sign flips", self.kernel_choice
        decision = TestDecision(float(T[0]), float(p), T[1:], T[:1], p.reshape(1), 0, kind)
        return decision.result(KernelTestResult, LINEAR_TIME, (self.kernel,), how, sizes=(size, size))
