r"""Squared distances of near pairs of points far from the center, where a matrix product loses digits; Laplace kernels.

.. math::  -\tfrac12 s_{ij} = z_i^\top z'_j - \tfrac12 \lVert z_i \rVert^2 - \tfrac12 \lVert z'_j \rVert^2

is one product, but its rounding error is that of the norms, :math:`\epsilon \lVert z \rVert^2`, however near the points
are: for two clusters 10⁸ lengthscales apart it is of size 1 inside each of them. Pairs with
:math:`s_{ij} < 10^{-4} (\lVert z_i \rVert^2 + \lVert z'_j \rVert^2)` are therefore recomputed if the norms are large
enough to matter: all pairs inside a ball by one product about its center, recursively within the ball, and isolated
pairs by subtraction. For usual data the only cost is a check of 2n norms.

The gradient needs the same sums of differences, :math:`\sum_j M_{ij} (z_i - z'_j)`, and uses the same balls.

**Laplace kernel.** The Gram matrix has a gradient in closed form:

.. math::  K_{ij} = \exp\Big(-\sum_c \lvert z_{ic} - z'_{jc} \rvert\Big), \qquad z = x / \ell

With :math:`G = \partial q / \partial K` and :math:`M = G \circ K`,

.. math::  \partial q / \partial z_{ic} = -\sum_j M_{ij} \operatorname{sign}(z_{ic} - z'_{jc}) ,

and where :math:`z' = z` both sides are one sum over :math:`M + M^\top`.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor

NEAR = 1e-4
"""Squared distances below this part of the squared norms have lost more than four of their digits."""
CHECKED_NORM = 1e5
"""Squared norms, in lengthscales, from which the error exceeds 10⁵ rounding units of a kernel value of one."""
FEW_PAIRS = 2**14
BALL_PAIRS = 64
"""Number of near pairs of one point from which a ball is faster than subtraction."""
MAX_BALLS = 64
PAIRS_AT_ONCE = 2**18

Place = tuple[Tensor, ...]


@dataclasses.dataclass
class NearPairs:
    """The recomputed pairs of one matrix: balls, outer ones first, and isolated pairs.

    A ball has its rows, its columns and the row that is its center.
    """

    balls: list[tuple[Tensor, Tensor, Tensor]] = dataclasses.field(default_factory=list)
    outliers: list[tuple[Tensor, Tensor]] = dataclasses.field(default_factory=list)


def refine_(
    halves: Tensor, z1: Tensor, z2: Tensor, largest: float, shift: Tensor | None, rough: bool
) -> list[NearPairs]:
    """Recompute near pairs in place; returns the pairs of each matrix of the batch."""
    part = _suspect_part(largest, rough, halves.dtype)
    if not math.isfinite(largest):
        raise NanError(
            "Some points are too many lengthscales apart, or a lengthscale is not a number, so that squared distances "
            "are not finite. Rescale x, remove the outliers, or use a longer lengthscale."
        )
    if part == 0.0:
        return []
    batch = halves.shape[:-2]
    refined = []
    for index in range(math.prod(batch)):
        matrix, a, b = (_element(t, batch, index) for t in (halves, z1, z2))
        refiner = _Refiner(None if shift is None else shift.expand(batch).reshape(-1)[index], rough)
        refiner.matrix_(matrix, a, b, part, tuple(torch.arange(z.shape[-2], device=z.device) for z in (a, b)))
        refined.append(refiner.pairs)
    # Coinciding points do not affect sums of differences; only large norms do.
    return refined if part == NEAR else []


def _suspect_part(largest: float, rough: bool, dtype: torch.dtype) -> float:
    """The fraction of the norms below which a squared distance is recomputed; 0 for none."""
    if 2.0 * largest > CHECKED_NORM:
        return NEAR
    return 1e4 * torch.finfo(dtype).eps if rough and largest > 0.0 else 0.0


def _element(t: Tensor, batch: torch.Size, index: int) -> Tensor:
    """Matrix number ``index`` of a batch, as a view."""
    t = t.expand(*batch, *t.shape[-2:])
    return t[tuple(int(i) for i in torch.unravel_index(torch.tensor(index), batch))] if batch else t


class _Refiner:
    """Recomputes the near pairs of one matrix; ``place`` is the position of a block in it."""

    def __init__(self, shift: Tensor | None, rough: bool) -> None:
        self.shift, self.rough, self.pairs = shift, rough, NearPairs()

    def matrix_(self, halves: Tensor, z1: Tensor, z2: Tensor, part: float, place: Place) -> None:
        """Balls if there are many near pairs, then subtraction."""
        near = halves > _limit(z1, z2, self.shift, part)
        pairs = near.nonzero()
        if pairs.shape[0] > FEW_PAIRS:
            self._balls_(halves, near, z1, z2, part, place)
            pairs = near.nonzero()
        for some in pairs.split(PAIRS_AT_ONCE):
            i, j = some.unbind(-1)
            difference = (z1[i] - z2[j]).square().sum(-1).mul_(-0.5)
            halves[i, j] = difference if self.shift is None else difference + self.shift
            self.pairs.outliers.append((place[0][i], place[1][j]))

    def _balls_(self, halves: Tensor, near: Tensor, z1: Tensor, z2: Tensor, part: float, place: Place) -> None:
        """Recompute pairs inside balls about the points with most neighbors; ``near`` keeps the other pairs."""
        norms = z1.square().sum(-1)
        counts = near.count_nonzero(dim=-1)
        for _ in range(MAX_BALLS):
            first = int(counts.argmax())
            if counts[first] < BALL_PAIRS:
                return
            center = z1[first]
            # Near columns of this row have s < part·(‖zᵢ‖² + ‖zⱼ‖²), and norms within a few percent of its own.
            radius = 2.5 * part * norms[first]
            inside1, inside2 = ((z - center).square().sum(-1) <= radius for z in (z1, z2))
            inside1[first], inside2[near[first]] = True, True
            rows, columns = inside1.nonzero().squeeze(-1), inside2.nonzero().squeeze(-1)
            a, b = z1[rows] - center, z2[columns] - center
            inner = place[0][rows], place[1][columns]
            self.pairs.balls.append((*inner, place[0][first]))
            norms1, norms2 = (z.square().sum(-1, keepdim=True).mul_(0.5) for z in (a, b))
            block = (a @ b.mT).sub_(norms1).sub_(norms2.mT)
            if self.shift is not None:
                block.add_(self.shift)
            again = _suspect_part(max(float(norms1.max()), float(norms2.max())), self.rough, block.dtype)
            if again > 0.0 and part == NEAR:
                self.matrix_(block, a, b, again, inner)
            halves[rows.unsqueeze(-1), columns] = block
            counts[rows] -= near[rows.unsqueeze(-1), columns].count_nonzero(dim=-1)
            near[rows.unsqueeze(-1), columns] = False


def _limit(z1: Tensor, z2: Tensor, shift: Tensor | None, part: float) -> Tensor:
    """The lower limit of −s/2 + shift for near pairs."""
    norms1, norms2 = (z.square().sum(-1) for z in (z1, z2))
    if part == NEAR:
        limit = -0.5 * part * (norms1.unsqueeze(-1) + norms2)
    else:  # points that coincide up to rounding: one number suffices and saves a matrix
        limit = -part * torch.maximum(norms1.amax(), norms2.amax())
    return limit if shift is None else limit + shift


def weighted_differences(M: Tensor, z1: Tensor, z2: Tensor, near: list[NearPairs]) -> tuple[Tensor, Tensor]:
    """Σ_j M_ij (z1_i − z2_j) and Σ_i M_ij (z2_j − z1_i), with ``M`` overwritten where pairs are ``near``."""
    batch = M.shape[:-2]
    g1, g2 = (z.new_zeros(*batch, *z.shape[-2:]) for z in (z1, z2))
    for index, pairs in enumerate(near):
        matrix, a, b, to1, to2 = (_element(t, batch, index) for t in (M, z1, z2, g1, g2))
        _add_near_(matrix, a, b, to1, to2, pairs)
    g1 += M.sum(-1, keepdim=True) * z1 - M @ z2
    g2 += M.sum(-2).unsqueeze(-1) * z2 - M.mT @ z1
    return g1, g2


def inner_differences(h: Tensor, z1: Tensor, z2: Tensor, near: list[NearPairs]) -> Tensor:
    """h_iᵀ(z1_i − z2_j)."""
    H = (h * z1).sum(-1, keepdim=True) - h @ z2.mT
    for index, pairs in enumerate(near):
        matrix, h_, a, b = (_element(t, H.shape[:-2], index) for t in (H, h, z1, z2))
        for rows, columns, center in pairs.balls:
            inside = h_[rows]
            own = (inside * (a[rows] - a[center])).sum(-1, keepdim=True)
            matrix[rows.unsqueeze(-1), columns] = own - inside @ (b[columns] - a[center]).mT
        for i, j in pairs.outliers:
            matrix[i, j] = (h_[i] * (a[i] - b[j])).sum(-1)
    return H


def _add_near_(M: Tensor, z1: Tensor, z2: Tensor, g1: Tensor, g2: Tensor, pairs: NearPairs) -> None:
    """Add the differences of near pairs and remove their weights from ``M``: inner balls before outer ones."""
    for i, j in pairs.outliers:
        weighted = M[i, j].unsqueeze(-1) * (z1[i] - z2[j])
        g1.index_add_(0, i, weighted)
        g2.index_add_(0, j, weighted, alpha=-1.0)
        M[i, j] = 0.0
    for rows, columns, center in reversed(pairs.balls):
        block = M[rows.unsqueeze(-1), columns]
        a, b = z1[rows] - z1[center], z2[columns] - z1[center]
        g1.index_add_(0, rows, block.sum(-1, keepdim=True) * a - block @ b)
        g2.index_add_(0, columns, block.sum(-2).unsqueeze(-1) * b - block.mT @ a)
        M[rows.unsqueeze(-1), columns] = 0.0


def laplace_gram(z1: Tensor, z2: Tensor | None = None) -> Tensor:
    """The matrix exp(−‖z1_i − z2_j‖₁), differentiable in ``z1`` and ``z2``; ``z2=None`` means ``z1``."""
    matrix: Tensor = _LaplaceGram.apply(z1, z2)
    return matrix


class _LaplaceGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None) -> Tensor:
        """K = exp(−D)."""
        D = torch.cdist(z1, z1 if z2 is None else z2, p=1.0)
        K = D.neg().exp_()
        ctx.save_for_backward(z1, z2, D, K)
        return K

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """∂q/∂z = −Σ_j M_ij sign(z_i − z'_j)."""
        z1, z2, D, K = ctx.saved_tensors
        if torch.is_grad_enabled():
            slopes = [_plain_laplace_slope(-G * K, z1, z1 if z2 is None else z2, dim) for dim in (-1, -2)]
            return (slopes[0] + slopes[1], None) if z2 is None else (slopes[0], slopes[1])
        M = (G * K).neg_()
        if z2 is None:
            return _slope(M + M.mT, z1, z1, D), None
        first = _slope(M, z1, z2, D) if ctx.needs_input_grad[0] else None
        second = _slope(M.mT, z2, z1, D.mT) if ctx.needs_input_grad[1] else None
        return first, second


def _plain_laplace_slope(M: Tensor, z1: Tensor, z2: Tensor, dim: int) -> Tensor:
    """Σ_j M_ij sign(z1_i − z2_j), or Σ_i M_ij sign(z2_j − z1_i) for ``dim`` −2, differentiable in M."""
    signs = (
        torch.sign(a.unsqueeze(-1) - b.unsqueeze(-2)).detach()
        for a, b in zip(z1.unbind(-1), z2.unbind(-1), strict=True)
    )
    return torch.stack([(M * sign).sum(dim) if dim == -1 else -(M * sign).sum(dim) for sign in signs], dim=-1)


def _slope(M: Tensor, z1: Tensor, z2: Tensor, D: Tensor) -> Tensor:
    """Σ_j M_ij sign(z1_i − z2_j)."""
    slope: Tensor = torch.ops.aten._cdist_backward(
        M.contiguous(), z1.contiguous(), z2.contiguous(), 1.0, D.contiguous()
    )
    return slope


def plain_squares(z1: Tensor, z2: Tensor | None) -> Tensor:
    """‖z1_i − z2_j‖² in operations that autograd can differentiate any number of times; ``z2=None`` means ``z1``."""
    other = z1 if z2 is None else z2
    columns = zip(z1.unbind(-1), other.unbind(-1), strict=True)
    return torch.stack([(a.unsqueeze(-1) - b.unsqueeze(-2)).square() for a, b in columns]).sum(0)


def plain_differences(M: Tensor, z1: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor]:
    """Σ_j M_ij (z1_i − z2_j) and Σ_i M_ij (z2_j − z1_i), differentiable in all three."""
    other = z1 if z2 is None else z2
    gradient1 = M.sum(-1, keepdim=True) * z1 - M @ other
    gradient2 = M.sum(-2).unsqueeze(-1) * other - M.mT @ z1
    return gradient1, gradient2


def plain_slope(profile: Any, z1: Tensor, z2: Tensor | None) -> Tensor:
    """φ′(s), differentiable in the points."""
    if not hasattr(profile, "plain"):
        raise TypeError("This kernel has no second derivatives: its profile is a function without a plain formula.")
    slope: Tensor = profile.plain(plain_squares(z1, z2))[1]
    return slope
