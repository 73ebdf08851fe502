r"""Quadratic forms of the targets: the Gram matrix L of a target kernel, as products with other matrices.

For real targets and the kernel of distances, centered by the weights :math:`p_i` of the rows,

.. math::
    L = (I - \mathbf 1 p^\top) D (I - p \mathbf 1^\top), \quad D_{ij} = -\tfrac12 \lvert y_i - y_j \rvert
    \quad = \quad G \Delta G^\top, \qquad G_{ij} = \mathbf 1\{y_i \le t_j\} - F(t_j),

with :math:`t_j` the targets in order, :math:`\Delta_j = t_{j+1} - t_j` and F their distribution function. A product
with G or its transpose is a cumulative sum, so :math:`L B` costs O(n) for each column of B and L is never formed.
"""

from __future__ import annotations

import abc
from typing import Any

import torch
from torch import Tensor

from .factorization import blocks_of


class QuadraticForm(abc.ABC):
    """A symmetric n × n matrix L."""

    @abc.abstractmethod
    def apply(self, B: Tensor) -> Tensor:
        """L B for ``B`` of shape ``(*batch, n, m)``, without a gradient."""

    @abc.abstractmethod
    def diagonal(self) -> Tensor:
        """diag L, ``(n,)``."""

    def times(self, B: Tensor) -> Tensor:
        """L B, differentiable in B."""
        product: Tensor = _Product.apply(B, self)
        return product

    def sandwiched(self, C: Tensor) -> Tensor:
        """CLC for symmetric ``C`` as one triangle of (LC)ᵀC: half of the work where L times a vector costs O(n)."""
        M = torch.empty_like(C)
        for block in blocks_of(C.shape[-1]):
            M[..., block, block.start :] = self.apply(C[..., block]).mT @ C[..., block.start :]
        return mirrored_(M)

    def sandwiched_diagonal(self, C: Tensor) -> Tensor:
        """diag CLC, without an n × n product."""
        columns = (C[..., block] for block in blocks_of(C.shape[-1]))
        return torch.cat([(c * self.apply(c)).sum(-2) for c in columns], dim=-1)

    @staticmethod
    def pull_back_(C: Tensor, M: Tensor, a: Tensor, g: Tensor) -> Tensor:
        """C diag(a) M + M diag(a) C + C diag(g) C for M = CLC, which is overwritten by it.

        A block of rows of the result needs only that block of M and those after it.
        """
        a, g = a.unsqueeze(-2), g.unsqueeze(-2)
        for block in blocks_of(C.shape[-1]):
            c = C[..., block, :]
            rows = (M[..., block, :] * a + c * g) @ C[..., block.start :, :].mT
            rows += (c * a) @ M[..., block.start :, :].mT
            M[..., block, block.start :] = rows
        return mirrored_(M)


class DenseForm(QuadraticForm):
    """L stored as a matrix, ``(n, n)``."""

    def __init__(self, L: Tensor) -> None:
        self.L = L

    def apply(self, B: Tensor) -> Tensor:
        """L B, one matrix product."""
        return self.L @ B

    def diagonal(self) -> Tensor:
        """diag L, ``(n,)``."""
        return self.L.diagonal()

    @classmethod
    def centered(cls, L: Tensor, weights: Tensor | None = None) -> DenseForm:
        """(I − 1pᵀ) L (I − p1ᵀ) for weights p of the rows that sum to 1; equal ones by default."""
        p = torch.full_like(L[0], 1.0 / len(L)) if weights is None else weights / weights.sum()
        row = L @ p
        return cls(L - row - row.unsqueeze(-1) + row @ p)


class DistanceForm(QuadraticForm):
    """The centered Gram matrix of −½|y − y′| for real targets ``y`` ``(n,)``, by cumulative sums in their order.

    ``weights`` are those of the rows in the distribution that L is centered by; equal by default.
    """

    def __init__(self, y: Tensor, weights: Tensor | None = None) -> None:
        ordered, self._order = y.sort()
        p = torch.full_like(y, 1.0 / len(y)) if weights is None else weights / weights.sum()
        self._rank = torch.empty_like(self._order)
        self._rank[self._order] = torch.arange(len(y), device=y.device)
        self._gaps = ordered.diff()
        # Above the last target F = 1: that column of G is zero, and has no gap.
        self._F = p[self._order].cumsum(0)[:-1]

    def apply(self, B: Tensor) -> Tensor:
        """L B = G Δ (Gᵀ B), where G X = (1 − F)ᵀX − Σ_{j: t_j < y_i} X_j: both sums run upward."""
        F = self._F.unsqueeze(-1)
        sums = B[..., self._order, :].cumsum(-2)
        X = sums[..., :-1, :] - F * sums[..., -1:, :]
        X *= self._gaps.unsqueeze(-1)
        mean = (1.0 - F).mT @ X
        # In the order of the targets: the smallest has none below it.
        sums[..., :1, :] = mean
        torch.sub(mean, X.cumsum(-2), out=sums[..., 1:, :])
        return sums[..., self._rank, :]

    def diagonal(self) -> Tensor:
        """L_ii = Σ_j Δ_j G_ij²: below y_i that is F², above it (1 − F)²."""
        left = torch.nn.functional.pad((self._gaps * self._F.square()).cumsum(0), (1, 0))
        right = torch.nn.functional.pad((self._gaps * (1.0 - self._F).square()).flip(0).cumsum(0), (1, 0)).flip(0)
        return (left + right)[self._rank]


def mirrored_(upper: Tensor) -> Tensor:
    """The symmetric matrix with this upper triangle; its lower triangle is overwritten."""
    for block in blocks_of(upper.shape[-1]):
        upper[..., block.stop :, block] = upper[..., block, block.stop :].mT
    return upper


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, B: Tensor, form: QuadraticForm) -> Tensor:
        """L B."""
        ctx.form = form
        return form.apply(B)

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor, None]:
        """∂q/∂B = L G."""
        return ctx.form.times(G), None
