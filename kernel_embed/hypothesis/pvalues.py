r"""One exact p-value from the statistics of several kernels.

Let :math:`T_{jb}` be the statistic of kernel j under relabeling b, with b = 0 as observed. Under the null hypothesis
the columns are exchangeable, and so are the values of any function that treats all columns alike. The null distribution
of each kernel is close to a gamma distribution whose mean m_j and variance v_j follow from the Gram matrix without its
labels. With :math:`a_j = m_j^2 / v_j` the square root of the statistic is nearly normal, which puts all kernels on one
scale:

.. math::  z_{jb} = 2 \sqrt{a_j} \Big( \sqrt{T_{jb} / m_j} - 1 + \frac1{8 a_j} \Big), \qquad
           S_b = \max_j z_{jb}, \qquad p = \frac{1 + \#\{b \ge 1 : S_b \ge S_0\}}{1 + B} .

Without the root, kernels of long lengthscale, whose null distributions are skewed, would dominate the maximum.

For a single kernel the gamma distribution itself gives an approximate p-value without permutations.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from .result import Result, TestedKernel

Null = Literal["permutation", "gamma"]
"""How the null distribution is found."""
ROUNDING = 1e-12
"""Statistics closer than this, relative to the kernel values, are ties: they differ by the order of summation."""
S_ROUNDING = 1e-9
"""The same for S."""


class NullScale(NamedTuple):
    """Moments of the null distribution of J statistics.

    Attributes:
        mean: m, ``(J,)``, of the biased statistic.
        variance: v, ``(J,)``.
        size: magnitude of the kernel values in the statistic, ``(J,)``.
        shift: 0 for biased statistics, 1 for unbiased ones, which are smaller by m.
    """

    mean: Tensor
    variance: Tensor
    size: Tensor
    shift: float = 0.0


class TestDecision(NamedTuple):
    """The p-value of J kernels together; the fields are those of :class:`KernelTestResult`.

    ``best`` is the index of the kernel with the largest standardized statistic.
    """

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


def by_permutations(T: Tensor, scale: NullScale) -> TestDecision:
    """The decision from the statistics ``(J, 1 + B)`` of J kernels, the observed ones first.

    Example:
        >>> T = torch.tensor([[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0]], dtype=torch.float64)
        >>> one = torch.ones(2, dtype=torch.float64)
        >>> decision = by_permutations(T, NullScale(2.0 * one, one, one))
        >>> decision.pvalue, decision.best
        (0.25, 0)
    """
    unit = rounding_unit(T, scale)
    pvalues = exceedance(T, unit)
    z = standardized(T, scale, unit)
    S, p = T[0], pvalues[0]  # one kernel keeps its own scale
    if T.shape[0] > 1:
        S = z.amax(dim=0)
        S = torch.where(torch.isfinite(S), S, 0.0)  # no kernel varies: all labelings are ties
        p = exceedance(S, S_ROUNDING * (1.0 + S[0].abs()))
    best, kind = int(z[:, 0].argmax()), f"{T.shape[1] - 1} permutations"
    return TestDecision(float(S[0]), float(p), S[1:], T[:, 0], pvalues, best, kind)


def rounding_unit(T: Tensor, scale: NullScale) -> Tensor:
    """The difference below which statistics of each kernel are ties, ``(J, 1)``."""
    return (ROUNDING * scale.size.to(T)).clamp_min(torch.finfo(T.dtype).tiny).unsqueeze(-1)


def standardized(T: Tensor, scale: NullScale, unit: Tensor) -> Tensor:
    """z for every kernel and labeling; −∞ where a statistic varies by no more than its rounding ``unit``."""
    mean, variance = scale.mean.to(T).unsqueeze(-1), scale.variance.to(T).unsqueeze(-1)
    varies = (mean > unit) & (variance > unit.square())
    a = torch.where(varies, mean.square() / torch.where(varies, variance, 1.0), 1.0)
    ratio = (T + scale.shift * mean) / torch.where(varies, mean, 1.0)
    return torch.where(varies, 2.0 * a.sqrt() * (ratio.clamp_min(0.0).sqrt() - 1.0) + 0.25 * a.rsqrt(), -torch.inf)


def exceedance(S: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
    """p = (1 + #{b ≥ 1 : S_b ≥ S_0}) / (1 + B) along the last dimension, never 0."""
    return (S[..., :1] - tolerance <= S).double().mean(dim=-1)


def by_gamma(
    statistic: Tensor, mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator
) -> TestDecision:
    """The decision from a gamma distribution with this mean and variance; ``num_draws`` of it are for plots.

    Example:
        >>> one = torch.tensor(1.0, dtype=torch.float64)
        >>> decision = by_gamma(3.0 * one, one, one, 5, torch.Generator().manual_seed(0))
        >>> round(decision.pvalue, 4)                                       # exp(−3): shape and scale are 1
        0.0498
    """
    from scipy.stats import gamma

    p = gamma_pvalue(float(statistic), mean, variance)
    draws = torch.zeros(num_draws, dtype=torch.float64)
    if p < 1.0:
        uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64)
        draws = torch.as_tensor(gamma.ppf(uniform.numpy(), *_shape_and_scale(mean, variance)))
    pvalues = torch.tensor([p], dtype=torch.float64)
    return TestDecision(float(statistic), p, draws, statistic.reshape(1), pvalues, 0, "gamma approximation")


def gamma_pvalue(statistic: float, mean: Tensor, variance: Tensor) -> float:
    """P(gamma ≥ statistic), never 0, and 1 where the statistic cannot vary."""
    from scipy.stats import gamma

    if not (float(mean) > 0 and float(variance) > 0):
        return 1.0
    return max(float(gamma.sf(statistic, *_shape_and_scale(mean, variance))), torch.finfo(torch.float64).tiny)


def _shape_and_scale(mean: Tensor, variance: Tensor) -> tuple[float, float, float]:
    """Shape, location 0 and scale, as SciPy takes them."""
    return float(mean**2 / variance), 0.0, float(variance / mean)


def check_gamma(num_kernels: int, unbiased: bool) -> None:
    """Raise unless there is one kernel (or pair) and the biased statistic, which has a known gamma distribution."""
    if num_kernels > 1 or unbiased:
        got = f"{num_kernels} kernels" if num_kernels > 1 else "the unbiased statistic"
        raise ValueError(
            f"null='gamma' needs one kernel and the biased statistic, not {got}. "
            "Pass a kernel or kernel='best', or use null='permutation'."
        )
