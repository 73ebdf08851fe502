r"""The system :math:`A = K + \eta W^{-1}` through the Cholesky factor of A: exact, in O(n³).

Derivatives are implicit, never through the factor; with :math:`D = \eta W^{-1}`,

.. math::
    V = A^{-1} Y,\; P = K V &: \quad \partial q/\partial K = (G_P - B) V^\top, \; B = A^{-1} (G_V + K G_P) \\
    c = \operatorname{diag} A^{-1} &: \quad \partial q/\partial K = -A^{-1} \operatorname{diag}(g) A^{-1} \\
    (\operatorname{diag} A^{-1} L A^{-1}, c) &: \quad \partial q/\partial K = -A^{-1} (N + N^\top) A^{-1}, \;
                                       N = L A^{-1} \operatorname{diag}(a) + \tfrac12 \operatorname{diag}(g) \\
    \log \lvert A \rvert       &: \quad \partial q/\partial K = g A^{-1} \\
    -\log \mathcal N(Y; 0, A) &: \quad \partial q/\partial K = \tfrac g2 (m A^{-1} - V V^\top), \;
                                       \partial q/\partial Y = g V

with :math:`\partial q / \partial D_{ii} = -\sum_c B_{ic} V_{ic}` for the first, and the diagonal of
:math:`\partial q / \partial K` for the others.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.autograd.function import once_differentiable

from .forms import QuadraticForm
from .system import LinearSystem

BLOCK = 192
JITTER_TRIES = 6


class DenseSystem(LinearSystem):
    r"""A = K + ηW⁻¹ with its Cholesky factor, for ``K`` of shape ``(*batch, n, n)`` and ``ridge`` η of shape ``batch``.

    Where A is not numerically positive definite, jitter is added to η and announced with a ``NumericalWarning``;
    :attr:`ridge` is the value in force, so that identities such as K V = Y − ηV hold for the system solved.

    Args:
        K: the Gram matrix.
        ridge: η.
        weights: w, ``(*batch, n)`` or ``(n,)``; 1 for every row by default.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> system = DenseSystem(K, torch.tensor(1.0, dtype=torch.float64))
        >>> system.solve(torch.tensor([[8.0], [0.0]], dtype=torch.float64)).flatten().round(decimals=9)
        tensor([ 3., -1.], dtype=torch.float64)
    """

    def __init__(self, K: Tensor, ridge: Tensor, weights: Tensor | None = None) -> None:
        self.K, self.weights = K, weights
        noise = ridge.unsqueeze(-1) if weights is None else ridge.unsqueeze(-1) / weights
        self._factor, self.jitter = factorize(K.detach(), noise.detach())
        jittered = bool(self.jitter.any())
        self.ridge = ridge + self.jitter if jittered else ridge
        self._noise = noise + self.jitter.unsqueeze(-1) if jittered else noise

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""
        Y = Y.expand(*self._factor.shape[:-2], *Y.shape[-2:])
        V, P = _Regress.apply(self.K, self._noise, Y, self._factor)
        return V, P

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y, without P = KV where no gradient is asked for."""
        if torch.is_grad_enabled():
            return self.regress(Y)[0]
        return torch.cholesky_solve(Y.expand(*self._factor.shape[:-2], *Y.shape[-2:]), self._factor)

    def coefficients(self, Y: Tensor) -> Tensor:
        """What the values k(x, x_i) are multiplied with to predict at x: V = A⁻¹Y itself."""
        return self.solve(Y)

    def gram(self) -> Tensor:
        """K itself."""
        return self.K

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The block of K of these rows and columns."""
        return self.K[..., rows, :][..., :, columns]

    def restricted(self, rows: Tensor, ridge: Tensor) -> DenseSystem:
        """The system of some of the rows, with another ridge."""
        return DenseSystem(self.block(rows, rows), ridge, None if self.weights is None else self.weights[..., rows])

    def diagonal(self) -> Tensor:
        """diag K, of shape ``(*batch, n)``."""
        return self.K.diagonal(dim1=-2, dim2=-1)

    def inverse_diagonal(self) -> Tensor:
        """c = diag A⁻¹, of shape ``(*batch, n)``."""
        diagonal: Tensor = _InverseDiagonal.apply(self.K, self._noise, self._inverse)
        return diagonal

    def inverse_forms(self, form: QuadraticForm) -> tuple[Tensor, Tensor]:
        """diag A⁻¹LA⁻¹ for a ``form`` L, and diag A⁻¹: ``(*batch, n)`` each."""
        q, c = _InverseForms.apply(self.K, self._noise, self._inverse, form)
        return q, c

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        value: Tensor = _LogDeterminant.apply(self.K, self._noise, self)
        return value

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) over the columns of ``Y`` ``(*batch, n, m)`` in nats, of shape ``batch``."""
        Y = Y.expand(*self._factor.shape[:-1], Y.shape[-1])
        value: Tensor = _NegativeLogDensity.apply(self.K, self._noise, Y, self._factor)
        return value

    def conditional_covariance(self, representation: Tensor, prior: Callable[[], Tensor]) -> Tensor:
        """k** − k*ᵀA⁻¹k*, exactly symmetric, for k*ᵀ = ``representation``."""
        spread = prior() - representation @ self.solve(representation.mT)
        return 0.5 * (spread + spread.mT)

    @functools.cached_property
    def _inverse(self) -> Tensor:
        return torch.cholesky_inverse(self._factor)


def factorize(K: Tensor, noise: Tensor, name: str = "K + ηI") -> tuple[Tensor, Tensor]:
    """The lower factor of K + diag(noise), and the jitter that had to be added (0 nearly always), of shape ``batch``.

    Args:
        K: ``(*batch, n, n)``.
        noise: ``(*batch, n)``, or ``(*batch, 1)`` for the same number on the whole diagonal.
        name: of the matrix, in messages.
    """
    A = K.clone()
    A.diagonal(dim1=-2, dim2=-1).add_(noise)
    factor, info = torch.linalg.cholesky_ex(A)
    # An infinite entry on the diagonal passes the factorization, and shows on the factor's own diagonal.
    finite = bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all())
    if finite and not info.any():
        return factor, noise.new_zeros(noise.shape[:-1])
    if not (finite and torch.isfinite(A).all()):
        raise NanError(
            f"Expected a finite kernel matrix, got {int((~torch.isfinite(A)).sum())} values that are not finite "
            f"among {A.numel()}. Look for hyperparameters that overflowed, or features on very different scales."
        )
    return _with_jitter(A, info, noise.min().item(), name)


def _with_jitter(A: Tensor, info: Tensor, smallest: float, name: str) -> tuple[Tensor, Tensor]:
    """The factor of A with as little jitter as it takes, announced."""
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    size = diagonal.abs().mean(-1)
    jitter = torch.zeros_like(size)
    for attempt in range(JITTER_TRIES):
        # Only the elements of a batch that need it are changed.
        needed = torch.where(info > 0, torch.finfo(A.dtype).eps * size * 10.0 ** (attempt + 1), jitter)
        diagonal.add_((needed - jitter).unsqueeze(-1))
        jitter = needed
        factor, info = torch.linalg.cholesky_ex(A)
        if not info.any():
            warnings.warn(
                f"{name} was not numerically positive definite with η = {smallest:.2g}; "
                f"added jitter {jitter.max().item():.2g} to its diagonal. A larger regularization avoids this.",
                NumericalWarning,
                stacklevel=5,
            )
            return factor, jitter
    raise NotPSDError(
        f"Expected a positive definite {name}, but with η = {smallest:.2g} it is not, even with jitter "
        f"{jitter.max().item():.2g} on a mean diagonal of {size.mean().item():.2g}. Is the kernel positive definite? "
        "If it is, raise the regularization or use float64."
    )


class _Regress(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y, P = KV."""
        V = torch.cholesky_solve(Y, factor)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(K, noise, V, factor)
        # P = Y − DV as well, but that form loses the digits of P where η is much larger than K.
        return V, K @ V

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, G_V: Tensor | None, G_P: Tensor | None) -> tuple[Tensor | None, ...]:
        """B = A⁻¹(G_V + KG_P), ∂q/∂K = (G_P − B)Vᵀ."""
        K, noise, V, factor = ctx.saved_tensors
        if G_V is None and G_P is None:
            return None, None, None, None
        right = torch.zeros_like(V) if G_V is None else G_V
        B = torch.cholesky_solve(right if G_P is None else right + K @ G_P, factor)
        left = -B if G_P is None else G_P - B
        gradient_K = left @ V.mT if ctx.needs_input_grad[0] else None
        return gradient_K, -(B * V).sum(-1).sum_to_size(noise.shape), B, None


class _InverseDiagonal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, inverse: Tensor) -> Tensor:
        """c = diag A⁻¹."""
        ctx.save_for_backward(noise, inverse)
        return inverse.diagonal(dim1=-2, dim2=-1).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """∂q/∂K = −A⁻¹ diag(g) A⁻¹."""
        noise, inverse = ctx.saved_tensors
        gradient = sandwich(inverse, -g)
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None


class _InverseForms(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, inverse: Tensor, form: QuadraticForm) -> tuple[Tensor, Tensor]:
        """diag A⁻¹LA⁻¹ and diag A⁻¹."""
        T = form.apply(inverse)
        ctx.save_for_backward(noise, inverse, T)
        return (inverse * T).sum(-2), inverse.diagonal(dim1=-2, dim2=-1).clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, a: Tensor, g: Tensor) -> tuple[Tensor, Tensor, None, None]:
        """∂q/∂K = −A⁻¹(N + Nᵀ)A⁻¹, N = LA⁻¹ diag(a) + ½ diag(g): one full and one symmetric product."""
        noise, inverse, T = ctx.saved_tensors
        half = T * a.unsqueeze(-2)
        N = half + half.mT
        N.diagonal(dim1=-2, dim2=-1).add_(g)
        gradient = symmetric_product(inverse, N @ inverse).neg_()
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None, None


class _LogDeterminant(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, system: DenseSystem) -> Tensor:
        """log det A."""
        ctx.system = system
        ctx.save_for_backward(noise)
        return 2.0 * system._factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        """∂q/∂K = gA⁻¹."""
        (noise,) = ctx.saved_tensors
        gradient = g[..., None, None] * ctx.system._inverse
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), None


class _NegativeLogDensity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, K: Tensor, noise: Tensor, Y: Tensor, factor: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A)."""
        # Two triangular solves read the factor in place, where cholesky_solve copies it first.
        V = torch.linalg.solve_triangular(factor, Y, upper=False)
        V = torch.linalg.solve_triangular(factor.mT, V, upper=True)
        ctx.save_for_backward(noise, V, factor)
        half_log_determinant = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        quadratic: Tensor = (Y * V).sum((-2, -1))
        n, m = Y.shape[-2:]
        return 0.5 * quadratic + m * (half_log_determinant + 0.5 * n * math.log(2.0 * math.pi))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """∂q/∂K = ½g(mA⁻¹ − VVᵀ), ∂q/∂Y = gV."""
        noise, V, factor = ctx.saved_tensors
        gradient_Y = g[..., None, None] * V
        if not (ctx.needs_input_grad[0] or ctx.needs_input_grad[1]):
            return None, None, gradient_Y, None
        gradient, m = torch.cholesky_inverse(factor), V.shape[-1]
        if gradient.dim() == 2:
            gradient.addmm_(V, V.mT, alpha=-0.5 * g.item(), beta=0.5 * m * g.item())
        else:
            gradient.mul_(m).sub_(V @ V.mT).mul_(0.5 * g[..., None, None])
        return gradient, gradient.diagonal(dim1=-2, dim2=-1).sum_to_size(noise.shape), gradient_Y, None


def sandwich(C: Tensor, g: Tensor) -> Tensor:
    """C diag(g) C for symmetric ``C``: half the work of the plain product, and none for entries with g = 0."""
    if g.dim() == 1 and 2 * len(kept := g.nonzero().squeeze(-1)) < C.shape[-1]:
        half = C[:, kept]
        return (half * g[kept]) @ half.mT
    return symmetric_product(C, C, g)


def symmetric_product(left: Tensor, right: Tensor, scale: Tensor | None = None) -> Tensor:
    """``left diag(scale) right`` for matrices whose product is symmetric: half the work, the rest is mirrored."""
    n = left.shape[-2]
    product = torch.empty_like(left)
    for start in range(0, n, BLOCK):
        stop = min(start + BLOCK, n)
        rows = left[..., start:stop, :] if scale is None else left[..., start:stop, :] * scale.unsqueeze(-2)
        product[..., start:stop, :stop] = rows = rows @ right[..., :, :stop]
        product[..., :start, start:stop] = rows[..., :, :start].mT
    return product
