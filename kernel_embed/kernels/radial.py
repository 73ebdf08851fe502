r"""Gram matrices of radial kernels with their gradient in closed form.

A radial kernel depends on the scaled points :math:`z = x / \ell` through the squared distance alone,

.. math::  K_{ij} = \varphi(s_{ij}), \qquad s_{ij} = \lVert z_i - z'_j \rVert^2 .

With :math:`G = \partial q / \partial K` and :math:`M = G \circ \varphi'(s)`, the chain rule gives

.. math::  \partial q / \partial z_i = 2 \Big( z_i \sum_j M_{ij} - \sum_j M_{ij} z'_j \Big) ,

one matrix product where autograd would keep four :math:`n \times n` temporaries. Autograd does the rest, z = x/ℓ.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor

from ..progress import warn_numerical
from ..validation import broadcast_shapes
from .distances import CHECKED_NORM, NearPairs, plain_differences, plain_slope, refine_, weighted_differences

LOST_SPACING = 1e-3
"""Spacing of neighboring numbers of a dtype, in lengthscales, beyond which points have lost too many digits."""

CACHED_ROWS, MOST_BLOCKS = 128, 8
"""Rows of a block in a gradient that stay in the cache of one thread; blocks for several, which wait after each."""

Profile = Callable[[Tensor], tuple[Tensor, "Tensor | None", float]]
"""From −s/2 (a fresh n × n' matrix, which may be overwritten) to φ(s), and φ'(s) as a matrix times a number.

``None`` stands for the matrix φ(s) itself, of which no second copy is kept.
"""


def radial_gram(z1: Tensor, z2: Tensor | None, profile: Profile, rough: bool = False) -> Tensor:
    """The matrix φ(‖z1_i − z2_j‖²), differentiable in ``z1`` and ``z2``; ``z2=None`` means ``z1``.

    ``rough`` means that φ is a function of the distance itself, so that a rounding error of 1e-16 in its square would
    become one of 1e-8: nearly coinciding points are then subtracted one by one.
    """
    warn_lost_digits(z1)
    # Distances do not change under a shift, but the rounding error of ‖z‖² + ‖z'‖² − 2zᵀz' does.
    centre = z1.detach().mean(dim=-2, keepdim=True)
    matrix: Tensor = _RadialGram.apply(z1 - centre, None if z2 is None else z2 - centre, profile, rough)
    return matrix


class _RadialGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None, profile: Profile, rough: bool) -> Tensor:
        """K = φ(s)."""
        halves, ctx.near = half_squares(z1, z2, rough=rough)
        K, slope, ctx.factor = profile(halves)
        ctx.profile = None if slope is None or slope.dim() == 0 else profile
        ctx.save_for_backward(z1, z2, K if slope is None else slope)
        return K

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """∂q/∂z from G = ∂q/∂K."""
        z1, z2, slope = ctx.saved_tensors
        if torch.is_grad_enabled():
            slope = ctx.factor * slope if ctx.profile is None else plain_slope(ctx.profile, z1, z2)
            return *_by_side(*plain_differences(2.0 * G * slope, z1, z2), z1, z2), None, None
        if ctx.near:
            # 2M = 2 G∘φ'(s)
            M = (G * slope).mul_(2.0 * ctx.factor)
            return *_near_gradients(M, z1, z2, ctx.near), None, None
        gradient1, gradient2, _ = _differences(G, slope, z1, z2, 2.0 * ctx.factor)
        return gradient1, gradient2, None, None


def square_distances(z1: Tensor, z2: Tensor | None) -> Tensor:
    """The matrix ‖z1_i − z2_j‖² itself, for profiles that are differentiated by autograd; ``z2=None`` means ``z1``."""
    return radial_gram(z1, z2, _identity)


def _identity(halves: Tensor) -> tuple[Tensor, Tensor, float]:
    """φ(s) = s and φ′ = 1."""
    return halves.mul_(-2.0), halves.new_ones(()), 1.0


def gaussian_gram(z1: Tensor, z2: Tensor | None, log_size: Tensor) -> Tensor:
    """exp(log_size − ½‖z1_i − z2_j‖²), differentiable in all three; ``log_size`` has shape ``batch``.

    The size enters the product that forms the exponents, and its gradient is a sum that is computed anyway: neither
    needs another pass over the matrix.
    """
    warn_lost_digits(z1)
    centre = z1.detach().mean(dim=-2, keepdim=True)
    shape = broadcast_shapes(z1.shape[:-2], log_size.shape)
    z1 = (z1 - centre).expand(*shape, *z1.shape[-2:])
    matrix: Tensor = _GaussianGram.apply(z1, None if z2 is None else z2 - centre, log_size.expand(shape))
    return matrix


class _GaussianGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None, log_size: Tensor) -> Tensor:
        """K = exp(log_size − s/2)."""
        exponents, ctx.near = half_squares(z1, z2, log_size)
        K = flushed_exp(exponents)
        ctx.save_for_backward(z1, z2, K)
        return K

    @staticmethod
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """∂q/∂z and ∂q/∂log_size from G = ∂q/∂K."""
        z1, z2, K = ctx.saved_tensors
        if torch.is_grad_enabled():
            M = G * K
            return *_by_side(*plain_differences(-M, z1, z2), z1, z2), M.sum((-2, -1))
        if ctx.near:
            M = G * K
            size = M.sum((-2, -1))
            return *_near_gradients(M.neg_(), z1, z2, ctx.near), size
        return _differences(G, K, z1, z2, -1.0)


def _differences(
    G: Tensor, slope: Tensor, z1: Tensor, z2: Tensor | None, factor: float
) -> tuple[Tensor, Tensor | None, Tensor]:
    """c Σ_j M_ij (z1_i − z2_j) and c Σ_i M_ij (z2_j − z1_i), and Σ M, for M = G∘φ′ and a ``factor`` c.

    M is formed for a block of rows at a time and never as a whole, to save memory. ``z2=None`` means ``z1``, whose two
    gradients are then one.
    """
    other = z1 if z2 is None else z2
    with_one1, with_one2 = (torch.cat([z, torch.ones_like(z[..., :1])], dim=-1) for z in (z1, other))
    rows, columns = [], z1.new_zeros(*G.shape[:-2], *with_one2.shape[-2:])
    size = CACHED_ROWS if torch.get_num_threads() == 1 else max(256, -(-G.shape[-2] // MOST_BLOCKS))
    for start in range(0, G.shape[-2], size):
        block = slice(start, start + size)
        M = G[..., block, :] * (slope[..., block, :] if slope.dim() > 1 else slope)
        rows.append(M @ with_one2)
        columns += M.mT @ with_one1[..., block, :]
    row = torch.cat(rows, dim=-2)
    gradient1 = (row[..., -1:] * z1 - row[..., :-1]).mul_(factor)
    gradient2 = (columns[..., -1:] * other - columns[..., :-1]).mul_(factor)
    return *_by_side(gradient1, gradient2, z1, z2), row[..., -1].sum(-1)


def _near_gradients(M: Tensor, z1: Tensor, z2: Tensor | None, near: list[NearPairs]) -> tuple[Tensor, Tensor | None]:
    """∂q/∂z1 and ∂q/∂z2 where the distances of some pairs were refined."""
    gradient1, gradient2 = weighted_differences(M, z1, z1 if z2 is None else z2, near)
    return _by_side(gradient1, gradient2, z1, z2)


def _by_side(gradient1: Tensor, gradient2: Tensor, z1: Tensor, z2: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The gradients of ``z1`` and ``z2``, or their sum where both are one."""
    if z2 is None:
        return (gradient1 + gradient2).sum_to_size(z1.shape), None
    return gradient1.sum_to_size(z1.shape), gradient2.sum_to_size(z2.shape)


def half_squares(
    z1: Tensor, z2: Tensor | None, shift: Tensor | None = None, rough: bool = False
) -> tuple[Tensor, list[NearPairs]]:
    """−s/2 (plus ``shift``), and the pairs whose distance was refined in each matrix of the batch, usually none.

    ``z2=None`` means ``z1``, and then the diagonal is exactly zero. ``rough`` subtracts points that nearly coincide
    whatever their norms, because a rounding error of 1e-16 in s is one of 1e-8 in √s.
    """
    other = z1 if z2 is None else z2
    norms1, norms2 = (z.square().sum(-1, keepdim=True).mul_(0.5) for z in (z1, other))
    # [z, −‖z‖²/2 + shift, 1] [z', 1, −‖z'‖²/2]ᵀ
    own = -norms1 if shift is None else shift[..., None, None] - norms1
    left = torch.cat([z1, own, torch.ones_like(norms1)], dim=-1)
    halves = left @ torch.cat([other, torch.ones_like(norms2), -norms2], dim=-1).mT
    largest = max(float(norms1.max()), float(norms2.max()))
    near = []
    if rough or 2.0 * largest > CHECKED_NORM or largest != largest:
        near = refine_(halves, z1, other, largest, shift, rough)
    if shift is None:
        halves.clamp_max_(0.0)
        if z2 is None:
            halves.diagonal(dim1=-2, dim2=-1).zero_()
    return halves, near


def warn_lost_digits(z: Tensor) -> None:
    """Warn of points so far from zero that their dtype cannot resolve a thousandth of a lengthscale."""
    farthest = float(z.detach().abs().amax()) if z.numel() else 0.0
    spacing = farthest * torch.finfo(z.dtype).eps
    if LOST_SPACING < spacing < math.inf:
        warn_numerical(
            f"Points lie up to {farthest:.1e} lengthscales from zero, where {z.dtype} cannot tell points less than "
            f"{spacing:.1e} lengthscales apart. Remove outliers, subtract an offset, or use a longer lengthscale.",
            stacklevel=3,
        )


def flushed_exp(exponent: Tensor, *, inplace: bool = True) -> Tensor:
    """exp, in place by default, with values below √tiny set to exactly 0.

    Such values (1e-154 in float64) cannot change any sum they enter, but their products are denormal numbers, on
    which a processor is many times slower.
    """
    flush = torch.threshold_ if inplace else torch.threshold
    values: Tensor = flush(exponent, _smallest_exponent(exponent.dtype), -math.inf).exp_()
    return values


@functools.cache
def _smallest_exponent(dtype: torch.dtype) -> float:
    """log √tiny."""
    return 0.5 * math.log(torch.finfo(dtype).tiny)


# --- the map from x to the scaled points z, and its vector-Jacobian product ----------------------------------------


class Metric(Protocol):
    """The linear map x → z of a radial kernel φ(‖z − z'‖²).

    Example:
        >>> from kernel_embed.kernels import Lengthscale
        >>> metric = Lengthscale(None)                 # z = x
        >>> metric.scaled(torch.tensor([[4.0]]))
        tensor([[4.]])
    """

    def scaled(self, x: Tensor) -> Tensor:
        """z, of shape ``(*batch, n, D)``."""
        ...  # pragma: no cover

    def slope(self, v: Tensor) -> Tensor:
        """∂q/∂x from v = ∂q/∂z, both ``(*batch, n, D)``."""
        ...  # pragma: no cover

    def noise(self, size: Tensor) -> Tensor:
        """The rounding error of ‖∂q/∂x‖ from that of ‖∂q/∂z‖, both ``(*batch, n)``."""
        ...  # pragma: no cover


class Lengthscale:
    """z = x / ℓ for a lengthscale ℓ of shape ``(*batch, 1, 1 | D)``; ``None`` for z = x.

    Args:
        lengthscale: ℓ.

    Example:
        >>> Lengthscale(torch.tensor([[2.0, 4.0]])).scaled(torch.tensor([[1.0, 1.0]]))
        tensor([[0.5000, 0.2500]])
    """

    def __init__(self, lengthscale: Tensor | None) -> None:
        self.lengthscale = lengthscale

    def scaled(self, x: Tensor) -> Tensor:
        """x / ℓ."""
        return x if self.lengthscale is None else x / self.lengthscale

    def slope(self, v: Tensor) -> Tensor:
        """v / ℓ."""
        return v if self.lengthscale is None else v / self.lengthscale

    def noise(self, size: Tensor) -> Tensor:
        """size / max ℓ."""
        return size if self.lengthscale is None else size / self.lengthscale.amax(dim=(-2, -1))[..., None]


class Whitening:
    """z = Lᵀx for a factor L of shape ``(*batch, D, D)``.

    Args:
        factor: L.

    Example:
        >>> Whitening(2.0 * torch.eye(2)).scaled(torch.tensor([[1.0, 3.0]]))
        tensor([[2., 6.]])
    """

    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    def scaled(self, x: Tensor) -> Tensor:
        """Lᵀx."""
        if x.shape[-1] != self.factor.shape[-1]:
            raise ValueError(
                f"The kernel was made for {self.factor.shape[-1]} features (num_dims), but x has {x.shape[-1]}. "
                "Change the columns of x or num_dims."
            )
        return x.to(torch.promote_types(x.dtype, self.factor.dtype)) @ self.factor

    def slope(self, v: Tensor) -> Tensor:
        """Lv."""
        return v @ self.factor.mT

    def noise(self, size: Tensor) -> Tensor:
        """size, unchanged."""
        return size
