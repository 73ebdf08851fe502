r"""Gram matrices of radial kernels with their gradient in closed form.

A radial kernel depends on the scaled points :math:`z = x / \ell` through the squared distance alone,

.. math::  K_{ij} = \varphi(s_{ij}), \qquad s_{ij} = \lVert z_i - z'_j \rVert^2 .

With :math:`G = \partial q / \partial K` and :math:`M = G \circ \varphi'(s)`, the chain rule gives

.. math::  \partial q / \partial z_i = 2 \Big( z_i \sum_j M_{ij} - \sum_j M_{ij} z'_j \Big) ,

one matrix product where autograd would keep and revisit four :math:`n \times n` temporaries. The gradient for the
lengthscales follows from :math:`z = x / \ell` by ordinary autograd on :math:`n \times d` numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Profile = Callable[[Tensor], tuple[Tensor, "Tensor | None", float]]
"""From −s/2 (a fresh n × n' matrix, which may be overwritten) to φ(s), and φ'(s) as a matrix times a number.

``None`` stands for the matrix φ(s) itself, of which no second copy is kept.
"""


def radial_gram(z1: Tensor, z2: Tensor | None, profile: Profile, rough: bool = False) -> Tensor:
    """The matrix φ(‖z1_i − z2_j‖²), differentiable in ``z1`` and ``z2``; ``z2=None`` means ``z1``.

    ``rough`` says that φ is a function of the distance itself, so that a rounding error of 1e-16 in its square would
    become one of 1e-8: points that nearly coincide are then subtracted one by one.
    """
    # Distances do not change under a shift, but the rounding error of ‖z‖² + ‖z'‖² − 2zᵀz' does.
    centre = z1.detach().mean(dim=-2, keepdim=True)
    matrix: Tensor = _RadialGram.apply(z1 - centre, None if z2 is None else z2 - centre, profile, rough)
    return matrix


class _RadialGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None, profile: Profile, rough: bool) -> Tensor:
        """K = φ(s)."""
        halves = negative_half_square_distance(z1, z2)
        if rough:
            subtract_close_points_(halves, z1, z1 if z2 is None else z2)
        K, slope, ctx.factor = profile(halves)
        ctx.save_for_backward(z1, z2, K if slope is None else slope)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        """∂q/∂z from G = ∂q/∂K."""
        z1, z2, slope = ctx.saved_tensors
        # 2M = 2 G∘φ'(s)
        M = (G * slope).mul_(2.0 * ctx.factor)
        if z2 is None:
            sums = M.sum(-1) + M.sum(-2)
            return sums.unsqueeze(-1) * z1 - M @ z1 - M.mT @ z1, None, None, None
        gradient1 = gradient2 = None
        if ctx.needs_input_grad[0]:
            gradient1 = _sum_to(M.sum(-1).unsqueeze(-1) * z1 - M @ z2, z1)
        if ctx.needs_input_grad[1]:
            gradient2 = _sum_to(M.sum(-2).unsqueeze(-1) * z2 - M.mT @ z1, z2)
        return gradient1, gradient2, None, None


def gaussian_gram(z1: Tensor, z2: Tensor | None, log_size: Tensor) -> Tensor:
    """exp(log_size − ½‖z1_i − z2_j‖²), differentiable in all three; ``log_size`` has shape ``batch``.

    The size enters the one product that makes the exponents, and its gradient is a sum that is at hand: no pass over
    the matrix is added.
    """
    centre = z1.detach().mean(dim=-2, keepdim=True)
    shape = torch.broadcast_shapes(z1.shape[:-2], log_size.shape)
    z1 = (z1 - centre).expand(*shape, *z1.shape[-2:])
    matrix: Tensor = _GaussianGram.apply(z1, None if z2 is None else z2 - centre, log_size.expand(shape))
    return matrix


class _GaussianGram(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z1: Tensor, z2: Tensor | None, log_size: Tensor) -> Tensor:
        """K = exp(log_size − s/2)."""
        K = flushed_exp(_exponents(z1, z1 if z2 is None else z2, log_size))
        ctx.save_for_backward(z1, z2, K)
        return K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor]:
        """∂q/∂z and ∂q/∂log_size from G = ∂q/∂K."""
        z1, z2, K = ctx.saved_tensors
        other = z1 if z2 is None else z2
        M = G * K
        rows = M @ torch.cat([other, torch.ones_like(other[..., :1])], dim=-1)
        columns = M.mT @ torch.cat([z1, torch.ones_like(z1[..., :1])], dim=-1)
        gradient1 = rows[..., :-1] - rows[..., -1:] * z1
        gradient2 = columns[..., :-1] - columns[..., -1:] * other
        size = rows[..., -1].sum(-1)
        if z2 is None:
            return gradient1 + gradient2, None, size
        return gradient1, _sum_to(gradient2, z2), size


def _sum_to(gradient: Tensor, like: Tensor) -> Tensor:
    return gradient.sum_to_size(like.shape)


def negative_half_square_distance(z1: Tensor, z2: Tensor | None) -> Tensor:
    """−s/2, exactly zero on the diagonal of a symmetric matrix."""
    halves = _exponents(z1, z1 if z2 is None else z2).clamp_max_(0.0)
    if z2 is None:
        halves.diagonal(dim1=-2, dim2=-1).zero_()
    return halves


def _exponents(z1: Tensor, z2: Tensor, shift: Tensor | None = None) -> Tensor:
    """−s/2, plus ``shift``, in one matrix product: [z, −‖z‖²/2 + shift, 1] [z', 1, −‖z'‖²/2]ᵀ."""
    norms1 = z1.square().sum(-1, keepdim=True).mul_(-0.5)
    norms2 = z2.square().sum(-1, keepdim=True).mul_(-0.5)
    shifted = norms1 if shift is None else norms1 + shift[..., None, None]
    left = torch.cat([z1, shifted, torch.ones_like(norms1)], dim=-1)
    right = torch.cat([z2, torch.ones_like(norms2), norms2], dim=-1)
    return left @ right.mT


def subtract_close_points_(halves: Tensor, z1: Tensor, z2: Tensor) -> None:
    """Replace −s/2 of nearly coinciding points, where the product above has lost its digits, by exact differences."""
    largest = torch.maximum(z1.square().sum(-1).amax(), z2.square().sum(-1).amax())
    close = (halves > -1e4 * torch.finfo(halves.dtype).eps * largest).nonzero(as_tuple=True)
    rows, columns = (*close[:-2], close[-2]), (*close[:-2], close[-1])
    batch = halves.shape[:-2]
    difference = z1.expand(*batch, *z1.shape[-2:])[rows] - z2.expand(*batch, *z2.shape[-2:])[columns]
    halves[close] = difference.square().sum(-1).mul_(-0.5)


def flushed_exp(exponent: Tensor, *, inplace: bool = True) -> Tensor:
    """exp, in place by default, with values below √tiny set to exactly 0.

    Such values (1e-154 in float64) cannot change any sum they enter, but their products are denormal numbers, on
    which a processor is many times slower.
    """
    smallest = 0.5 * math.log(torch.finfo(exponent.dtype).tiny)
    return torch.nn.functional.threshold(exponent, smallest, -math.inf, inplace=inplace).exp_()


# --- how scaled points z follow from x, and how a slope in z becomes one in x ----------------------------------------


class Metric(Protocol):
    """The linear map x → z of a radial kernel φ(‖z − z'‖²)."""

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

    Example:
        >>> Whitening(2.0 * torch.eye(2)).scaled(torch.tensor([[1.0, 3.0]]))
        tensor([[2., 6.]])
    """

    def __init__(self, factor: Tensor) -> None:
        self.factor = factor

    def scaled(self, x: Tensor) -> Tensor:
        """Lᵀx."""
        if x.shape[-1] != self.factor.shape[-1]:
            raise ValueError(f"Expected {self.factor.shape[-1]} features (num_dims), got x with {x.shape[-1]}.")
        return x @ self.factor

    def slope(self, v: Tensor) -> Tensor:
        """Lv."""
        return v @ self.factor.mT

    def noise(self, size: Tensor) -> Tensor:
        """As it is."""
        return size
