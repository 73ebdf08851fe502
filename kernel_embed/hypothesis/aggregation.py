r"""One p-value from several kernels, exact whatever they are.

Let :math:`T_{jb}` be the statistic of kernel j under relabelling b, b = 0 as observed. Under the null hypothesis the
columns are exchangeable, and so are the values of any function that treats all columns alike. Each kernel's statistics
are put on one scale by their own mean and deviation over all columns, and a column keeps the largest:

.. math::  S_b = \max_j \frac{T_{jb} - \bar T_j}{\operatorname{sd}(T_j)}, \qquad
           p = \frac{\#\{b : S_b \ge S_0\}}{1 + B} = \frac{1 + \#\{b \ge 1 : S_b \ge S_0\}}{1 + B} .
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

ROUNDING = 1e-12
"""Statistics closer than this, relative to the size of the kernel, are equal: sums in another order differ by less."""


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


def aggregate(T: Tensor, size: Tensor) -> Aggregate:
    """From the statistics ``(J, 1 + B)`` of J kernels, which are of this ``size`` (``(J,)``), to one test.

    Example:
        >>> T = torch.tensor([[9.0, 1.0, 2.0, 3.0], [1.0, 2.0, 1.0, 2.0]], dtype=torch.float64)
        >>> answer = aggregate(T, torch.ones(2))
        >>> answer.pvalue, answer.best
        (0.25, 0)
    """
    # Rounding to a grid makes statistics equal that differ in the order of their sums only.
    unit = (ROUNDING * size.to(T)).clamp_min(torch.finfo(T.dtype).tiny).unsqueeze(-1)
    pvalues = exceedance(T, unit)
    deviation = T.std(dim=-1, keepdim=True)
    flat = deviation <= unit
    z = torch.where(flat, 0.0, (T - T.mean(dim=-1, keepdim=True)) / torch.where(flat, 1.0, deviation))
    best = int(z[:, 0].argmax())
    if T.shape[0] == 1:
        return Aggregate(T[0], float(pvalues[0]), pvalues, 0)
    S = z.amax(dim=0)
    tolerance = float((unit / torch.where(flat, torch.inf, deviation)).amax())
    return Aggregate(S, float(exceedance(S, tolerance)), pvalues, best)
