r"""The regularised system :math:`A = K + \eta I`, factorised once and asked many times.

This folder is the only place that factorises. Everything is exact; derivatives are implicit, never through the factor:

.. math::
    V = A^{-1} Y,\; P = K V &: \quad \partial q/\partial K = (G_P - B) V^\top, \; B = A^{-1} (G_V + K G_P) \\
    c = \operatorname{diag} A^{-1} &: \quad \partial q/\partial K = -A^{-1} \operatorname{diag}(g) A^{-1} \\
    \log \lvert A \rvert       &: \quad \partial q/\partial K = g A^{-1} \\
    -\log \mathcal N(Y; 0, A) &: \quad \partial q/\partial K = \tfrac g2 (m A^{-1} - V V^\top), \;
                                       \partial q/\partial Y = g V

with :math:`\partial q / \partial \eta = -\sum B \circ V` for the first, and the trace of
:math:`\partial q / \partial K` for the others.
"""

from __future__ import annotations

import functools
import math
import warnings
from typing import Any

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.autograd.function import once_differentiable

JITTER_TRIES = 6
BLOCK = 512


class RidgeSystem:
    r"""A = K + ηI with its Cholesky factor, for ``K`` of shape ``(*batch, n, n)`` and ``ridge`` η of shape ``batch``.

    Where A is not numerically positive definite, jitter is added to η and announced with a ``NumericalWarning``;
    :attr:`ridge` is the value in force, so that identities such as K V = Y − ηV hold for the system solved.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> system = RidgeSystem(K, torch.tensor(1.0, dtype=torch.float64))
        >>> system.solve(torch.tensor([[8.0], [0.0]], dtype=torch.float64)).flatten().round(decimals=9)
        tensor([ 3., -1.], dtype=torch.float64)
        >>> system.inverse_diagonal()
        tensor([0.3750, 0.3750], dtype=torch.float64)
    """

    def __init__(self, K: Tensor, ridge: Tensor) -> None:
        self.K = K
        self._factor, jitter = factorise(K.detach(), ridge.detach())
        self.ridge = ridge if not jitter.any() else ridge + jitter
        self.jitter = jitter

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""
        Y = Y.expand(*self._factor.shape[:-2], *Y.shape[-2:])
        V, P = _Regress.apply(self.K, self.ridge, Y, self._factor)
        return V, P

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y for ``Y`` of shape ``(*batch, n, m)``."""
        return self.regress(Y)[0]

    def coefficients(self, Y: Tensor) -> Tensor:
        """What the values k(x, x_i) are multiplied with to predict at x: V = A⁻¹Y itself."""
        return self.solve(Y)

    def diagonal(self) -> Tensor:
        """diag K, of shape ``(*batch, n)``."""
        return self.K.diagonal(dim1=-2, dim2=-1)

    def inverse_diagonal(self) -> Tensor:
        """c = diag A⁻¹, of shape ``(*batch, n)``."""
        diagonal: Tensor = _InverseDiagonal.apply(self.K, self.ridge, self._inverse)
        return diagonal

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        value: Tensor = _LogDeterminant.apply(self.K, self.ridge, self)
        return value

    def negative_log_density(self, y: Tensor) -> Tensor:
        """−log N(y; 0, A) in nats, of shape ``batch``, for ``y`` of shape ``(*batch, n)``."""
        return self.negative_log_densities(y.unsqueeze(-1))

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) over the columns of ``Y`` ``(*batch, n, m)``, of shape ``batch``."""
        Y = Y.expand(*self._factor.shape[:-1], Y.shape[-1])
        value: Tensor = _NegativeLogDensity.apply(self.K, self.ridge, Y, self._factor)
        return value

    @functools.cached_property
    def _inverse(self) -> Tensor:
        return torch.cholesky_inverse(self._factor)


class LowRankSystem:
    r"""A = ΦΦᵀ + diag(σ²) for ``features`` Φ of shape ``(*batch, n, M)``, at a cost of O(nM²) and no n × n matrix.

    ``noise`` σ² has shape ``(*batch, n)``, or ``(*batch, 1)`` for one number.

    With :math:`F = \operatorname{diag}(\sigma)^{-1} \Phi` and :math:`C = I + F^\top F` (M × M),

    .. math::
        c &= C^{-1} F^\top y / \sigma, \qquad
        y^\top A^{-1} y = \lVert y / \sigma - F c \rVert^2 + \lVert c \rVert^2, \qquad
        \log |A| = \log |C| + \textstyle\sum_i \log \sigma_i^2 .

    Both terms of the quadratic form are positive: nothing cancels.

    Example:
        >>> features = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        >>> system = LowRankSystem(features, torch.ones(1, dtype=torch.float64))
        >>> system.weights(torch.tensor([1.0, 2.0], dtype=torch.float64))      # c, so that the fit is Φc
        tensor([0.8333], dtype=torch.float64)
    """

    def __init__(self, features: Tensor, noise: Tensor) -> None:
        self.features = features
        self.noise = noise.expand(features.shape[:-1])
        self._scaled = features / self.noise.sqrt().unsqueeze(-1)
        squares = self._scaled.mT @ self._scaled
        self.core = RidgeSystem(squares, squares.new_ones(squares.shape[:-2]))

    def weights(self, y: Tensor) -> Tensor:
        """c = C⁻¹Fᵀy/σ, the mean of the M coefficients given y: ``(*batch, M)``."""
        right = self._scaled.mT @ (y / self.noise.sqrt()).unsqueeze(-1)
        return self.core.solve(right).squeeze(-1)

    def covariance(self, features: Tensor) -> Tensor:
        """Φ* C⁻¹ Φ*ᵀ, the covariance at new rows Φ* of the function with these coefficients: ``(*batch, t, t)``."""
        return features @ self.core.solve(features.mT)

    def negative_log_density(self, y: Tensor) -> Tensor:
        """−log N(y; 0, A) in nats, of shape ``batch``, for ``y`` of shape ``(*batch, n)``."""
        c = self.weights(y)
        rest = y / self.noise.sqrt() - (self._scaled @ c.unsqueeze(-1)).squeeze(-1)
        quadratic = rest.square().sum(-1) + c.square().sum(-1)
        log_determinant = self.core.log_determinant() + self.noise.log().sum(-1)
        return 0.5 * (quadratic + log_determinant + self.noise.shape[-1] * math.log(2.0 * math.pi))


def factorise(K: Tensor, ridge: Tensor, name: str = "K + ηI") -> tuple[Tensor, Tensor]:
    """The lower factor of K + ηI, and the jitter that had to be added to η (0 nearly always)."""
    A = K.clone()
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    diagonal.add_(ridge.unsqueeze(-1))
    factor, info = torch.linalg.cholesky_ex(A)
    # An infinite entry on the diagonal passes the factorisation, and shows on the factor's own diagonal.
    finite = bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all())
    if finite and not info.any():
        return factor, torch.zeros_like(ridge)
    if not (finite and torch.isfinite(A).all()):
        raise NanError(
            f"Expected a finite kernel matrix, got {int((~torch.isfinite(A)).sum())} values that are not finite "
            f"among {A.numel()}. Look for hyperparameters that overflowed, or features on very different scales."
        )
    size = diagonal.abs().mean(-1)
    jitter = torch.zeros_like(size)
    for attempt in range(JITTER_TRIES):
        # Only the elements of a batch that need it are changed.
        needed = torch.where(info > 0, torch.finfo(K.dtype).eps * size * 10.0 ** (attempt + 1), jitter)
        diagonal.add_((needed - jitter).unsqueeze(-1))
        jitter = needed
        factor, info = torch.linalg.cholesky_ex(A)
        if not info.any():
            warnings.warn(
                f"{name} was not numerically positive definite with η = {ridge.min().item():.2g}; "
                f"added jitter {jitter.max().item():.2g} to its diagonal. A larger regularization avoids this.",
                NumericalWarning,
                stacklevel=4,
            )
            return factor, jitter
    raise NotPSDError(
        f"Expected a positive definite {name}, but with η = {ridge.min().item():.2g} it is not, even with jitter "
        f"{jitter.max().item():.2g} on a mean diagonal of {size.mean().item():.2g}. Is the kernel positive definite? "
        "If it is, raise the regularization or use float64."
    )


class _Regress(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, ridge: Tensor, Y: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        V = torch.cholesky_solve(Y, factor)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(K, V, factor)
        # P = Y − ηV as well, but that form loses the digits of P where η is much larger than K.
        return V, K @ V

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G_V: Tensor | None, G_P: Tensor | None) -> tuple[Tensor | None, ...]:
        K, V, factor = ctx.saved_tensors
        if G_V is None and G_P is None:
            return None, None, None, None
        right = torch.zeros_like(V) if G_V is None else G_V
        B = torch.cholesky_solve(right if G_P is None else right + K @ G_P, factor)
        left = -B if G_P is None else G_P - B
        gradient_K = left @ V.mT if ctx.needs_input_grad[0] else None
        return gradient_K, -(B * V).sum((-2, -1)), B, None


class _InverseDiagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, ridge: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(inverse)
        return inverse.diagonal(dim1=-2, dim2=-1).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        (inverse,) = ctx.saved_tensors
        gradient = sandwich(inverse, -g)
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum(-1), None


class _LogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, ridge: Tensor, system: RidgeSystem) -> Tensor:
        ctx.system = system
        return 2.0 * system._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        inverse = ctx.system._inverse
        return g[..., None, None] * inverse, g * inverse.diagonal(dim1=-2, dim2=-1).sum(-1), None


class _NegativeLogDensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, ridge: Tensor, Y: Tensor, factor: Tensor) -> Tensor:
        # Two triangular solves read the factor in place, where cholesky_solve copies it first.
        V = torch.linalg.solve_triangular(factor, Y, upper=False)
        V = torch.linalg.solve_triangular(factor.mT, V, upper=True)
        ctx.save_for_backward(V, factor)
        half_log_determinant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        quadratic: Tensor = (Y * V).sum((-2, -1))
        n, m = Y.shape[-2:]
        return 0.5 * quadratic + m * (half_log_determinant + 0.5 * n * math.log(2.0 * math.pi))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        V, factor = ctx.saved_tensors
        gradient_Y = g[..., None, None] * V
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, gradient_Y, None
        gradient, m = torch.cholesky_inverse(factor), V.shape[-1]
        if gradient.dim() == 2:
            gradient.addmm_(V, V.mT, alpha=-0.5 * g.item(), beta=0.5 * m * g.item())
        else:
            gradient.mul_(m).sub_(V @ V.mT).mul_(0.5 * g[..., None, None])
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum(-1), gradient_Y, None


def cholesky_factor(A: Tensor) -> Tensor:
    """The lower Cholesky factor of small matrices, differentiable; for lengthscale matrices, not for Gram matrices."""
    factor: Tensor = torch.linalg.cholesky(A)
    return factor


def sandwich(C: Tensor, g: Tensor) -> Tensor:
    """C diag(g) C for symmetric ``C``: half the work of the plain product, and none for entries with g = 0."""
    n = C.shape[-1]
    if g.dim() == 1:
        kept = g.nonzero().squeeze(-1)
        if 2 * kept.numel() < n:
            half = C[:, kept]
            return (half * g[kept]) @ half.mT
    if n <= BLOCK:
        return (C * g.unsqueeze(-2)) @ C
    product = torch.empty_like(C)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        rows = (C[..., start:stop, :] * g.unsqueeze(-2)) @ C[..., :, :stop]
        product[..., start:stop, :stop] = rows
        product[..., :start, start:stop] = rows[..., :, :start].mT
    return product
