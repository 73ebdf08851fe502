r"""The system :math:`A = K + \eta W^{-1}` through the Cholesky factor of A: exact, in O(n³).

Derivatives are implicit, never through the factor: see :mod:`kernel_embed.linalg.implicit`.

**Mixed precision.** A factor in float32, refined in float64, halves the memory and time of the O(n³) part. With
:math:`\hat L` the factor of A in float32, one step of iterative refinement in float64 is

.. math::  V_0 = \hat A^{-1} Y, \qquad V = V_0 + \hat A^{-1} (Y - A V_0) , \qquad
           \frac{\lVert V - A^{-1} Y \rVert}{\lVert A^{-1} Y \rVert} \lesssim (u \kappa)^2, \quad u = 6 \cdot 10^{-8},

with :math:`\kappa` the condition number of A. The diagonal of the inverse and the gradient are not refined, and have an
error of the order of :math:`u \kappa`. A bound, :math:`\kappa \le \lVert A \rVert_\infty / \min_i D_{ii}`, is
available; if it is too large, the factor is computed in double precision, with a warning.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..progress import warn_numerical
from .forms import QuadraticForm
from .implicit import (
    InverseForms,
    InverseParts,
    LogDeterminant,
    NegativeLogDensity,
    Regress,
    RegressLeftOut,
    sandwiched_form,
    solved,
)
from .products import blocks_of, inverse_from
from .system import LinearSystem
from .units import Blocks, Units

MAX_CONDITION = 1e5
"""The largest bound of κ for which a factor is made in single precision: uκ is 0.006 there, at worst."""

SINGLE_PRECISION = contextvars.ContextVar("single precision", default=False)
"""Whether new dense systems try :func:`single_factor`."""


@contextlib.contextmanager
def single_precision(enabled: bool = True) -> Iterator[None]:
    """Factorize dense systems in float32 inside the block, for data in float64; solutions are refined to float64.

    Args:
        enabled: ``False`` changes nothing.

    Example:
        >>> from kernel_embed.linalg import DenseSystem, single_precision
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> with single_precision():
        ...     system = DenseSystem(K, torch.tensor(1.0, dtype=torch.float64))
        >>> system.solve(torch.tensor([[8.0], [0.0]], dtype=torch.float64)).flatten().round(decimals=9)
        tensor([ 3., -1.], dtype=torch.float64)
    """
    token = SINGLE_PRECISION.set(enabled)
    try:
        yield
    finally:
        SINGLE_PRECISION.reset(token)


def single_factor(K: Tensor, noise: Tensor) -> Tensor | None:
    """The factor of K + diag(noise) in float32; ``None`` if it is too inaccurate or saves nothing."""
    if K.dtype != torch.float64:
        return None
    condition = float(((torch.linalg.vector_norm(K, ord=1, dim=-1) + noise) / noise.amin(-1, keepdim=True)).amax())
    if condition <= MAX_CONDITION:
        A = K.float()
        A.diagonal(dim1=-2, dim2=-1).add_(noise)
        factor: Tensor
        factor, info = torch.linalg.cholesky_ex(A)
        if not info.any() and bool(torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all()):
            return factor
    warn_numerical(
        f"The condition number of K + ηI may be {condition:.1e}, and single precision takes up to {MAX_CONDITION:.0e}; "
        "went on in double. A larger regularization avoids this.",
        stacklevel=4,
    )
    return None


JITTER_TRIES = 6


class DenseSystem(LinearSystem):
    r"""A = K + ηW⁻¹ with its Cholesky factor, for ``K`` of shape ``(*batch, n, n)`` and ``ridge`` η of shape ``batch``.

    Where A is not numerically positive definite, jitter is added to η and announced with a ``NumericalWarning``;
    :attr:`ridge` includes it, so that identities such as K V = Y − ηV hold for the system solved.

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
        self._cached_factor: Tensor | None
        self._cached_factor = single_factor(K.detach(), noise.detach()) if SINGLE_PRECISION.get() else None
        self.jitter = noise.new_zeros(noise.shape[:-1])
        if self._cached_factor is None:
            self._cached_factor, self.jitter = factorize(K.detach(), noise.detach())
        jittered = bool(self.jitter.any())
        self.ridge = ridge + self.jitter if jittered else ridge
        self.noise = noise + self.jitter.unsqueeze(-1) if jittered else noise

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""
        Y = Y.expand(*self._factor.shape[:-2], *Y.shape[-2:])
        V, P = Regress.apply(self.K, self.noise, Y, self._factor)
        return V, P

    def regress_left_out(self, Y: Tensor, units: Units | None = None) -> tuple[Tensor, Tensor, Blocks]:
        """V = A⁻¹Y, P = KV and c = diag A⁻¹, or the blocks of A⁻¹, whose gradients are one symmetric product.

        If a gradient is needed, the inverse replaces the factor, so that at most three n × n matrices are in memory,
        and one more with groups; a later solve factorizes again.
        """
        if not (torch.is_grad_enabled() and self.K.requires_grad):
            return super().regress_left_out(Y, units)
        Y = Y.expand(*self.K.shape[:-1], Y.shape[-1])
        groups = _groups(units)
        V, P, *parts = RegressLeftOut.apply(self.K, self.noise, Y, self._factor, self._inverse, groups)
        self._cached_factor = None
        return V, P, parts[0] if groups is None else tuple(parts)

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y, without P = KV if no gradient is needed."""
        if torch.is_grad_enabled() and any(t.requires_grad for t in (self.K, self.noise, Y)):
            return self.regress(Y)[0]
        Y = Y.expand(*self._factor.shape[:-2], *Y.shape[-2:])
        if self._factor.dtype != Y.dtype:
            return solved(self.K, self.noise, self._factor, Y)
        return torch.cholesky_solve(Y, self._factor)

    def coefficients(self, Y: Tensor) -> Tensor:
        """The coefficients of the values k(x, x_i) in predictions: V = A⁻¹Y."""
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
        diagonal: Tensor = InverseParts.apply(self.K, self.noise, self._inverse, None)[0]
        return diagonal

    def inverse_blocks(self, units: Units) -> tuple[Tensor, ...]:
        """The blocks [A⁻¹]_GG of the groups of each size s, ``(*batch, g, s, s)``."""
        blocks: tuple[Tensor, ...] = InverseParts.apply(self.K, self.noise, self._inverse, units)
        return blocks

    def inverse_forms(self, form: QuadraticForm, units: Units | None = None) -> tuple[Blocks, Blocks]:
        """diag A⁻¹LA⁻¹ for a ``form`` L, and diag A⁻¹, ``(*batch, n)`` each; or the blocks of both.

        If a gradient is needed, the factor is released, as in :meth:`regress_left_out`.
        """
        groups = _groups(units)
        if torch.is_grad_enabled() and (self.K.requires_grad or self.noise.requires_grad):
            inverse, self._cached_factor = self._inverse.to(self.K), None
            parts = InverseForms.apply(self.K, self.noise, inverse, form, groups)
            half = len(parts) // 2
            return parts if groups is None else (parts[:half], parts[half:])
        inverse = self._inverse.to(self.K)
        if groups is not None:
            return groups.blocks(sandwiched_form(inverse, form)), groups.blocks(inverse)
        q = torch.empty_like(inverse[..., 0])
        for block in blocks_of(inverse.shape[-1]):
            columns = inverse[..., block]
            q[..., block] = (columns * form.apply(columns)).sum(-2)
        return q, self.inverse_diagonal()

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        value: Tensor = LogDeterminant.apply(self.K, self.noise, self)
        return value

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) over the columns of ``Y`` ``(*batch, n, m)`` in nats, of shape ``batch``."""
        Y = Y.expand(*self._factor.shape[:-1], Y.shape[-1])
        value: Tensor = NegativeLogDensity.apply(self.K, self.noise, Y, self._factor)
        return value

    def conditional_covariance(self, representation: Tensor, prior: Callable[[], Tensor]) -> Tensor:
        """k** − k*ᵀA⁻¹k*, exactly symmetric, for k*ᵀ = ``representation``."""
        spread = prior() - representation @ self.solve(representation.mT)
        return 0.5 * (spread + spread.mT)

    @property
    def _factor(self) -> Tensor:
        if self._cached_factor is None:
            self._cached_factor = factorize(self.K.detach(), self.noise.detach())[0]
        return self._cached_factor

    @functools.cached_property
    def _inverse(self) -> Tensor:
        return inverse_from(self._factor)


def _groups(units: Units | None) -> Units | None:
    """The units, if some of them are groups of rows."""
    return None if units is None or units.labels is None else units


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
    """The factor of A with as little jitter as necessary, and a warning."""
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
            warn_numerical(
                f"{name} was not numerically positive definite with η = {smallest:.2g}; "
                f"added jitter {jitter.max().item():.2g} to its diagonal. A larger regularization avoids this.",
                stacklevel=5,
            )
            return factor, jitter
    raise NotPSDError(
        f"Expected a positive definite {name}, but with η = {smallest:.2g} it is not, even with jitter "
        f"{jitter.max().item():.2g} on a mean diagonal of {size.mean().item():.2g}. Is the kernel positive definite? "
        "If it is, raise the regularization or use float64."
    )
