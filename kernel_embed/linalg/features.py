r"""The system through explicit features: K = ZZᵀ with Z of p columns, without an n × n matrix.

It is solved through the p × p matrix :math:`M = Z^\top W Z + \eta I` (Woodbury; Algorithm 2). With
:math:`F = W^{1/2} Z` everything is that of :math:`F F^\top + \eta I`; for w = 1

.. math::
    C = M^{-1} Z^\top Y,\; P = Z C,\; V = (Y - P) / \eta &: \quad
        \partial q/\partial Z = (Y - P) B^\top - Z B C^\top, \; B = M^{-1} G_C \\
    h = \operatorname{diag} Z M^{-1} Z^\top,\; c = (1 - h) / \eta &: \quad
        \partial q/\partial Z = 2 \operatorname{diag}(g) U - 2 Z U^\top \operatorname{diag}(g) U, \; U = Z M^{-1} \\
    \log \lvert A \rvert = \log \lvert M \rvert + (n - p) \log \eta &: \quad \partial q/\partial Z = 2 g U
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..validation import broadcast_shapes
from .dense import DenseSystem, factorize
from .derivatives import through
from .factorization import Blocks
from .forms import QuadraticForm
from .precision import require_finite
from .regression import Units
from .system import LinearSystem, Shards


class FeatureSystem(LinearSystem):
    r"""A = ZZᵀ + ηW⁻¹ through the Cholesky factor of M = ZᵀWZ + ηI, in O(np² + p³) time and O(np + p²) memory.

    Its values are those of :class:`DenseSystem`. With several ranks in ``shards``, ``Z`` and ``weights`` are those of
    one, everything else that of all.
    """

    def __init__(self, Z: Tensor, ridge: Tensor, weights: Tensor | None = None, shards: Shards | None = None) -> None:
        self.shards = shards = shards or Shards()
        self.Z = Z = Z.expand(*broadcast_shapes(Z.shape[:-2], ridge.shape), *Z.shape[-2:])
        require_finite(Z)
        self.weights, self.num_features = weights, Z.shape[-1]
        # F = W^½ Z, and w of all ranks' rows as a column
        self._F = Z if weights is None else weights.sqrt().unsqueeze(-1) * Z
        self._w = None if weights is None else _Gather.apply(weights, shards).unsqueeze(-1)
        F = self._F.detach()
        self._factor, jitter = factorize(shards.sum(F.mT @ F), ridge.detach().unsqueeze(-1), "ZᵀZ + ηI")
        self.jitter = torch.zeros_like(ridge) if jitter is None else jitter
        self.ridge = ridge if jitter is None else ridge + jitter
        self.noise = self.ridge.unsqueeze(-1) if self._w is None else self.ridge.unsqueeze(-1) / self._w.squeeze(-1)

    def coefficients(self, Y: Tensor) -> Tensor:
        """C = M⁻¹ZᵀWY, ``(*batch, p, m)``: the coefficients of the features in predictions."""
        Y = Y if self._w is None else self._w.sqrt() * Y
        Y = Y.expand(*self._factor.shape[:-2], *Y.shape[-2:])
        C: Tensor = _FeatureCoefficients.apply(self._F, self.ridge, Y, self._factor, self.shards)
        return C

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = W(Y − P)/η and P = ZC."""
        P = self._fitted(self.coefficients(Y))
        V = (Y - P) / self.ridge[..., None, None]
        return V if self._w is None else self._w * V, P

    def _fitted(self, C: Tensor) -> Tensor:
        P: Tensor = _GatheredProduct.apply(self.Z, C, self.shards)
        return P

    def gram(self) -> Tensor:
        """K = ZZᵀ."""
        return self.Z @ self.Z.mT

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The block of K of these rows R and columns S: Z_R Z_Sᵀ."""
        return self.Z[..., rows, :] @ self.Z[..., columns, :].mT

    def between(self, part: LinearSystem, rows: Tensor, part_rows: Tensor) -> Tensor:
        """The features of ``rows`` if ``part`` uses features too."""
        return self.block(rows, part_rows) if part.num_features is None else self.Z[..., rows, :]

    def gram_from(self, representation: Tensor) -> Tensor:
        """k(x, x_i) = φ(x)ᵀz_i: ``(*batch, t, n)``."""
        return representation @ self.Z.mT

    def restricted(self, rows: Tensor, ridge: Tensor) -> LinearSystem:
        """The system of some of the rows, with another ridge; dense if they are not more than the features."""
        if self.shards.size > 1:
            raise TypeError("Objectives that split the data need all rows on one rank. Use LeaveOneOutRisk.")
        Z, weights = self.Z[..., rows, :], None if self.weights is None else self.weights[..., rows]
        if Z.shape[-1] < Z.shape[-2]:
            return FeatureSystem(Z, ridge, weights)
        return DenseSystem(Z @ Z.mT, ridge, weights)

    def diagonal(self) -> Tensor:
        """diag K, the squared norms of the features, of shape ``(*batch, n)``."""
        norms: Tensor = _Gather.apply(self.Z.square().sum(-1), self.shards)
        return norms

    def inverse_parts(self, units: Units | None = None) -> Blocks:
        """c = diag A⁻¹ = w(1 − h)/η, or [A⁻¹]_GG = (W_G − (WU)_G (WZ)_Gᵀ)/η with U = ZM⁻¹ for groups."""
        w = 1.0 if self._w is None else self._w.squeeze(-1)
        if units is None or units.labels is None:
            h: Tensor = _Leverages.apply(self._F, self.ridge, self._inverse, self.shards)
            ridge = self.ridge.unsqueeze(-1)
            # c_i ≥ 1 / (η/w + k_ii) always; only rounding can bring 1 − h_i below that.
            lowest = ridge / (ridge + (w * self.diagonal()).detach())
            return w * torch.maximum(1.0 - h, lowest.detach()) / ridge
        self.shards.require_one("LeaveOneOutScore and groups")
        WZ = self.Z if self._w is None else self._w * self.Z
        W = torch.ones_like(self.Z[..., 0]) * w
        H = units.outer_blocks(self._core.solve(WZ.mT).mT, WZ)
        blocks = (torch.diag_embed(W[..., rows]) - 0.5 * (h + h.mT) for rows, h in zip(units.rows, H, strict=True))
        return tuple(block / self.ridge[..., None, None, None] for block in blocks)

    def inverse_forms(self, form: QuadraticForm, units: Units | None = None) -> tuple[Blocks, Blocks]:
        """diag A⁻¹LA⁻¹ for a ``form`` L, and diag A⁻¹, in O(np²) where L B costs O(n) for each column of B.

        A⁻¹ = W^½(I − UFᵀ)W^½/η with U = FM⁻¹: with L̃ = W^½LW^½ the first is (w/η²) diag(L̃ − 2UFᵀL̃ + U(FᵀL̃F)Uᵀ).
        """
        self.shards.require_one("LeaveOneOutScore and groups")
        if units is not None and units.labels is not None:
            return DenseSystem(self.gram(), self.ridge, self.weights).inverse_forms(form, units)
        F, root = self._F, 1.0 if self._w is None else self._w.sqrt()
        U = self._core.solve(F.mT).mT
        T = root * form.times(root * F)
        w = 1.0 if self._w is None else self._w.squeeze(-1)
        bent = ((U @ (F.mT @ T) - 2.0 * T) * U).sum(-1)
        return w * (w * form.diagonal() + bent) / self.ridge.unsqueeze(-1).square(), self.inverse_parts()

    def log_determinant(self) -> Tensor:
        """log det A = log det M + (n − p) log η − Σ log w, of shape ``batch``."""
        n, p = self.shards.total(self.Z.shape[-2]), self.Z.shape[-1]
        value: Tensor = _FeatureLogDeterminant.apply(self._F, self.ridge, self)
        value = value + (n - p) * self.ridge.log()
        return value if self._w is None else value - self._w.log().sum((-2, -1))

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) in nats, from ‖W^½(Y − P)‖²/η + ‖C‖²: both are positive, and nothing cancels."""
        C = self.coefficients(Y)
        rest = (Y - self._fitted(C)).square()
        rest = rest if self._w is None else self._w * rest
        quadratic = rest.sum((-2, -1)) / self.ridge + C.square().sum((-2, -1))
        n, m = Y.shape[-2:]
        return 0.5 * (quadratic + m * self.log_determinant() + n * m * math.log(2.0 * math.pi))

    def conditional_covariance(self, representation: Tensor, prior: Callable[[], Tensor]) -> Tensor:
        """Z* ηM⁻¹ Z*ᵀ: the prior itself is not needed."""
        return self.ridge[..., None, None] * (representation @ self._core.solve(representation.mT))

    @functools.cached_property
    def _core(self) -> DenseSystem:
        """M, differentiable in Z."""
        return DenseSystem(self.shards.sum(self._F.mT @ self._F), self.ridge)

    @functools.cached_property
    def _inverse(self) -> Tensor:
        return torch.cholesky_inverse(self._factor)


def _is_differentiated(shards: Shards) -> bool:
    """Whether a gradient will be differentiated again."""
    return torch.is_grad_enabled() and shards.require_one("Second derivatives")


def _core_inverse(Z: Tensor, ridge: Tensor) -> Tensor:
    """M⁻¹ = (ZᵀZ + ηI)⁻¹, differentiable any number of times."""
    M = Z.mT @ Z + torch.diag_embed(ridge.unsqueeze(-1).expand(*ridge.shape, Z.shape[-1]))
    return torch.cholesky_inverse(torch.linalg.cholesky(M))


class _FeatureCoefficients(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, ridge: Tensor, Y: Tensor, factor: Tensor, shards: Shards) -> Tensor:
        """C = M⁻¹ZᵀY, with ZᵀY summed over ranks."""
        own = shards.own(Y)
        W = torch.cholesky_solve(shards.sum(Z.mT @ own), factor)
        ctx.shards = shards
        ctx.save_for_backward(Z, ridge, own, W, factor)
        return W

    @staticmethod
    def backward(ctx: Any, G_W: Tensor) -> tuple[Tensor | None, ...]:
        """B = M⁻¹G_C, ∂q/∂Z = (Y − P)Bᵀ − ZBCᵀ."""
        Z, ridge, Y, W, factor = ctx.saved_tensors
        if _is_differentiated(ctx.shards):
            return *through(lambda Z, ridge, Y: _core_inverse(Z, ridge) @ (Z.mT @ Y), (Z, ridge, Y), (G_W,)), None, None
        B = torch.cholesky_solve(G_W, factor)
        ZB = Z @ B
        shards = ctx.shards
        gradient_Z = ((Y - Z @ W) @ B.mT - ZB @ W.mT) * shards.size if ctx.needs_input_grad[0] else None
        gradient_Y = shards.gather(ZB) if ctx.needs_input_grad[2] else None
        return gradient_Z, -(B * W).sum((-2, -1)), gradient_Y, None, None


class _GatheredProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, W: Tensor, shards: Shards) -> Tensor:
        """P = ZC at the rows of all ranks."""
        ctx.shards = shards
        ctx.save_for_backward(Z, W)
        return shards.gather(Z @ W)

    @staticmethod
    def backward(ctx: Any, G_P: Tensor) -> tuple[Tensor | None, Tensor, None]:
        """∂q/∂Z = G_P Cᵀ, ∂q/∂C = ZᵀG_P."""
        Z, W = ctx.saved_tensors
        _is_differentiated(ctx.shards)
        own = ctx.shards.own(G_P)
        gradient_Z = own @ W.mT * ctx.shards.size if ctx.needs_input_grad[0] else None
        return gradient_Z, ctx.shards.sum(Z.mT @ own), None


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, shards: Shards) -> Tensor:
        """The values at the rows of all ranks."""
        ctx.shards = shards
        return shards.gather(values, dim=-1).clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        """The gradient at the rows of this rank, times the number of ranks."""
        _is_differentiated(ctx.shards)
        return ctx.shards.own(g, dim=-1) * ctx.shards.size, None


class _Leverages(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, ridge: Tensor, inverse: Tensor, shards: Shards) -> Tensor:
        """h = diag ZM⁻¹Zᵀ at the rows of all ranks."""
        U = Z @ inverse
        ctx.shards = shards
        ctx.save_for_backward(Z, ridge, U)
        return shards.gather((U * Z).sum(-1), dim=-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂Z = 2 diag(g)U − 2ZUᵀ diag(g)U, U = ZM⁻¹."""
        Z, ridge, U = ctx.saved_tensors
        if _is_differentiated(ctx.shards):
            U = Z @ _core_inverse(Z, ridge)
        gU = ctx.shards.own(g, dim=-1).unsqueeze(-1) * U
        S = ctx.shards.sum(U.mT @ gU)
        return 2.0 * ctx.shards.size * (gU - Z @ S), -S.diagonal(dim1=-2, dim2=-1).sum(-1), None, None


class _FeatureLogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, Z: Tensor, ridge: Tensor, system: FeatureSystem) -> Tensor:
        """log det M = 2 Σ log L_ii, with L the Cholesky factor of M."""
        ctx.system = system
        ctx.save_for_backward(Z, ridge)
        return 2.0 * system._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """∂q/∂Z = 2gU."""
        Z, ridge = ctx.saved_tensors
        inverse = ctx.system._inverse
        if _is_differentiated(ctx.system.shards):
            inverse = _core_inverse(Z, ridge)
        gradient_Z = 2.0 * ctx.system.shards.size * g[..., None, None] * (Z @ inverse)
        return gradient_Z, g * inverse.diagonal(dim1=-2, dim2=-1).sum(-1), None
