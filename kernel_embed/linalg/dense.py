r"""The system :math:`A = K + \eta W^{-1}` through the Cholesky factor of A: exact, in O(n³), and differentiable.

Fast backward passes use factors and inverses outside of the graph of autograd. With ``create_graph=True`` the backward
pass therefore differentiates the same formulas in plain torch operations (:class:`_Differentiable`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..runtime import warn_numerical
from .derivatives import through
from .factorization import Blocks, Factorization
from .forms import QuadraticForm
from .precision import SINGLE_PRECISION, single_factor
from .regression import Cotangents, Units
from .system import LinearSystem

JITTER_TRIES = 6


def factorize(K: Tensor, noise: Tensor, name: str = "K + ηI") -> tuple[Tensor, Tensor | None]:
    """The lower factor of K + diag(noise), and the jitter of shape ``batch`` that it needed, or ``None``."""
    A = K.clone()
    A.diagonal(dim1=-2, dim2=-1).add_(noise)
    factor, info = torch.linalg.cholesky_ex(A)
    # An infinite entry on the diagonal passes the factorization, and shows on the factor's own diagonal.
    finite = math.isfinite(factor.diagonal(dim1=-2, dim2=-1).sum().item())
    if finite and not (info.any() if info.dim() else info):
        return factor, None
    if not (finite and torch.isfinite(A).all()):
        bad = int((~torch.isfinite(A)).sum())
        raise NanError(
            f"Expected a finite kernel matrix, got {bad} values of {A.numel()} that are not: check hyperparameters."
        )
    diagonal = A.diagonal(dim1=-2, dim2=-1)
    size, smallest = diagonal.abs().mean(-1), noise.min().item()
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


class DenseSystem(Factorization, LinearSystem):
    r"""A = K + ηW⁻¹ with its Cholesky factor, for ``K`` of shape ``(*batch, n, n)`` and ``ridge`` η of shape ``batch``.

    Where A is not numerically positive definite, jitter is added to η and announced with a ``NumericalWarning``;
    :attr:`ridge` includes it, so that identities such as K V = Y − ηV hold for the system solved. The ``weights`` w are
    ``(*batch, n)`` or ``(n,)``; 1 for every row by default.

    Example:
        >>> K = torch.tensor([[2.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
        >>> system = DenseSystem(K, torch.tensor(1.0, dtype=torch.float64))
        >>> system.solve(torch.tensor([[8.0], [0.0]], dtype=torch.float64)).flatten().round(decimals=9)
        tensor([ 3., -1.], dtype=torch.float64)
    """

    def __init__(self, K: Tensor, ridge: Tensor, weights: Tensor | None = None, factor: Tensor | None = None) -> None:
        self.weights = weights
        noise = ridge.unsqueeze(-1) if weights is None else ridge.unsqueeze(-1) / weights
        jitter = None
        if factor is None and SINGLE_PRECISION.get():
            factor = single_factor(K.detach(), noise.detach())
        if factor is None:
            factor, jitter = factorize(K.detach(), noise.detach())
        self.jitter = ridge.new_zeros(noise.shape[:-1]) if jitter is None else jitter
        self.ridge = ridge if jitter is None else ridge + jitter
        super().__init__(K, noise if jitter is None else noise + jitter.unsqueeze(-1), factor)

    def quantities(
        self, names: Sequence[str], Y: Any = None, units: Units | None = None, form: QuadraticForm | None = None
    ) -> tuple[Any, ...]:
        """The quantities of :class:`~kernel_embed.linalg.factorization.Factorization` as one node of autograd.

        If a gradient needs the inverse, it replaces the factor, so that at most three n × n matrices are in memory, and
        one more with groups; a later solve factorizes again.
        """
        if Y is not None:
            Y = Y.expand(*self.K.shape[:-1], Y.shape[-1])
        if set(names) != {"inverse"}:
            self.factor()
        inputs = (self.K, self.noise) if Y is None else (self.K, self.noise, Y)
        if not _needs_gradient(inputs):
            values = super().quantities(names, Y, units, form)
            self.V = self.M = None
            return values
        outputs: tuple[Any, ...] = _Quantities.apply(self, names, units, form, *inputs)
        if units is None or units.labels is None:
            return outputs
        rest, sizes = iter(outputs), len(units.rows)
        return tuple(tuple(itertools.islice(rest, sizes)) if name in PARTED else next(rest) for name in names)

    def inverse_forms(self, form: QuadraticForm, units: Units | None = None) -> tuple[Blocks, Blocks]:
        """diag A⁻¹LA⁻¹ and diag A⁻¹, from the stored A⁻¹ if there are no groups and no gradient is needed."""
        if _needs_gradient((self.K, self.noise)) or (units is not None and units.labels is not None):
            return super().inverse_forms(form, units)
        return form.sandwiched_diagonal(self.inverse.to(self.K)), self.inverse_parts()

    def factor(self) -> Tensor:
        """The lower Cholesky factor of A."""
        factor: Tensor | None = self._factor
        if factor is None:
            factor = self._factor = factorize(self.K.detach(), self.noise.detach())[0]
        return factor

    def coefficients(self, Y: Tensor) -> Tensor:
        """The coefficients of the values k(x, x_i) in predictions: V = A⁻¹Y."""
        return self.solve(Y)

    def gram(self) -> Tensor:
        """K, as passed."""
        return self.K

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The block of K of these rows and columns."""
        return self.K[..., rows, :][..., :, columns]

    def restricted(self, rows: Tensor, ridge: Tensor) -> DenseSystem:
        """The system of K_RR for the rows R, with their weights and another ridge."""
        return DenseSystem(self.block(rows, rows), ridge, None if self.weights is None else self.weights[..., rows])

    def diagonal(self) -> Tensor:
        """diag K, of shape ``(*batch, n)``."""
        return self.K.diagonal(dim1=-2, dim2=-1)

    def conditional_covariance(self, representation: Tensor, prior: Callable[[], Tensor]) -> Tensor:
        """k** − k*ᵀA⁻¹k*, exactly symmetric, for k*ᵀ = ``representation``."""
        spread = prior() - representation @ self.solve(representation.mT)
        return 0.5 * (spread + spread.mT)


PARTED = ("inverse", "forms")
"""Quantities that have one part for each size of groups."""


def _needs_gradient(inputs: Sequence[Tensor]) -> bool:
    return torch.is_grad_enabled() and any(value.requires_grad for value in inputs)


class _Quantities(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, system: DenseSystem, names: Sequence[str], units: Units | None, form: Any, *inputs: Tensor
    ) -> tuple[Tensor, ...]:
        """The quantities of these names; ``inputs`` are K, D and, if there are targets, Y."""
        ctx.set_materialize_grads(False)
        values = Factorization.quantities(system, names, inputs[2] if len(inputs) > 2 else None, units, form)
        parts = [value if isinstance(value, tuple) else (value,) for value in values]
        ctx.request, ctx.sizes, ctx.M = (names, units, form), [len(part) for part in parts], system.M
        if system._inverse is not None:
            system._factor = None
        ctx.save_for_backward(system.V, system._factor, system._inverse, *inputs)
        system.V = system.M = None
        return tuple(itertools.chain(*parts))

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor | None) -> tuple[Tensor | None, ...]:
        """The gradients of K, D and Y."""
        (names, units, form), (V, factor, inverse, *inputs) = ctx.request, ctx.saved_tensors
        if torch.is_grad_enabled():

            def formula(K: Tensor, noise: Tensor, Y: Tensor | None = None) -> tuple[Tensor, ...]:
                values = _Differentiable(K, noise).quantities(names, Y, units, form)
                return tuple(itertools.chain(*(value if isinstance(value, tuple) else (value,) for value in values)))

            return None, None, None, None, *through(formula, inputs, cotangents)
        pieces, at = iter(cotangents), Cotangents()
        for name, size in zip(names, ctx.sizes, strict=True):
            piece = list(itertools.islice(pieces, size))
            if any(part is not None for part in piece):
                setattr(at, name, piece if name in PARTED else piece[0])
        factorization = Factorization(inputs[0], inputs[1], factor, inverse)
        # The gradient overwrites M; a second pass through a retained graph computes it again.
        factorization.V, factorization.M, factorization.form, ctx.M = V, ctx.M, form, None
        if at.forms is not None and factorization.M is None:
            factorization.M = factorization._form_product(form)
        G, noise, gradient_Y = factorization.pull_back(at, units)
        noise = None if noise is None else noise.sum_to_size(inputs[1].shape)
        if at.density is not None:
            along = at.density[..., None, None] * V
            gradient_Y = along if gradient_Y is None else gradient_Y + along
        return None, None, None, None, *(G, noise, gradient_Y)[: len(inputs)]


class _Differentiable(Factorization):
    """The same formulas in operations that autograd differentiates any number of times."""

    def __init__(self, K: Tensor, noise: Tensor) -> None:
        factor = torch.linalg.cholesky(0.5 * (K + K.mT) + torch.diag_embed(noise.expand(K.shape[:-1])))
        super().__init__(K, noise, factor, torch.cholesky_inverse(factor))

    def _solve(self, B: Tensor) -> Tensor:
        return self.inverse @ B

    def _form_product(self, form: QuadraticForm) -> Tensor:
        return self.inverse @ form.times(self.inverse)


def extended(system: DenseSystem, B: Tensor, D: Tensor, weights: Tensor | None = None) -> DenseSystem:
    r"""``system`` with t more rows of ``weights`` ``(t,)`` and the same ridge η, by a block update of its factor.

    .. math::
        A' = \begin{pmatrix} A & B \\ B^\top & D \end{pmatrix} = L' L'^\top, \qquad
        L' = \begin{pmatrix} L & 0 \\ M & N \end{pmatrix}, \quad M = (L^{-1} B)^\top, \quad N N^\top = D - M M^\top

    ``B`` ``(*batch, n, t)`` and ``D`` ``(*batch, t, t)`` are kernel values between old and new, and between new rows.
    This costs n²t instead of (n + t)³/3 multiplications, and the result is that of a new factorization to rounding.
    """
    n, t = B.shape[-2:]
    L, ridge = system.factor(), system.ridge
    M = torch.linalg.solve_triangular(L, B.detach(), upper=False).mT
    noise = ridge.unsqueeze(-1) if weights is None else ridge.unsqueeze(-1) / weights
    N, jitter = factorize(D.detach() - M @ M.mT, noise.detach())
    factor = L.new_zeros(*L.shape[:-2], n + t, n + t)
    factor[..., :n, :n], factor[..., n:, :n], factor[..., n:, n:] = L, M, N
    K = torch.cat([torch.cat([system.K, B], dim=-1), torch.cat([B.mT, D], dim=-1)], dim=-2)
    joined = joined_weights(system.weights, weights, n, t, K)
    # Jitter is added to all rows alike, so the old factor cannot be used if it needed jitter.
    return DenseSystem(K, ridge, joined, factor if jitter is None else None)


def joined_weights(old: Tensor | None, new: Tensor | None, n: int, t: int, like: Tensor) -> Tensor | None:
    """The weights of n old and t new rows, ``None`` if all are 1."""
    if old is None and new is None:
        return None
    first = like.new_ones(n) if old is None else old
    second = like.new_ones(t) if new is None else new.to(first)
    return torch.cat([first, second.expand(*first.shape[:-1], t)], dim=-1)
