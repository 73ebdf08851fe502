"""Tests whether two or several samples come from one distribution."""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.features import nystrom_kernel
from ..splits import halves
from ..validation import check_count, generator_of
from .checks import Categorical, check_choice, column_names, read_samples
from .kernel_choice import KernelChoice, Kernels, choose_kernels
from .linear_time import LINEAR_TIME, LinearTimeTwoSampleTest
from .mmd import Formula, between_samples, indicators, squared_mmd, statistics, unbiased_squared_mmd
from .pvalues import Null, NullScale, TestDecision, by_gamma, by_permutations, check_gamma
from .result import SamplesTestResult


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

    Unless a kernel is given, kernels are learned by evidence on the pooled sample. The evidence does not depend on
    which point belongs to which sample, so the permutation test is exact: at level α it rejects equal distributions
    with probability at most α, for every n, dimension and kernel.

    Args:
        x: n points, ``(n, d)``, as a tensor, a NumPy array, a data frame of numbers or lists.
        y: m points, ``(m, d)``.
        kernel: ``None`` for all maxima of the evidence and the median heuristic; a GPyTorch kernel; several, of which
            the largest standardized statistic counts; a kernel with a batch dimension or a posterior, averaged over
            its draws; or ``"evidence"`` (all maxima), ``"best"`` (the highest maximum), ``"median"`` (the median
            heuristic), ``"split"`` (chosen for power on one half of the data, tested on the other).
        num_permutations: B, the number of relabelings.
        seed: of the relabelings, and of the rows from which kernels are learned in a large sample.
        statistic: ``"biased"``, ``"unbiased"``, or ``"linear"`` (linear time, exact by sign flips; see
            :class:`kernel_embed.hypothesis.LinearTimeTwoSampleTest` for streams).
        null: ``"permutation"``, or ``"gamma"``, an approximation without permutations (biased statistic, one kernel).
        categorical: the categorical columns: ``True``, ``False``, or their indices. By default all columns of integer
            or bool samples, none of others.
        num_features: for samples too large for O(N²), approximate every kernel by this many Nyström features at
            random rows of the pooled sample. The test remains exact, and its time grows as N instead of N²: B
            permutations of N points with s features take 2NsB operations for each kernel, and N(1 + B) bytes.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 points and more.

    Returns:
        p-value, statistic, kernels and null distribution; ``witness()`` and ``differences()`` show where the samples
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
    formula = {"biased": squared_mmd, "unbiased": unbiased_squared_mmd}.get(statistic)
    name = "two-sample test" if formula else LINEAR_TIME
    test = _SamplesTest(name, formula, null, kernel, num_permutations, seed, categorical, num_features, progress)
    return test.run({"x": x, "y": y})


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
        kernel: as in :func:`two_sample_test`.
        num_permutations: B, the number of relabelings.
        seed: of the relabelings, and of the rows from which kernels are learned in a large sample.
        null: ``"permutation"``, or ``"gamma"``, an approximation without permutations.
        categorical: the categorical columns.
        num_features: for samples too large for O(N²), the number of Nyström features of every kernel.
        progress: show a progress bar; by default on a terminal or in a notebook, for 10,000 points and more.

    Returns:
        As :func:`two_sample_test`.

    Raises:
        ValueError: if there are fewer than two samples, or they have different columns.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> x, y, z = (torch.randn(50, 1, generator=generator) for _ in range(3))
        >>> k_sample_test(x, y, z + 2.0, seed=0).pvalue < 0.01
        True
    """
    if len(samples) < 2:
        raise ValueError(f"k_sample_test needs at least 2 samples, not {len(samples)}. Pass each as an argument.")
    name = f"{len(samples)}-sample test"
    test = _SamplesTest(
        name, between_samples, null, kernel, num_permutations, seed, categorical, num_features, progress
    )
    return test.run({f"sample {g + 1}": sample for g, sample in enumerate(samples)})


@dataclasses.dataclass(frozen=True)
class _SamplesTest:
    """The options of a test of samples; ``formula=None`` is the linear-time statistic."""

    name: str
    formula: Formula | None
    null: Null
    kernel: KernelChoice
    num_permutations: int
    seed: int | None
    categorical: Categorical
    num_features: int | None
    progress: bool | None

    def run(self, data: dict[str, Tensor | ArrayLike]) -> SamplesTestResult:
        check_choice(self.null, ("permutation", "gamma"), "null")
        check_count("num_permutations", self.num_permutations)
        samples, columns = read_samples(data, self.categorical)
        generator = generator_of(self.seed)
        kernel: KernelChoice = "best" if self.kernel is None and self.formula is None else self.kernel
        kernels = choose_kernels(torch.cat(samples), kernel, columns, generator)
        if self.formula is None:
            test = self._linear_time(kernels, generator).update(*samples)
            decision = test.decision()
        else:
            kernels, samples = self._prepared(kernels, samples, generator)
            decision = self._decision(kernels, samples, generator)
        return decision.result(
            SamplesTestResult,
            self.name,
            kernels.kernels,
            kernels.how,
            sizes=test.sizes if self.formula is None else tuple(map(len, samples)),
            samples=tuple(samples),
            columns=column_names(next(iter(data.values()))),
            categorical=columns,
        )

    def _linear_time(self, kernels: Kernels, generator: torch.Generator) -> LinearTimeTwoSampleTest:
        if len(kernels.kernels) > 1:
            raise ValueError(
                f"statistic='linear' needs one kernel, not {len(kernels.kernels)}. Pass one, or use 'biased'."
            )
        signs = int(torch.randint(2**31, (), generator=generator))
        return LinearTimeTwoSampleTest(kernels.kernels[0], kernels.how, self.num_permutations, signs)

    def _prepared(
        self, kernels: Kernels, samples: list[Tensor], generator: torch.Generator
    ) -> tuple[Kernels, list[Tensor]]:
        """Kernels through features where they were requested, and one kernel and half of the rows after a split."""
        if self.num_features is not None:
            check_count("num_features", self.num_features)
            pooled = torch.cat(samples)
            # rows drawn without regard to the samples
            rows = torch.randperm(len(pooled), generator=generator)[: self.num_features].to(pooled.device)
            features = tuple(nystrom_kernel(kernel, pooled[rows]) for kernel in kernels.kernels)
            kernels = kernels._replace(kernels=features, how=f"{kernels.how}, {len(rows)} features")
        if self.kernel != "split":
            return kernels, samples
        least = min(map(len, samples))
        if least < 4:
            raise ValueError(f"kernel='split' needs at least 4 points in each sample, but one has {least}.")
        rows_of = [halves(len(sample), generator, sample.device) for sample in samples]
        first, second = ([sample[half[i]] for sample, half in zip(samples, rows_of, strict=True)] for i in range(2))
        T, scale = self._statistics(first, kernels, min(self.num_permutations, 200), generator)
        best = by_permutations(T, scale).best
        return Kernels((kernels.kernels[best],), "chosen on one half"), second

    def _decision(self, kernels: Kernels, samples: list[Tensor], generator: torch.Generator) -> TestDecision:
        if self.null == "permutation":
            return by_permutations(*self._statistics(samples, kernels, self.num_permutations, generator, self.progress))
        check_gamma(len(kernels.kernels), self.formula is unbiased_squared_mmd)
        T, scale = self._statistics(samples, kernels, 0, generator)
        return by_gamma(T[0, 0], scale.mean[0], scale.variance[0], self.num_permutations, generator)

    def _statistics(
        self,
        samples: list[Tensor],
        kernels: Kernels,
        num_permutations: int,
        generator: torch.Generator,
        progress: bool | None = False,
    ) -> tuple[Tensor, NullScale]:
        assert self.formula is not None
        pooled, sizes = torch.cat(samples), tuple(map(len, samples))
        E = indicators(sizes, num_permutations, generator, pooled)
        return statistics(kernels.kernels, pooled, E, sizes, self.formula, progress)
