r"""The linear-time statistic, for streams: every point is seen once and forgotten.

From consecutive pairs of points, z_i = (x_{2i−1}, x_{2i}, y_{2i−1}, y_{2i}),

.. math::
    h(z_i) &= k(x_{2i-1}, x_{2i}) + k(y_{2i-1}, y_{2i}) - k(x_{2i-1}, y_{2i}) - k(x_{2i}, y_{2i-1}) \\
    \mathrm{MMD}_l^2 &= \frac1M \sum_{i=1}^M h(z_i) .

Where P = Q, x_{2i} and y_{2i} may change places, and that turns h(z_i) into −h(z_i). So the statistic is as likely as
any

.. math::  \frac1M \sum_i s_{ib}\, h(z_i), \qquad s_{ib} = \pm 1 \text{ by fair coins}, \quad b = 1, \dots, B,

and its rank among them is an exact p-value. B sums are kept, whatever the length of the stream. A kernel that was
learned without regard to which of two points is x and which y, such as by the evidence of the pooled sample, leaves it
exact.
"""

from __future__ import annotations

import copy

import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike
from torch import Tensor

from ..kernels.gram import cross_evaluation
from ..kernels.structure import check_columns
from .checks import check_gram, check_permutations, check_sample, generator_of
from .kernel_choice import HasKernelDraws, given_kernels
from .pvalues import ROUNDING, Verdict, exceedance
from .result import KernelTestResult

NAME = "two-sample test, linear time"
COINS = 2**20
"""Signs that are drawn at once."""


class LinearTimeTwoSampleTest:
    """A two-sample test of two streams, in memory that does not grow where both go at one pace.

    Points are used in pairs; those that wait for a partner are kept until it comes. The p-value is exact. Learn
    the kernel on other data than are tested, such as the beginning of the stream, or without looking at which stream a
    point comes from.

    Args:
        kernel: any GPyTorch kernel; a batch of kernels, or a posterior, is averaged over its draws.
        kernel_choice: how it was chosen, for the summary.
        num_permutations: B, the number of ways in which signs are flipped. Every pair of points costs B additions.
        seed: of the signs.

    Raises:
        TypeError: if ``kernel`` is neither one kernel nor a posterior.
        ValueError: if ``num_permutations`` is below 1.

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

    def __init__(
        self,
        kernel: Kernel | HasKernelDraws,
        kernel_choice: str = "given",
        num_permutations: int = 1000,
        seed: int | None = None,
    ) -> None:
        if not isinstance(kernel, Kernel | HasKernelDraws):
            raise TypeError(
                f"Expected one gpytorch.kernels.Kernel, or a posterior, got {kernel}. Pass RBFKernel(), say."
            )
        self.kernel = copy.deepcopy(given_kernels(kernel)[0]).double().requires_grad_(False)
        self.kernel_choice = kernel_choice
        check_permutations(num_permutations)
        self.num_pairs = 0
        self._generator = generator_of(seed)
        self._sums = torch.zeros(1 + num_permutations, dtype=torch.float64)
        self._size = 0.0
        self._waiting: list[Tensor | None] = [None, None]

    def update(self, x: Tensor | ArrayLike, y: Tensor | ArrayLike) -> LinearTimeTwoSampleTest:
        """Take the next points of both streams (any numbers of them); returns the test.

        Raises:
            TypeError: if a sample is not made of real numbers.
            ValueError: if the samples have different columns, or others than the kernel takes, or values that are not
                finite.
        """
        streams = []
        for name, new, old in zip("xy", (x, y), self._waiting, strict=True):
            new = check_sample(new, name, minimum=1)
            check_columns(self.kernel, new.shape[1])
            streams.append(new if old is None else torch.cat([old, new]))
        if streams[0].shape[1] != streams[1].shape[1]:
            raise ValueError(
                f"Expected samples of one width, got {streams[0].shape[1]} and {streams[1].shape[1]}. "
                "Give both the same columns."
            )
        used = 2 * (min(map(len, streams)) // 2)
        self._waiting = [stream[used:].clone() for stream in streams]
        if used:
            self._add(self.terms(streams[0][:used], streams[1][:used]))
        return self

    def terms(self, x: Tensor, y: Tensor) -> Tensor:
        """h(z_i) of consecutive pairs of rows: ``(M,)``.

        Raises:
            ValueError: if a kernel value is not finite.
        """
        x1, x2, y1, y2 = x[0::2], x[1::2], y[0::2], y[1::2]
        with cross_evaluation(self.kernel):
            values = [self.kernel(a, b, diag=True) for a, b in ((x1, x2), (y1, y2), (x1, y2), (x2, y1))]
        same_x, same_y, cross1, cross2 = (check_gram(value, self.kernel) for value in values)
        return same_x + same_y - cross1 - cross2

    def _add(self, h: Tensor) -> None:
        """Σ_i s_ib h_i, b = 0 as observed; each byte that is drawn holds the signs of eight b."""
        h = h.detach().cpu()
        B = len(self._sums) - 1
        places = 2 ** torch.arange(8, dtype=torch.uint8)
        for some in h.split(max(1, COINS // B)):
            coins = torch.randint(256, (len(some), -(-B // 8), 1), generator=self._generator, dtype=torch.uint8)
            heads = (coins & places).ne(0).flatten(1)[:, :B].double()
            total = some.sum()
            self._sums[0] += total
            self._sums[1:] += 2.0 * (some @ heads) - total
        self._size += float(h.abs().sum())
        self.num_pairs += len(h)

    @property
    def sizes(self) -> tuple[int, int]:
        """The points of each stream that are in the statistic."""
        return 2 * self.num_pairs, 2 * self.num_pairs

    def result(self) -> KernelTestResult:
        """The answer for the points seen so far."""
        return self.verdict().on((self.kernel,), self.kernel_choice, NAME, self.sizes, KernelTestResult)

    def verdict(self) -> Verdict:
        """The statistic of the points seen so far among those with flipped signs."""
        if self.num_pairs < 2:
            raise ValueError(
                f"Expected at least 4 points of each sample, 2 pairs, got {self.num_pairs} pairs. "
                "Call update(x, y) with more points first."
            )
        T = self._sums / self.num_pairs
        p = exceedance(T, ROUNDING * self._size / self.num_pairs)
        return Verdict(float(T[0]), float(p), T[1:], T[:1], p.reshape(1), 0, f"{len(T) - 1} flips of signs")
