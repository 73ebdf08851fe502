r"""Slopes of sums and products of kernels by the rules of differentiation, and of any other kernel by autograd.

:func:`expand` gives k(x_i, x_j) and a function from ω to :math:`\sum_j \omega_{ij} \partial_x k(x_i, x_j)`, the one
thing that sums, products and scales need of their parts:

.. math::  \omega \cdot \partial (k + l) = \omega \cdot \partial k + \omega \cdot \partial l, \qquad
           \omega \cdot \partial (k l) = (\omega l) \cdot \partial k + (\omega k) \cdot \partial l .
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from ...kernels.gram import cross_evaluation, gram_diagonal

CDIST_ROWS = 26
"""Above 25 rows torch.cdist takes its matrix-product form, the one that can be differentiated twice."""


class Expansion(NamedTuple):
    """k(x_i, x_j), and the function from ω to Σ_j ω_ij ∂k(x_i, x_j)/∂x_i, of shape ``(*batch, t, d)``."""

    values: Tensor
    slope: Callable[[Tensor], Tensor]


def expand(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    """k and its slope between ``x1`` and ``x2``; ``mask`` marks the pairs of one point with itself."""
    if not _is_understood(kernel):
        return _by_autograd(kernel, x1, x2, mask)
    columns = kernel.active_dims
    if columns is None:
        return _understood(kernel, x1, x2, mask)
    inner = _understood(kernel, x1.index_select(-1, columns), x2.index_select(-1, columns), mask)
    width = x1.shape[-1]

    def slope(weight: Tensor) -> Tensor:
        part = inner.slope(weight)
        return part.new_zeros(*part.shape[:-1], width).index_add(-1, columns, part)

    return Expansion(inner.values, slope)


def _is_understood(kernel: Kernel) -> bool:
    if type(kernel) is ScaleKernel:
        return _is_understood(kernel.base_kernel)
    return type(kernel) in (RBFKernel, MaternKernel, RQKernel, AdditiveKernel, ProductKernel)


def _understood(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    """As :func:`expand`, for inputs that are the active columns already."""
    if isinstance(kernel, ScaleKernel):
        base = _understood(kernel.base_kernel, x1, x2, mask)
        scale: Tensor = kernel.outputscale[..., None, None]
        return Expansion(scale * base.values, lambda weight: scale * base.slope(weight))
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        parts = [expand(part, x1, x2, mask) for part in kernel.kernels]
        if isinstance(kernel, AdditiveKernel):
            values = functools.reduce(operator.add, (part.values for part in parts))
            return Expansion(values, lambda weight: _add(part.slope(weight.expand_as(part.values)) for part in parts))
        values = functools.reduce(operator.mul, (part.values for part in parts))
        return Expansion(values, functools.partial(_product_slope, parts))
    return _radial_expansion(kernel, x1, x2)


def _add(terms: object) -> Tensor:
    total: Tensor = functools.reduce(operator.add, terms)  # type: ignore[call-overload]
    return total


def _product_slope(parts: list[Expansion], weight: Tensor) -> Tensor:
    """(∏ k_p)' = Σ_p k_p' ∏_{q≠p} k_q."""
    terms = []
    for position, part in enumerate(parts):
        others = (other.values for i, other in enumerate(parts) if i != position)
        terms.append(part.slope(functools.reduce(operator.mul, others, weight)))
    return _add(terms)


def _radial_expansion(kernel: Kernel, x1: Tensor, x2: Tensor) -> Expansion:
    lengthscale: Tensor = kernel.lengthscale
    centre = x2.detach().mean(dim=-2, keepdim=True)
    z1, z2 = (x1 - centre) / lengthscale, (x2 - centre) / lengthscale
    square = z1.square().sum(-1, keepdim=True) + z2.square().sum(-1).unsqueeze(-2) - 2.0 * z1 @ z2.mT
    # Rounding may leave a small distance between coinciding points; for a cusp that would be a slope of its own.
    rounding = 64.0 * torch.finfo(square.dtype).eps * (1.0 + z2.detach().square().sum(-1).amax(-1)[..., None, None])
    phi, slope = _radial_values(kernel, torch.where(square > rounding, square, 0.0))

    def weighted(weight: Tensor) -> Tensor:
        M = 2.0 * weight * slope
        return (M.sum(-1, keepdim=True) * z1 - M @ z2) / lengthscale

    return Expansion(phi, weighted)


def _radial_values(kernel: Kernel, s: Tensor) -> tuple[Tensor, Tensor]:
    """φ(s) and φ'(s)."""
    if isinstance(kernel, RBFKernel):
        phi = torch.exp(-0.5 * s)
        return phi, -0.5 * phi
    if isinstance(kernel, RQKernel):
        alpha: Tensor = kernel.alpha
        alpha = alpha[..., None] if alpha.dim() == s.dim() - 1 else alpha[..., None, None]
        base = 1.0 + s / (2.0 * alpha)
        phi = base.pow(-alpha)
        return phi, -0.5 * phi / base
    nu = kernel.nu
    positive = s > 0
    a = torch.where(positive, (2.0 * nu * torch.where(positive, s, 1.0)).sqrt(), 0.0)
    decay = torch.exp(-a)
    if nu == 0.5:
        return decay, torch.where(positive, -0.5 * decay / torch.where(positive, a, 1.0), 0.0)
    if nu == 1.5:
        return (1.0 + a) * decay, -1.5 * decay
    return (1.0 + a + a.square() / 3.0) * decay, (-5.0 / 6.0) * (1.0 + a) * decay


def _by_autograd(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    inputs = x1.clone()
    if not inputs.requires_grad:
        inputs.requires_grad_(True)
    batch, t, n = x1.shape[:-2], x1.shape[-2], x2.shape[-2]
    # Rows more than needed: GPyTorch treats equal inputs apart, with distances that cannot be differentiated at zero.
    extra = max(1, CDIST_ROWS - n) + (1 if n + max(1, CDIST_ROWS - n) == t else 0)
    longer = torch.cat([x2, x2[..., -1:, :].expand(*x2.shape[:-2], extra, x2.shape[-1])], dim=-2)
    with cross_evaluation(kernel):
        K = _dense(kernel(inputs, longer.expand(*batch, *longer.shape[-2:])))[..., :n]
    if mask is not None:
        K = torch.where(mask, gram_diagonal(kernel, inputs).unsqueeze(-1), K)

    def slope(weight: Tensor) -> Tensor:
        # ∂₁k(x, x) = ½ ∇k(x, x) for a pair of one point with itself
        halved = weight if mask is None else torch.where(mask, 0.5 * weight, weight)
        if not K.requires_grad:
            return torch.zeros_like(inputs)
        (gradient,) = torch.autograd.grad(
            K, inputs, halved.expand_as(K), create_graph=True, allow_unused=True, materialize_grads=True
        )
        return gradient

    return Expansion(K, slope)


def _dense(matrix: object) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.to_dense()  # type: ignore[attr-defined]
