r"""One p-value from several kernels, exact whatever they are.

Let :math:`T_{jb}` be the statistic of kernel j under relabelling b, b = 0 as observed. Under the null hypothesis the
columns are exchangeable, and so are the values of any function that treats all columns alike. To compare kernels their
statistics are put on one scale. The null distribution of each is near a gamma distribution with a mean m_j and a
variance v_j that the Gram matrix tells without its labels; with :math:`a_j = m_j^2 / v_j` its root is nearly normal,

.. math::  z_{jb} = 2 \sqrt{a_j} \Big( \sqrt{T_{jb} / m_j} - 1 + \frac1{8 a_j} \Big), \qquad
           S_b = \max_j z_{jb}, \qquad p = \frac{1 + \#\{b \ge 1 : S_b \ge S_0\}}{1 + B} .

Without the root the kernels of long lengthscale, whose null distributions are skew, would crowd out the others.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

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


class Aggregate(NamedTuple):
    """One test out of several.

    Attributes:
        statistics: S, ``(1 + B,)``, the observed one first.
        pvalue: of S.
        pvalues: of each kernel by itself, ``(J,)``.
        best: the kernel whose statistic stands out most.
    """

    statistics: Tensor
    pvalue: float
    pvalues: Tensor
    best: int


def exceedance(S: Tensor, tolerance: Tensor | float = 0.0) -> Tensor:
    """p = (1 + #{b ≥ 1 : S_b ≥ S_0}) / (1 + B) along the last dimension, never 0."""
    return (S[..., :1] - tolerance <= S).double().mean(dim=-1)


def aggregate(T: Tensor, scale: NullScale) -> Aggregate:
    """From the statistics ``(J, 1 + B)`` of J kernels to one test.

    Example:
        >>> T = torch.tensor([[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0]], dtype=torch.float64)
        >>> one = torch.ones(2, dtype=torch.float64)
        >>> answer = aggregate(T, NullScale(2.0 * one, one, one))
        >>> answer.pvalue, answer.best
        (0.25, 0)
    """
    # Sums in another order differ by their rounding, and count as equal.
    unit = (ROUNDING * scale.size.to(T)).clamp_min(torch.finfo(T.dtype).tiny).unsqueeze(-1)
    pvalues = exceedance(T, unit)
    mean, variance = scale.mean.to(T).unsqueeze(-1), scale.variance.to(T).unsqueeze(-1)
    varies = (mean > unit) & (variance > unit.square())
    a = torch.where(varies, mean.square() / torch.where(varies, variance, 1.0), 1.0)
    ratio = (T + scale.shift * mean) / torch.where(varies, mean, 1.0)
    z = torch.where(varies, 2.0 * a.sqrt() * (ratio.clamp_min(0.0).sqrt() - 1.0) + 0.25 * a.rsqrt(), -torch.inf)
    best = int(z[:, 0].argmax())
    if T.shape[0] == 1:
        return Aggregate(T[0], float(pvalues[0]), pvalues, 0)
    S = z.amax(dim=0)
    S = torch.where(torch.isfinite(S), S, 0.0)  # where nothing varies every labelling is like every other
    return Aggregate(S, float(exceedance(S, S_ROUNDING * (1.0 + S[0].abs()))), pvalues, best)
