r"""The same system through explicit features: K = ZZᵀ with Z of p columns, and no n × n matrix.

It is answered through the p × p matrix :math:`M = Z^\top Z + \eta I` (Woodbury; Algorithm 2):

.. math::
    W = M^{-1} Z^\top Y,\; P = Z W,\; V = (Y - P) / \eta &: \quad
        \partial q/\partial Z = (Y - P) B^\top - Z B W^\top, \; B = M^{-1} G_W \\
    h = \operatorname{diag} Z M^{-1} Z^\top,\; c = (1 - h) / \eta &: \quad
        \partial q/\partial Z = 2 \operatorname{diag}(g) U - 2 Z U^\top \operatorname{diag}(g) U, \; U = Z M^{-1} \\
    \log \lvert A \rvert = \log \lvert M \rvert + (n - p) \log \eta &: \quad \partial q/\partial Z = 2 g U
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from linear_operator.utils.errors import NanError
from torch import Tensor
from torch.autograd.function import once_differentiable

from .dense import factorise


class Shards:
    """Who holds which rows: here all of them are in one place. Elsewhere ranks hold some each, and this is replaced.

    Sums over rows and values at rows are the same on every rank, and so are their derivatives. What belongs to a rank
    alone is its part of ∂q/∂Z, given times :attr:`size`, so that the mean over ranks of the gradients of parameters
    is the gradient.
    """

    size = 1
    """The number of ranks."""

    def total(self, num_rows: int) -> int:
        """n, for ``num_rows`` rows of this rank."""
        return num_rows

    def sum(self, part: Tensor) -> Tensor:
        """The sum over ranks."""
        return part

    def own(self, whole: Tensor, dim: int = -2) -> Tensor:
        """The rows of this rank."""
        return whole

    def gather(self, part: Tensor, dim: int = -2) -> Tensor:
        """The rows of all ranks."""
        return part


class FeatureRidgeSystem:
    r"""A = ZZᵀ + ηI through the Cholesky factor of M = ZᵀZ + ηI, in O(np² + p³) time and O(np + p²) memory.

    ``Z`` has shape ``(*batch, n, p)`` and ``ridge`` η the shape ``batch``. The interface is that of
    :class:`RidgeSystem`, and so are the answers. With ``shards``, Z holds the rows of one rank and everything else
    those of all.

    Example:
        >>> from kernel_embed.linalg import RidgeSystem
        >>> Z = torch.tensor([[1.0], [2.0], [0.0]], dtype=torch.float64)
        >>> ridge = torch.tensor(1.0, dtype=torch.float64)
        >>> Y = torch.tensor([[1.0], [0.0], [3.0]], dtype=torch.float64)
        >>> bool(torch.allclose(FeatureRidgeSystem(Z, ridge).solve(Y), RidgeSystem(Z @ Z.T, ridge).solve(Y)))
        True
    """

    def __init__(self, Z: Tensor, ridge: Tensor, shards: Shards | None = None) -> None:
        self.shards = shards = shards or Shards()
        self.Z = Z = Z.expand(*torch.broadcast_shapes(Z.shape[:-2], ridge.shape), *Z.shape[-2:])
        values = Z.detach()
        if not bool(torch.isfinite(values).all()):
            raise NanError(
                f"Expected finite features, got {int((~torch.isfinite(values)).sum())} values that are not finite "
                f"among {values.numel()}. Look for weights of the feature map that overflowed; learn more slowly."
            )
        self._factor, jitter = factorise(shards.sum(values.mT @ values), ridge.detach(), "ZᵀZ + ηI")
        self.ridge = ridge if not jitter.any() else ridge + jitter
        self.jitter = jitter

    def coefficients(self, Y: Tensor) -> Tensor:
        """W = M⁻¹ZᵀY, ``(*batch, p, m)``: what the features of a point are multiplied with to predict there."""
        Y = Y.expand(*self._factor.shape[:-2], *Y.shape[-2:])
        W: Tensor = _FeatureCoefficients.apply(self.Z, self.ridge, Y, self._factor, self.shards)
        return W

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""
        P: Tensor = _GatheredProduct.apply(self.Z, self.coefficients(Y), self.shards)
        return (Y - P) / self.ridge[..., None, None], P

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y for ``Y`` of shape ``(*batch, n, m)``."""
        return self.regress(Y)[0]

    def inverse_diagonal(self) -> Tensor:
        """c = diag A⁻¹, of shape ``(*batch, n)``."""
        h: Tensor = _Leverages.apply(self.Z, self.ridge, self._inverse, self.shards)
        ridge = self.ridge.unsqueeze(-1)
        # c_i ≥ 1 / (η + k_ii) always; only rounding can bring 1 − h_i below that.
        lowest = ridge / (ridge + self.diagonal().detach())
        return torch.maximum(1.0 - h, lowest.detach()) / ridge

    def diagonal(self) -> Tensor:
        """diag K, the squared norms of the features, of shape ``(*batch, n)``."""
        norms: Tensor = _Gather.apply(self.Z.square().sum(-1), self.shards)
        return norms

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        n, p = self.shards.total(self.Z.shape[-2]), self.Z.shape[-1]
        value: Tensor = _FeatureLogDeterminant.apply(self.Z, self.ridge, self)
        return value + (n - p) * self.ridge.log()

    @functools.cached_property
    def _inverse(self) -> Tensor:
        return torch.cholesky_inverse(self._factor)


class _FeatureCoefficients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, ridge: Tensor, Y: Tensor, factor: Tensor, shards: Shards) -> Tensor:
        own = shards.own(Y)
        W = torch.cholesky_solve(shards.sum(Z.mT @ own), factor)
        ctx.shards = shards
        ctx.save_for_backward(Z, own, W, factor)
        return W

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G_W: Tensor) -> tuple[Tensor | None, ...]:
        Z, Y, W, factor = ctx.saved_tensors
        B = torch.cholesky_solve(G_W, factor)
        ZB = Z @ B
        shards = ctx.shards
        gradient_Z = ((Y - Z @ W) @ B.mT - ZB @ W.mT) * shards.size if ctx.needs_input_grad[0] else None
        gradient_Y = shards.gather(ZB) if ctx.needs_input_grad[2] else None
        return gradient_Z, -(B * W).sum((-2, -1)), gradient_Y, None, None


class _GatheredProduct(torch.autograd.Function):
    """ZW at the rows of all ranks."""

    @staticmethod
    def forward(ctx: Any, Z: Tensor, W: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        ctx.save_for_backward(Z, W)
        return shards.gather(Z @ W)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G_P: Tensor) -> tuple[Tensor | None, Tensor, None]:
        Z, W = ctx.saved_tensors
        own = ctx.shards.own(G_P)
        gradient_Z = own @ W.mT * ctx.shards.size if ctx.needs_input_grad[0] else None
        return gradient_Z, ctx.shards.sum(Z.mT @ own), None


class _Gather(torch.autograd.Function):
    """A value for each row, of all ranks."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, shards: Shards) -> Tensor:
        ctx.shards = shards
        return shards.gather(values, dim=-1).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return ctx.shards.own(g, dim=-1) * ctx.shards.size, None


class _Leverages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, ridge: Tensor, inverse: Tensor, shards: Shards) -> Tensor:
        U = Z @ inverse
        ctx.shards = shards
        ctx.save_for_backward(Z, U)
        return shards.gather((U * Z).sum(-1), dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        Z, U = ctx.saved_tensors
        gU = ctx.shards.own(g, dim=-1).unsqueeze(-1) * U
        S = ctx.shards.sum(U.mT @ gU)
        return 2.0 * ctx.shards.size * (gU - Z @ S), -S.diagonal(dim1=-2, dim2=-1).sum(-1), None, None


class _FeatureLogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, ridge: Tensor, system: FeatureRidgeSystem) -> Tensor:
        ctx.system = system
        ctx.save_for_backward(Z)
        return 2.0 * system._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        (Z,) = ctx.saved_tensors
        inverse = ctx.system._inverse
        gradient_Z = 2.0 * ctx.system.shards.size * g[..., None, None] * (Z @ inverse)
        return gradient_Z, g * inverse.diagonal(dim1=-2, dim2=-1).sum(-1), None


def whitening(K: Tensor) -> Tensor:
    """R with RᵀKR = I, for symmetric K ``(s, s)``; directions in which K is numerically zero are left out.

    Example:
        >>> K = torch.tensor([[2.0, 2.0], [2.0, 2.0]], dtype=torch.float64)
        >>> R = whitening(K)
        >>> R.shape, (R.T @ K @ R).round(decimals=9).tolist()
        (torch.Size([2, 1]), [[1.0]])
    """
    if not bool(torch.isfinite(K).all()):
        raise NanError("Expected a finite kernel matrix of the inducing points, got NaN or infinite values.")
    values, vectors = torch.linalg.eigh(K)
    kept = values > K.shape[-1] * torch.finfo(K.dtype).eps * values[-1]
    R: Tensor = vectors[:, kept] * values[kept].rsqrt()
    return R
