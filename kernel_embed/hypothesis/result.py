r"""Results of tests, and one exact p-value from the statistics of several kernels.

Let :math:`T_{jb}` be the statistic of kernel j under relabeling b, with b = 0 as observed. Under the null hypothesis
the columns are exchangeable. The null distribution of each kernel is close to a gamma distribution whose mean m_j and
variance v_j follow from the Gram matrix without its labels. With :math:`a_j = m_j^2 / v_j` the square root of the
statistic is nearly normal, which puts all kernels on one scale:

.. math::  z_{jb} = 2 \sqrt{a_j} \Big( \sqrt{T_{jb} / m_j} - 1 + \frac1{8 a_j} \Big), \qquad
           S_b = \max_j z_{jb}, \qquad p = \frac{1 + \#\{b \ge 1 : S_b \ge S_0\}}{1 + B} .

For a single kernel the gamma distribution itself gives an approximate p-value without permutations.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import BayesianMeanEmbedding, NoiseKind
from ..embeddings.witness import Witness
from ..validation import check_count, check_features, check_share, generator_of
from .kernel_choice import AverageKernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .differences import Differences

Null = Literal["permutation", "gamma"]  # how the null distribution is found
TestedKernel: TypeAlias = Kernel | tuple[Kernel, ...]
"""The kernel of a test of samples, or the kernels of x and of y; empty for a test with features of its own."""
Result = TypeVar("Result", bound="KernelTestResult")
MAX_POINTS = 2000  # the most points at which the difference of two samples is evaluated by default
ROUNDING = 1e-12  # statistics closer than this, relative to the kernel values, are ties
S_ROUNDING = 1e-9  # the same for S


@dataclasses.dataclass(frozen=True, repr=False)
class KernelTestResult:
    """The result of a test.

    Attributes:
        test: the name of the test.
        statistic: its value on the data; with several kernels the largest of their standardized statistics.
        pvalue: by permutations (1 + #{T_b ≥ T}) / (1 + B), never below 1 / (1 + B).
        kernel: the kernel with the largest standardized statistic; a pair (of x, of y) in tests of independence, empty
            where features take their place.
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
        >>> result.pvalue
        0.01
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
        line = f"{self._headline()}, kernel {describe(self.kernel)} ({self.kernel_choice}), {self.null_kind}"
        is_smallest = "perm" in self.null_kind and self.pvalue <= 1.0 / (1 + len(self.null)) * (1 + 1e-12)
        return f"{line} (p = 1/(B + 1), the smallest possible)" if is_smallest else line

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
    """The result of a test of samples.

    Attributes:
        samples: the samples.
        columns: the names of their columns.
        categorical: the indices of the categorical columns.

    Example:
        >>> import kernel_embed as ke
        >>> x, y = torch.randn(2, 40, 1)
        >>> result = ke.two_sample_test(x, y + 2.0, kernel="median", num_permutations=99, seed=0)
        >>> result.witness()(torch.tensor([[0.0], [2.0]])).mean.sign().tolist()
        [1.0, -1.0]
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
            points: where to evaluate the witness, ``(t, d)``; by default at most 2,000 points of both samples.
            level: the probability 1 − α with which the band holds at all points at once.
            num_permutations: B, the random relabelings from which the band is computed.
            seed: of the permutations and of the choice of points.

        Raises:
            TypeError: if ``num_permutations`` is not a whole number.
            ValueError: if ``level`` or ``num_permutations`` is out of range, or ``points`` have other columns.
        """
        from .differences import find_differences

        check_share("level", level, "Give 0.95, which is usual.")
        check_count("num_permutations", num_permutations)
        generator = generator_of(seed)
        pooled = torch.cat(self.samples[:2])
        if points is None:
            points = pooled[
                torch.randperm(len(pooled), generator=generator, device="cpu")[:MAX_POINTS].to(pooled.device)
            ]
        else:
            points = check_features(points, "points", width=pooled.shape[1]).to(pooled)
        return find_differences(self, points, level, num_permutations, generator)


def describe(kernel: TestedKernel) -> str:
    """A kernel in a few characters, such as ``RBF(ℓ = 2)``."""
    if isinstance(kernel, tuple):
        return " × ".join(describe(one) for one in kernel)
    draws = list(kernel.kernels) if isinstance(kernel, AverageKernel) else [kernel]
    name = type(draws[0]).__name__.removesuffix("Kernel")
    parts = [m for draw in draws for m in draw.modules() if isinstance(m, Kernel) and m.has_lengthscale]
    if len(parts) != len(draws):
        return name
    values = torch.cat([part.lengthscale.detach().flatten() for part in parts])
    low, high = f"{values.min().item():.3g}", f"{values.max().item():.3g}"
    return f"{name}(ℓ = {low})" if low == high else f"{name}(ℓ = {low} … {high})"


class NullScale(NamedTuple):
    """Moments of J biased statistics under the null hypothesis."""

    mean: Tensor
    variance: Tensor
    size: Tensor  # the magnitude of kernel values
    shift: float = 0.0  # 1 for unbiased statistics, which are smaller by the mean


class TestDecision(NamedTuple):
    """Fields of :class:`KernelTestResult`, and the index of the kernel with the largest standardized statistic."""

    statistic: float
    pvalue: float
    null: Tensor
    statistics: Tensor
    pvalues: Tensor
    best: int
    null_kind: str

    def result(
        self, kind: type[Result], test: str, kernels: tuple[TestedKernel, ...], kernel_choice: str, **fields: Any
    ) -> Result:
        """The result, of this ``kind``, for these kernels."""
        own = self._asdict()
        kernel = kernels[own.pop("best")]
        return kind(test=test, kernel=kernel, kernels=kernels, kernel_choice=kernel_choice, **own, **fields)


def decide(T: Tensor, scale: NullScale, null: Null, num_permutations: int, generator: torch.Generator) -> TestDecision:
    """The decision from the statistics ``(J, 1 + B)`` of J kernels, the observed ones first; B = 0 for ``"gamma"``."""
    if null == "permutation":
        return by_permutations(T, scale)
    if len(T) > 1 or scale.shift:
        problem = f"{len(T)} kernels" if len(T) > 1 else "the unbiased statistic"
        raise ValueError(
            f"null='gamma' needs one kernel and the biased statistic, not {problem}. "
            "Pass a kernel or kernel='best', or use null='permutation'."
        )
    return by_gamma(T[0, 0], scale.mean[0], scale.variance[0], num_permutations, generator)


def by_permutations(T: Tensor, scale: NullScale) -> TestDecision:
    """The decision from the statistics ``(J, 1 + B)`` of J kernels, the observed ones first."""
    z, unit = standardized(T, scale)
    pvalues = exceedance(T, unit)
    S, p = T[0], pvalues[0]  # one kernel keeps its own scale
    if T.shape[0] > 1:
        S = z.amax(dim=0)
        S = torch.where(torch.isfinite(S), S, 0.0)  # no kernel varies: all labelings are ties
        p = exceedance(S, S_ROUNDING * (1.0 + S[0].abs()))
    best, kind = int(z[:, 0].argmax()), f"{T.shape[1] - 1} permutations"
    return TestDecision(float(S[0]), float(p), S[1:], T[:, 0], pvalues, best, kind)


def standardized(T: Tensor, scale: NullScale) -> tuple[Tensor, Tensor]:
    """z of every kernel and labeling, −∞ where T does not vary, and the difference ``(J, 1)`` that counts as a tie."""
    unit = (ROUNDING * scale.size.to(T)).clamp_min(torch.finfo(T.dtype).tiny).unsqueeze(-1)
    mean, variance = scale.mean.to(T).unsqueeze(-1), scale.variance.to(T).unsqueeze(-1)
    varies = (mean > unit) & (variance > unit.square())
    a = torch.where(varies, mean.square() / torch.where(varies, variance, 1.0), 1.0)
    ratio = (T + scale.shift * mean) / torch.where(varies, mean, 1.0)
    z = 2.0 * a.sqrt() * (ratio.clamp_min(0.0).sqrt() - 1.0) + 0.25 * a.rsqrt()
    return torch.where(varies, z, -torch.inf), unit


def exceedance(S: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
    """p = (1 + #{b ≥ 1 : S_b ≥ S_0}) / (1 + B) along the last dimension, never 0."""
    return (S[..., :1] - tolerance <= S).double().mean(dim=-1)


def by_gamma(T: Tensor, mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator) -> TestDecision:
    """The decision from a gamma distribution with this mean and variance; ``num_draws`` of it are for plots."""
    from scipy.special import gammaincinv

    p = gamma_pvalue(float(T), mean, variance)
    draws = torch.zeros(num_draws, dtype=torch.float64, device="cpu")
    if p < 1.0:
        uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64, device="cpu")
        draws = torch.from_numpy(gammaincinv(float(mean**2 / variance), uniform.numpy()) * float(variance / mean))
    pvalues = torch.tensor([p], dtype=torch.float64, device="cpu")
    return TestDecision(float(T), p, draws, T.reshape(1), pvalues, 0, "gamma approximation")


def gamma_pvalue(statistic: float, mean: Tensor, variance: Tensor) -> float:
    """P(gamma ≥ statistic), never 0, and 1 where the statistic cannot vary."""
    from scipy.special import gammaincc

    if not (float(mean) > 0 and float(variance) > 0):
        return 1.0
    p = gammaincc(float(mean**2 / variance), max(statistic, 0.0) * float(mean / variance))
    return max(float(p), torch.finfo(torch.float64).tiny)
