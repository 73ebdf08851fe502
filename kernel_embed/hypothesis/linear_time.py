r"""The linear-time statistic, for streams: every point is used once and dropped.

From consecutive pairs of points,

.. math::
    h_i &= k(x_{2i-1}, x_{2i}) + k(y_{2i-1}, y_{2i}) - k(x_{2i-1}, y_{2i}) - k(x_{2i}, y_{2i-1}) \\
    \mathrm{MMD}_l^2 &= \frac1M \sum_{i=1}^M h_i .

Where P = Q, x_{2i} and y_{2i} are exchangeable, and exchanging them turns h_i into −h_i. So the statistic is as
likely as any

.. math::  \frac1M \sum_i s_{ib}\, h_i, \qquad s_{ib} = \pm 1 \text{ by fair coins}, \quad b = 1, \dots, B,

and its rank among them is an exact p-value. Memory holds B sums, whatever the length of the stream.
"""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.structure import check_columns
from ..validation import check_count, generator_of
from .checks import paired_values, read_samples
from .kernel_choice import HasKernelDraws, unbatched_kernels
from .result import ROUNDING, KernelTestResult, TestDecision, exceedance

LINEAR_TIME = "two-sample test, linear time"
SIGNS = 2**20  # random signs drawn at once


class LinearTimeTwoSampleTest:
    """An exact two-sample test of two streams, in constant memory where both have the same pace.

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
        self,
        kernel: Kernel | HasKernelDraws,
        kernel_choice: str = "given",
        num_permutations: int = 1000,
        seed: int | None = None,
    ) -> None:
        if not isinstance(kernel, Kernel | HasKernelDraws):
            raise TypeError(f"kernel must be one gpytorch.kernels.Kernel or a posterior, not {kernel!r}.")
        self.kernel = copy.deepcopy(unbatched_kernels(kernel)[0]).double().requires_grad_(False)
        self.kernel_choice, self.num_pairs = kernel_choice, 0
        check_count("num_permutations", num_permutations)
        self._generator = generator_of(seed)
        self._sums, self._size = torch.zeros(1 + num_permutations, dtype=torch.float64), 0.0
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
        B, places = len(self._sums) - 1, 2 ** torch.arange(8, dtype=torch.uint8)
        for part in h.split(max(1, SIGNS // B)):
            signs = torch.randint(256, (len(part), -(-B // 8), 1), generator=self._generator, dtype=torch.uint8)
            positive = (signs & places).ne(0).flatten(1)[:, :B].double()
            total = part.sum()
            self._sums[0] += total
            self._sums[1:] += 2.0 * (part @ positive) - total
        self._size += float(h.abs().sum())
        self.num_pairs += len(h)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of points of each stream in the statistic."""
        return 2 * self.num_pairs, 2 * self.num_pairs

    def result(self) -> KernelTestResult:
        """The result for all points so far, at least two pairs."""
        kernels = (self.kernel,)
        return self.decision().result(KernelTestResult, LINEAR_TIME, kernels, self.kernel_choice, sizes=self.sizes)

    def decision(self) -> TestDecision:
        """The rank of the statistic among those with random signs."""
        if self.num_pairs < 2:
            raise ValueError(
                f"The linear-time test needs at least 4 points of each sample, but it has {2 * self.num_pairs}."
            )
        T = self._sums / self.num_pairs
        p = exceedance(T, ROUNDING * self._size / self.num_pairs)
        return TestDecision(float(T[0]), float(p), T[1:], T[:1], p.reshape(1), 0, f"{len(T) - 1} random sign flips")
