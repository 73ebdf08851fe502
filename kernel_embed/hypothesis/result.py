"""What a test answers: statistic, p-value, kernel, null distribution, one line, a picture."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from gpytorch.kernels import Kernel
from scipy.stats import gamma
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, NoiseKind
from ..embeddings.witness import Witness
from ..plots.bayesian import array, axes


@dataclasses.dataclass(frozen=True, repr=False)
class KernelTestResult:
    """The answer of a test.

    Attributes:
        test: what was tested.
        statistic: its value on the data. With one kernel that of the statistic's definition; with several the largest
            of their standardised statistics.
        pvalue: the p-value; by permutations (1 + #{T_b ≥ T}) / (1 + B), which is never 0.
        kernel: the kernel, of several the one whose statistic stands out most; a pair (of x, of y) where there are two.
        null: the statistic under the null hypothesis, ``(B,)``: permuted, or drawn from the approximation.
        kernels: all kernels (or pairs) that took part.
        statistics: the statistic of each by its definition, ``(J,)``.
        pvalues: the p-value of each by itself, ``(J,)``; only ``pvalue`` accounts for their number.
        kernel_choice: how the kernels were chosen.
        null_kind: how the null distribution was found.
        sizes: the number of points.
    """

    test: str
    statistic: float
    pvalue: float
    kernel: Any
    null: Tensor
    kernels: tuple[Any, ...]
    statistics: Tensor
    pvalues: Tensor
    kernel_choice: str
    null_kind: str
    sizes: tuple[int, ...]

    def summary(self) -> str:
        """One line: what was tested, p, the statistic, the kernel."""
        sizes = ", ".join(map(str, self.sizes))
        return (
            f"{self.test} (n = {sizes}): p = {self.pvalue:.4g}, statistic {self.statistic:.4g}, "
            f"kernel {describe(self.kernel)} ({self.kernel_choice}), {self.null_kind}"
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        return f"<{self.summary()}>"

    def plot(self, ax: Any = None) -> Any:
        """The null distribution as a histogram, and the statistic in it."""
        ax = axes(ax)
        ax.hist(array(self.null), bins=40, color="0.75")
        ax.axvline(self.statistic, color="tab:red", label=f"observed, p = {self.pvalue:.3g}")
        ax.set_xlabel("statistic")
        ax.set_ylabel("permutations" if "perm" in self.null_kind else "draws")
        ax.set_title(self.test, fontsize=10)
        ax.legend(fontsize=8)
        return ax


@dataclasses.dataclass(frozen=True, repr=False)
class SamplesTestResult(KernelTestResult):
    """The answer of a test of samples, which knows where they differ.

    Attributes:
        samples: the samples.
    """

    samples: tuple[Tensor, ...] = ()

    def witness(self, noise: float | NoiseKind = "central-limit") -> Witness:
        """μ_P − μ_Q of the first two samples with ``kernel``, a function with a credible band: where they differ."""
        return Witness(BayesianMeanEmbedding(self.kernel, noise=noise), *self.samples[:2])


def describe(kernel: Any) -> str:
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
    name = type(kernel).__name__.removesuffix("Kernel")
    parts = [m for m in kernel.modules() if isinstance(m, Kernel) and m.has_lengthscale]
    if len(parts) != 1:
        return name
    values = parts[0].lengthscale.detach().flatten()
    if values.numel() == 1:
        return f"{name}(ℓ = {values.item():.3g})"
    return f"{name}(ℓ = {values.min().item():.3g} … {values.max().item():.3g})"


def gamma_draws(mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
    """Draws of the gamma distribution with this mean and variance, for pictures: ``(num_draws,)``."""
    uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64)
    shape, scale = float(mean**2 / variance), float(variance / mean)
    return torch.as_tensor(gamma.ppf(uniform.numpy(), shape, scale=scale))


def gamma_pvalue(statistic: float, mean: Tensor, variance: Tensor) -> float:
    """P(gamma ≥ statistic), at least the smallest number above 0, and 1 where the statistic cannot vary."""
    if not (float(mean) > 0 and float(variance) > 0):
        return 1.0
    shape, scale = float(mean**2 / variance), float(variance / mean)
    return max(float(gamma.sf(statistic, shape, scale=scale)), torch.finfo(torch.float64).tiny)
