r"""Slopes of sums and products of kernels by the rules of differentiation, and of any other kernel by autograd.

:func:`expand` gives k(x_i, x_j) and a function from ω to :math:`\sum_j \omega_{ij} \partial_x k(x_i, x_j)`, all that
sums, products and scales need from their parts:

.. math::  \omega \cdot \partial (k + l) = \omega \cdot \partial k + \omega \cdot \partial l, \qquad
           \omega \cdot \partial (k l) = (\omega l) \cdot \partial k + (\omega k) \cdot \partial l .
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...kernels.gram import by_gpytorch, cross_evaluation, gram_diagonal
from ...kernels.initialization import check_initialized
from ...kernels.profiles import Radial, radial_of
from ...kernels.radial import square_distances
from ...kernels.structure import Algebra, Node, fold

CDIST_ROWS = 26
"""Above 25 rows torch.cdist takes its matrix-product form, the one that can be differentiated twice."""


class Expansion(NamedTuple):
    """k(x_i, x_j), and the function from ω to Σ_j ω_ij ∂k(x_i, x_j)/∂x_i, of shape ``(*batch, t, d)``."""

    values: Tensor
    slope: Callable[[Tensor], Tensor]


def expand(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    """k and its slope between ``x1`` and ``x2``; ``mask`` marks the pairs of one point with itself."""
    expansion = fold(kernel, _Rules(x1, x2, mask))
    return _by_autograd(kernel, x1, x2, mask) if expansion is None else expansion


class _Rules(Algebra[Expansion]):
    """The rules of differentiation; a part of a sum or product without rules is differentiated by autograd."""

    def __init__(self, x1: Tensor, x2: Tensor, mask: Tensor | None) -> None:
        self.x1, self.x2, self.mask = x1, x2, mask

    def leaf(self, node: Node) -> Expansion | None:
        """A radial kernel by its profile."""
        radial = radial_of(node.kernel)
        if radial is None:
            return None
        inner = _radial_expansion(radial, node.select(self.x1), node.select(self.x2))
        return self._on_all_columns(inner, node.columns)

    def unknown(self, node: Node) -> Expansion:
        """Any other kernel by autograd."""
        x1, x2 = node.select_inputs(self.x1), node.select_inputs(self.x2)
        return self._on_all_columns(_by_autograd(node.kernel, x1, x2, self.mask), node.inputs)

    def scale(self, node: Node, part: Expansion) -> Expansion:
        """σ²k and σ² ω·∂k."""
        factor = node.factor[..., None, None]
        return Expansion(factor * part.values, lambda weight: factor * part.slope(weight))

    def add(self, node: Node, parts: Sequence[Expansion]) -> Expansion:
        """ω·∂(k + l) = ω·∂k + ω·∂l."""
        values = functools.reduce(operator.add, (part.values for part in parts))
        return Expansion(values, lambda weight: _add([part.slope(weight.expand_as(part.values)) for part in parts]))

    def multiply(self, node: Node, parts: Sequence[Expansion]) -> Expansion:
        """ω·∂(kl) = (ωl)·∂k + (ωk)·∂l."""
        values = functools.reduce(operator.mul, (part.values for part in parts))
        return Expansion(values, functools.partial(_product_slope, parts))

    def _on_all_columns(self, inner: Expansion, columns: Tensor | None) -> Expansion:
        """The slope in the original input of what is computed from some of its columns."""
        width = self.x1.shape[-1]
        if columns is None:
            return inner

        def slope(weight: Tensor) -> Tensor:
            part = inner.slope(weight)
            return part.new_zeros(*part.shape[:-1], width).index_add(-1, columns, part)

        return Expansion(inner.values, slope)


def _add(terms: list[Tensor]) -> Tensor:
    return functools.reduce(operator.add, terms)


def _product_slope(parts: Sequence[Expansion], weight: Tensor) -> Tensor:
    """(∏ k_p)' = Σ_p k_p' ∏_{q≠p} k_q."""
    terms = []
    for position, part in enumerate(parts):
        others = (other.values for i, other in enumerate(parts) if i != position)
        terms.append(part.slope(functools.reduce(operator.mul, others, weight)))
    return _add(terms)


def _radial_expansion(radial: Radial, x1: Tensor, x2: Tensor) -> Expansion:
    centre = x2.detach().mean(dim=-2, keepdim=True)
    z1, z2 = radial.metric.scaled(x1 - centre), radial.metric.scaled(x2 - centre)
    square = square_distances(z1, z2)
    # Rounding may leave a small distance between coinciding points; for a cusp that would be a slope of its own.
    rounding = 64.0 * torch.finfo(square.dtype).eps * (1.0 + z2.detach().square().sum(-1).amax(-1)[..., None, None])
    phi, slope = radial.profile.value_and_slope(torch.where(square > rounding, square, 0.0))

    def weighted(weight: Tensor) -> Tensor:
        M = 2.0 * weight * slope
        return radial.metric.slope(M.sum(-1, keepdim=True) * z1 - M @ z2)

    return Expansion(phi, weighted)


def _by_autograd(kernel: Kernel, x1: Tensor, x2: Tensor, mask: Tensor | None) -> Expansion:
    check_initialized(kernel)
    inputs = x1.clone()
    if not inputs.requires_grad:
        inputs.requires_grad_(True)
    batch, t, n = x1.shape[:-2], x1.shape[-2], x2.shape[-2]
    # Rows more than needed: GPyTorch treats equal inputs apart, with distances that cannot be differentiated at zero.
    extra = max(1, CDIST_ROWS - n) + (1 if n + max(1, CDIST_ROWS - n) == t else 0)
    longer = torch.cat([x2, x2[..., -1:, :].expand(*x2.shape[:-2], extra, x2.shape[-1])], dim=-2)
    with cross_evaluation(kernel):
        K = by_gpytorch(kernel, inputs, longer.expand(*batch, *longer.shape[-2:]))[..., :n]
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
