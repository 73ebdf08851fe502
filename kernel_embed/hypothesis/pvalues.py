r"""From statistics to a verdict: one p-value from several kernels, exact whatever they are.

Let :math:`T_{jb}` be the statistic of kernel j under relabeling b, b = 0 as observed. Under the null hypothesis the
columns are exchangeable, and so are the values of any function that treats all columns alike. To compare kernels their
statistics are put on one scale. The null distribution of each is near a gamma distribution with a mean m_j and a
variance v_j that the Gram matrix tells without its labels; with :math:`a_j = m_j^2 / v_j` its root is nearly normal,

.. math::  z_{jb} = 2 \sqrt{a_j} \Big( \sqrt{T_{jb} / m_j} - 1 + \frac1{8 a_j} \Big), \qquad
           S_b = \max_j z_{jb}, \qquad p = \frac{1 + \#\{b \ge 1 : S_b \ge S_0\}}{1 + B} .

Without the root the kernels of long lengthscale, whose null distributions are skew, would crowd out the others.

The gamma distribution itself, instead of permutations, makes an approximate verdict for one kernel.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from .result import Result, TestedKernel

Null = Literal["permutation", "gamma"]
"""How the null distribution is found."""
ROUNDING = 1e-12
"""Statistics closer than this, relative to the size of the kernel, are equal: sums in another order differ by less."""
S_ROUNDING = 1e-9
"""The same for S."""


class NullScale(NamedTuple):
    """What is known of the null distribution of J statistics before any permutation.

    Attributes:
        mean: m, ``(J,)``, of the biased statistic.
        variance: v, ``(J,)``.
        size: of the kernel values that go into it, ``(J,)``.
        shift: 0 for biased statistics, 1 for unbiased ones, which are smaller by m.
    """

    mean: Tensor
    variance: Tensor
    size: Tensor
    shift: float = 0.0


class Verdict(NamedTuple):
    """What the statistics of J kernels say together; the fields are those of :class:`KernelTestResult`.

    ``best`` is the number of the kernel whose statistic stands out most.
    """

    statistic: float
    pvalue: float
    null: Tensor
    statistics: Tensor
    pvalues: Tensor
    best: int
    null_kind: str

    def on(
        self,
        kernels: tuple[TestedKernel, ...],
        kernel_choice: str,
        test: str,
        sizes: tuple[int, ...],
        kind: type[Result],
    ) -> Result:
        """The answer, of this kind, that the verdict on these kernels is."""
        return kind(
            test=test,
            statistic=self.statistic,
            pvalue=self.pvalue,
            kernel=kernels[self.best],
            null=self.null,
            kernels=kernels,
            statistics=self.statistics,
            pvalues=self.pvalues,
            kernel_choice=kernel_choice,
            null_kind=self.null_kind,
            sizes=sizes,
        )


def by_permutations(T: Tensor, scale: NullScale) -> Verdict:
    """From the statistics ``(J, 1 + B)`` of J kernels, the observed ones first, to a verdict.

    Example:
        >>> T = torch.tensor([[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0]], dtype=torch.float64)
        >>> one = torch.ones(2, dtype=torch.float64)
        >>> verdict = by_permutations(T, NullScale(2.0 * one, one, one))
        >>> verdict.pvalue, verdict.best
        (0.25, 0)
    """
    # Sums in another order differ by their rounding, and count as equal.
    unit = (ROUNDING * scale.size.to(T)).clamp_min(torch.finfo(T.dtype).tiny).unsqueeze(-1)
    pvalues = exceedance(T, unit)
    z = standardized(T, scale, unit)
    best = int(z[:, 0].argmax())
    S, p = T[0], pvalues[0]  # one kernel speaks for itself
    if T.shape[0] > 1:
        S = z.amax(dim=0)
        S = torch.where(torch.isfinite(S), S, 0.0)  # where nothing varies every labeling is like every other
        p = exceedance(S, S_ROUNDING * (1.0 + S[0].abs()))
    return Verdict(float(S[0]), float(p), S[1:], T[:, 0], pvalues, best, f"{T.shape[1] - 1} permutations")


def standardized(T: Tensor, scale: NullScale, unit: Tensor) -> Tensor:
    """z for every kernel and labeling, −∞ where a statistic varies by no more than its rounding ``unit``."""
    mean, variance = scale.mean.to(T).unsqueeze(-1), scale.variance.to(T).unsqueeze(-1)
    varies = (mean > unit) & (variance > unit.square())
    a = torch.where(varies, mean.square() / torch.where(varies, variance, 1.0), 1.0)
    ratio = (T + scale.shift * mean) / torch.where(varies, mean, 1.0)
    return torch.where(varies, 2.0 * a.sqrt() * (ratio.clamp_min(0.0).sqrt() - 1.0) + 0.25 * a.rsqrt(), -torch.inf)


def exceedance(S: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
    """p = (1 + #{b ≥ 1 : S_b ≥ S_0}) / (1 + B) along the last dimension, never 0."""
    return (S[..., :1] - tolerance <= S).double().mean(dim=-1)


def by_gamma(statistic: Tensor, mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator) -> Verdict:
    """Against a gamma distribution with the mean and the variance of the limit; ``num_draws`` of it are for pictures.

    Example:
        >>> one = torch.tensor(1.0, dtype=torch.float64)
        >>> verdict = by_gamma(3.0 * one, one, one, 5, torch.Generator().manual_seed(0))
        >>> round(verdict.pvalue, 4)                                        # exp(−3): shape and scale are 1
        0.0498
    """
    p = gamma_pvalue(float(statistic), mean, variance)
    draws = gamma_draws(mean, variance, num_draws, generator) if p < 1.0 else torch.zeros(num_draws).double()
    pvalues = torch.tensor([p], dtype=torch.float64)
    return Verdict(float(statistic), p, draws, statistic.reshape(1), pvalues, 0, "gamma approximation")


def check_gamma(num_kernels: int, unbiased: bool, what: str = "kernel", several: str = "kernels") -> None:
    """Raise unless there is one kernel and the biased statistic, of which alone the gamma distribution is known."""
    if num_kernels > 1 or unbiased:
        raise ValueError(
            f"Expected one {what} and the biased statistic for null='gamma', got "
            f"{f'{num_kernels} {several}' if num_kernels > 1 else 'the unbiased one'}. "
            "Give a kernel, or kernel='best'; several kernels need permutations."
        )


def gamma_draws(mean: Tensor, variance: Tensor, num_draws: int, generator: torch.Generator) -> Tensor:
    """Draws of the gamma distribution with this mean and variance, for pictures: ``(num_draws,)``."""
    from scipy.stats import gamma

    uniform = torch.rand(num_draws, generator=generator, dtype=torch.float64)
    shape, scale = float(mean**2 / variance), float(variance / mean)
    return torch.as_tensor(gamma.ppf(uniform.numpy(), shape, scale=scale))


def gamma_pvalue(statistic: float, mean: Tensor, variance: Tensor) -> float:
    """P(gamma ≥ statistic), at least the smallest number above 0, and 1 where the statistic cannot vary."""
    from scipy.stats import gamma

    if not (float(mean) > 0 and float(variance) > 0):
        return 1.0
    shape, scale = float(mean**2 / variance), float(variance / mean)
    return max(float(gamma.sf(statistic, shape, scale=scale)), torch.finfo(torch.float64).tiny)
