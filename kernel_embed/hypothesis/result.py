"""Results of tests."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, NoiseKind
from ..embeddings.witness import Witness
from ..validation import check_count, check_features, check_share, generator_of
from .average_kernel import AverageKernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .differences import Differences

MAX_POINTS = 2000
"""The most points at which the difference of two samples is evaluated by default."""

TestedKernel: TypeAlias = Kernel | tuple[Kernel, Kernel]
"""The kernel of a test of samples, or the kernels of x and of y."""

Result = TypeVar("Result", bound="KernelTestResult")


@dataclasses.dataclass(frozen=True, repr=False)
class KernelTestResult:
    """The result of a test.

    Attributes:
        test: what was tested.
        statistic: its value on the data: with one kernel the statistic by its definition, with several the largest of
            their standardized statistics.
        pvalue: the p-value; by permutations (1 + #{T_b ≥ T}) / (1 + B), which is never 0.
        kernel: the kernel, of several the one with the largest standardized statistic; a pair (of x, of y) where there
            are two.
        null: the statistic under the null hypothesis, ``(B,)``: permuted, or drawn from the approximation.
        kernels: all kernels (or pairs) of the test.
        statistics: the statistic of each by its definition, ``(J,)``.
        pvalues: the p-value of each alone, ``(J,)``; only ``pvalue`` accounts for their number.
        kernel_choice: how the kernels were chosen.
        null_kind: how the null distribution was found.
        sizes: the numbers of points.

    Example:
        >>> import kernel_embed as ke
        >>> x = torch.randn(40, 1)
        >>> result = ke.independence_test(x, x.square(), kernel="median", num_permutations=99, seed=0)
        >>> result.null.shape, result.pvalue
        (torch.Size([99]), 0.01)
    """

    test: str
    statistic: float
    pvalue: float
    kernel: TestedKernel
    null: Tensor
    kernels: tuple[TestedKernel, ...]
    statistics: Tensor
    pvalues: Tensor
    kernel_choice: str
    null_kind: str
    sizes: tuple[int, ...]

    def summary(self) -> str:
        """One line: the test, its p-value, the statistic, the kernel."""
        return f"{self._headline()}, kernel {describe(self.kernel)} ({self.kernel_choice}), {self.null_kind}"

    def _headline(self) -> str:
        sizes = ", ".join(map(str, self.sizes))
        return f"{self.test} (n = {sizes}): p = {self.pvalue:.4g}, statistic {self.statistic:.4g}"

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<{self.summary()}>"

    def plot(self, ax: Axes | None = None) -> Axes:
        """A histogram of the null distribution, with the statistic."""
        from ..plots import plot_null

        ax = plot_null(self.null, self.statistic, label=f"observed, p = {self.pvalue:.3g}", ax=ax)
        ax.set_ylabel("permutations" if "perm" in self.null_kind else "draws")
        ax.set_title(self.test, fontsize=10)
        return ax


@dataclasses.dataclass(frozen=True, repr=False)
class SamplesTestResult(KernelTestResult):
    """The result of a test of samples, with methods that show where they differ.

    Attributes:
        samples: the samples.
        columns: the names of their columns.
        categorical: the indices of the categorical columns.

    Example:
        >>> import kernel_embed as ke
        >>> x, y = torch.randn(40, 1), 1 + torch.randn(40, 1)
        >>> result = ke.two_sample_test(x, y, kernel="median", num_permutations=99, seed=0)
        >>> result.witness()(torch.zeros(2, 1)).mean.shape
        torch.Size([2])
    """

    kernel: Kernel
    kernels: tuple[Kernel, ...]
    samples: tuple[Tensor, ...] = ()
    columns: tuple[str, ...] = ()
    categorical: tuple[int, ...] = ()

    def witness(self, noise: float | NoiseKind = "central-limit") -> Witness:
        """μ_P − μ_Q of the first two samples with ``kernel``, a function with a credible band."""
        return Witness(BayesianMeanEmbedding(self.kernel, noise=noise), *self.samples[:2])

    def differences(
        self, points: Tensor | None = None, level: float = 0.95, num_permutations: int = 1000, seed: int | None = 0
    ) -> Differences:
        """Where the first two samples differ: a simultaneous band for the witness, influential rows, and columns.

        Args:
            points: where to evaluate the witness, ``(t, d)``; by default the points of both samples, or 2,000 of them
                drawn at random.
            level: 1 − α of the band.
            num_permutations: B.
            seed: of the permutations and of that draw.

        Raises:
            TypeError: if ``num_permutations`` is not a whole number.
            ValueError: if ``level`` is not between 0 and 1, ``num_permutations`` is below 1, or ``points`` have other
                columns than the samples.

        Example:
            >>> from kernel_embed import two_sample_test
            >>> generator = torch.Generator().manual_seed(0)
            >>> x, y = torch.randn(2, 100, 2, generator=generator)
            >>> y[:, 1] += 1.0
            >>> differences = two_sample_test(x, y, seed=0).differences(num_permutations=200)
            >>> [column.pvalue < 0.05 for column in differences.columns], bool(differences.significant.any())
            ([False, True], True)
        """
        from .differences import find_differences

        check_share("level", level, "Give 0.95, which is usual.")
        check_count("num_permutations", num_permutations)
        generator = generator_of(seed)
        pooled = torch.cat(self.samples[:2])
        if points is None:
            points = pooled[torch.randperm(len(pooled), generator=generator)[:MAX_POINTS].to(pooled.device)]
        else:
            points = check_features(points, "points", width=pooled.shape[1]).to(pooled)
        return find_differences(self, points, level, num_permutations, generator)


def describe(kernel: TestedKernel) -> str:
    """A kernel in a few characters: its class, and its lengthscales where it has them.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = RBFKernel()
        >>> kernel.lengthscale = 2.0
        >>> describe(kernel)
        'RBF(ℓ = 2)'
    """
    if isinstance(kernel, tuple):
        return " × ".join(describe(one) for one in kernel)
    draws = list(kernel.kernels) if isinstance(kernel, AverageKernel) else [kernel]
    name = type(draws[0]).__name__.removesuffix("Kernel")
    parts = [m for draw in draws for m in draw.modules() if isinstance(m, Kernel) and m.has_lengthscale]
    if len(parts) != len(draws):
        return name
    values = torch.cat([part.lengthscale.detach().flatten() for part in parts])
    low, high = f"{values.min().item():.3g}", f"{values.max().item():.3g}"
    return f"{name}(ℓ = {low})" if values.numel() == 1 else f"{name}(ℓ = {low} … {high})"
