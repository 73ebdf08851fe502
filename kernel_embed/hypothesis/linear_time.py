r"""The linear-time statistic, for streams: every point is seen once and forgotten.

From consecutive pairs of points, z_i = (x_{2i−1}, x_{2i}, y_{2i−1}, y_{2i}),

.. math::
    h(z_i) &= k(x_{2i-1}, x_{2i}) + k(y_{2i-1}, y_{2i}) - k(x_{2i-1}, y_{2i}) - k(x_{2i}, y_{2i-1}) \\
    \mathrm{MMD}_l^2 &= \frac1M \sum_{i=1}^M h(z_i), \qquad
    \sqrt M\, \mathrm{MMD}_l^2 / \operatorname{sd}(h) \to \mathcal N(0, 1) \text{ if } P = Q .
"""

from __future__ import annotations

import copy
import math

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.gram import cross_evaluation
from ..kernels.structure import check_columns
from .checks import check_gram, check_sample
from .kernel_choice import HasKernelDraws, given_kernels
from .result import KernelTestResult
from .verdict import Verdict

NAME = "two-sample test, linear time"


class LinearTimeTwoSampleTest:
    """A two-sample test of two streams, in memory that does not grow.

    Points are used in pairs; one that waits for its partner is kept until the next call. Learn the kernel on other
    data than are tested, such as the beginning of the stream.

    Args:
        kernel: any GPyTorch kernel; a batch of kernels, or a posterior, is averaged over its draws.
        kernel_choice: how it was chosen, for the summary.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> generator = torch.Generator().manual_seed(0)
        >>> test = LinearTimeTwoSampleTest(RBFKernel())
        >>> for _ in range(10):
        ...     x, y = torch.randn(2, 500, 1, generator=generator)
        ...     _ = test.update(x, y + 0.5)
        >>> test.result().pvalue < 0.01
        True
    """

    def __init__(self, kernel: Kernel | HasKernelDraws, kernel_choice: str = "given") -> None:
        if not isinstance(kernel, Kernel | HasKernelDraws):
            raise TypeError(f"Expected one gpytorch.kernels.Kernel, or a posterior, got {kernel}.")
        self.kernel = copy.deepcopy(given_kernels(kernel)[0]).double().requires_grad_(False)
        self.kernel_choice = kernel_choice
        self.num_pairs = 0
        self._mean = self._squares = 0.0
        self._waiting: list[Tensor | None] = [None, None]

    def update(self, x: Tensor | ArrayLike, y: Tensor | ArrayLike) -> LinearTimeTwoSampleTest:
        """Take the next points of both streams (any numbers of them); returns the test."""
        streams = []
        for name, new, old in zip("xy", (x, y), self._waiting, strict=True):
            new = check_sample(new, name, minimum=1)
            check_columns(self.kernel, new.shape[1])
            streams.append(new if old is None else torch.cat([old, new]))
        if streams[0].shape[1] != streams[1].shape[1]:
            raise ValueError(f"Expected samples of one width, got {streams[0].shape[1]} and {streams[1].shape[1]}.")
        used = 2 * (min(map(len, streams)) // 2)
        self._waiting = [stream[used:].clone() for stream in streams]
        if used:
            self._add(self.terms(streams[0][:used], streams[1][:used]))
        return self

    def terms(self, x: Tensor, y: Tensor) -> Tensor:
        """h(z_i) of consecutive pairs of rows: ``(M,)``."""
        x1, x2, y1, y2 = x[0::2], x[1::2], y[0::2], y[1::2]
        with cross_evaluation(self.kernel):
            values = [self.kernel(a, b, diag=True) for a, b in ((x1, x2), (y1, y2), (x1, y2), (x2, y1))]
        same_x, same_y, cross1, cross2 = (check_gram(value, self.kernel) for value in values)
        return same_x + same_y - cross1 - cross2

    def _add(self, h: Tensor) -> None:
        """Means and squares of two parts together (Chan, Golub and LeVeque)."""
        count, mean = len(h), float(h.mean())
        total = self.num_pairs + count
        step = mean - self._mean
        self._squares += float((h - mean).square().sum()) + step**2 * self.num_pairs * count / total
        self._mean += step * count / total
        self.num_pairs = total

    @property
    def sizes(self) -> tuple[int, int]:
        """The points of each stream that are in the statistic."""
        return 2 * self.num_pairs, 2 * self.num_pairs

    def result(self) -> KernelTestResult:
        """The answer for the points seen so far."""
        return self.verdict().on((self.kernel,), self.kernel_choice, NAME, self.sizes, KernelTestResult)

    def verdict(self) -> Verdict:
        """The statistic of the points seen so far against its normal approximation."""
        if self.num_pairs < 2:
            raise ValueError(f"Expected at least 4 points of each sample, 2 pairs, got {self.num_pairs} pairs.")
        deviation = math.sqrt(self._squares / (self.num_pairs - 1) / self.num_pairs)
        if deviation > 0:
            p = 0.5 * math.erfc(self._mean / deviation / math.sqrt(2.0))
        else:  # all terms are equal, which they are for constant samples alone
            p = 1.0 if self._mean <= 0 else 0.5 ** min(self.num_pairs, 1000)
        null = deviation * torch.special.ndtri((torch.arange(1000, dtype=torch.float64) + 0.5) / 1000)
        p = max(p, torch.finfo(torch.float64).tiny)
        statistics, pvalues = torch.tensor([[self._mean], [p]], dtype=torch.float64)
        return Verdict(self._mean, p, null, statistics, pvalues, 0, "normal approximation")
