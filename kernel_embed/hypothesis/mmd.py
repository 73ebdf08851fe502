r"""How far samples are apart: the maximum mean discrepancy of two, and its like for several.

With :math:`\hat\mu_P, \hat\mu_Q` the empirical embeddings of x (n points) and y (m points),

.. math::
    \mathrm{MMD}_b^2 &= \lVert \hat\mu_P - \hat\mu_Q \rVert^2
        = \tfrac1{n^2} \sum_{ij} k(x_i, x_j) + \tfrac1{m^2} \sum_{ij} k(y_i, y_j) - \tfrac2{nm} \sum_{ij} k(x_i, y_j) \\
    \mathrm{MMD}_u^2 &= \tfrac1{n(n-1)} \sum_{i \ne j} k(x_i, x_j) + \tfrac1{m(m-1)} \sum_{i \ne j} k(y_i, y_j)
        - \tfrac2{nm} \sum_{ij} k(x_i, y_j) .

For k samples of n_g points with pooled embedding :math:`\hat\mu`, and equal to :math:`\frac{nm}{n+m} \mathrm{MMD}_b^2`
for two,

.. math::  T = \sum_g n_g \lVert \hat\mu_g - \hat\mu \rVert^2
           = \sum_g \tfrac1{n_g} e_g^\top K e_g - \tfrac1N 1^\top K 1 .
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from .aggregation import NullScale
from .relabellings import QuadraticForms, quadratic_forms

Statistic = Callable[[QuadraticForms, Sequence[int]], Tensor]
"""From what is known of K for every labelling, and the sizes of the samples, to T for every labelling."""


def squared_mmd(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """MMD_b² for every labelling: ``(*batch, C)``."""
    n, m = sizes
    first, second = forms.within.unbind(-2)
    cross = forms.to_all[..., 0, :] - first  # e₁ᵀK(1 − e₁)
    return first / n**2 + second / m**2 - 2.0 * cross / (n * m)


def unbiased_squared_mmd(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """MMD_u² for every labelling: ``(*batch, C)``."""
    n, m = sizes
    first, second = (forms.within - forms.diagonal).unbind(-2)
    cross = forms.to_all[..., 0, :] - forms.within[..., 0, :]
    return first / (n * (n - 1)) + second / (m * (m - 1)) - 2.0 * cross / (n * m)


def between_samples(forms: QuadraticForms, sizes: Sequence[int]) -> Tensor:
    """T = Σ_g n_g ‖μ̂_g − μ̂‖² for every labelling: ``(*batch, C)``."""
    counts = forms.within.new_tensor(sizes).unsqueeze(-1)
    return (forms.within / counts).sum(-2) - (forms.total / sum(sizes)).unsqueeze(-1)


def statistics(
    kernels: Sequence[Kernel], pooled: Tensor, E: Tensor, sizes: Sequence[int], formula: Statistic
) -> tuple[Tensor, NullScale]:
    """T ``(J, 1 + B)`` for J kernels, and the scale of each."""
    rows, scales = [], []
    for kernel in kernels:
        forms = quadratic_forms(kernel, pooled, E)
        rows.append(formula(forms, sizes))
        scales.append(torch.stack([*null_moments(forms, sizes, formula), (forms.trace / len(pooled)).abs()]))
    mean, variance, size = torch.stack(scales, dim=1)
    return torch.stack(rows), NullScale(mean, variance, size, shift=float(formula is unbiased_squared_mmd))


def null_moments(forms: QuadraticForms, sizes: Sequence[int], formula: Statistic) -> tuple[Tensor, Tensor]:
    r"""Mean and variance of the biased statistic if all samples are of one distribution, each ``batch``.

    With λ the eigenvalues of HKH/N, T of k samples tends to :math:`\sum_l \lambda_l \chi^2_{k-1}`.
    """
    N, freedom = sum(sizes), len(sizes) - 1
    factor = 1.0 if formula is between_samples else 1.0 / sizes[0] + 1.0 / sizes[1]
    mean = factor * freedom * (forms.trace - forms.total / N) / N
    return mean, 2.0 * factor**2 * freedom * forms.centred_square / N**2
