r"""Quantities of :math:`A = K + D`, :math:`D = \eta W^{-1}`, and their derivatives: implicit, never through the factor.

.. math::
    V = A^{-1} Y,\; P = K V &: \quad \partial q/\partial K = (G_P - B) V^\top, \; B = A^{-1} (G_V + K G_P) \\
    c = \operatorname{diag} A^{-1} &: \quad \partial q/\partial K = -A^{-1} \operatorname{diag}(g) A^{-1} \\
    (\operatorname{diag} M, c) &: \quad \partial q/\partial K = -(N + N^\top), \;
               N = A^{-1} (\operatorname{diag}(a) M + \tfrac12 \operatorname{diag}(g) A^{-1}), \; M = A^{-1} L A^{-1} \\
    \log \lvert A \rvert       &: \quad \partial q/\partial K = g A^{-1} \\
    -\log \mathcal N(Y; 0, A) &: \quad \partial q/\partial K = \tfrac g2 (m A^{-1} - V V^\top), \;
                                       \partial q/\partial Y = g V

with :math:`\partial q / \partial D_{ii} = -\sum_c B_{ic} V_{ic}` for the first, and the diagonal of
:math:`\partial q / \partial K`, whose symmetric part alone matters, for the others. With groups, blocks take the place
of diagonals, and block-diagonal matrices that of diag(g) and diag(a).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..runtime import warn_numerical
from .forms import QuadraticForm
from .products import blocks_of, forms_gradient, inverse_from, inverse_gradient, sandwiched_form

if TYPE_CHECKING:
    from .regression import Units

Blocks = Tensor | tuple[Tensor, ...]
"""diag A⁻¹, ``(*batch, n)``; or with groups the blocks [A⁻¹]_GG, ``(*batch, g, s, s)`` for each size s."""
JITTER_TRIES = 6


def inner(A: Tensor, B: Tensor) -> Tensor:
    """⟨A, B⟩ over the last two dimensions, for tensors and NumPy arrays."""
    return np.vdot(A, B) if isinstance(A, np.ndarray) else (A * B).sum((-2, -1))


@dataclasses.dataclass
class Cotangents:
    """∂q for V, P, D, α², log |A|, −log N(Y; 0, A), and the parts of A⁻¹ and A⁻¹LA⁻¹; ``None`` for zero."""

    V: Tensor | None = None
    P: Tensor | None = None
    inverse: Sequence[Tensor | None] | None = None
    forms: Sequence[Tensor | None] | None = None
    noise: Tensor | None = None
    sup_diagonal: Tensor | None = None
    log_determinant: Tensor | None = None
    density: Tensor | None = None

    def add(self, name: str, *values: Tensor) -> None:
        """Add to the cotangent ``name``; one value for each array that it consists of."""
        before = getattr(self, name)
        if name in ("inverse", "forms"):
            setattr(self, name, values if before is None else [a + b for a, b in zip(before, values, strict=True)])
        else:
            setattr(self, name, values[0] if before is None else before + values[0])


class Factorization:
    """A = K + diag(noise) by its factor or its inverse: values without a graph, and their derivatives.

    Args:
        K: ``(*batch, n, n)``.
        noise: D, ``(*batch, n)`` or ``(*batch, 1)``.
        factor: the lower Cholesky factor. Without one, solutions are products with the inverse.
        inverse: A⁻¹.
    """

    V: Any = None
    """A⁻¹Y, for all calls with the same targets."""
    M: Any = None
    """A⁻¹LA⁻¹ of the last form."""

    def __init__(self, K: Tensor, noise: Tensor, factor: Any = None, inverse: Tensor | None = None) -> None:
        self.K, self.noise, self._factor = K, noise, factor
        self._inverse: Tensor | None = inverse

    @classmethod
    def of(cls, K: Tensor, noise: Tensor) -> Factorization:
        """A factorized, with jitter added to the noise if that is necessary."""
        factor, jitter = factorize(K, noise)
        return cls(K, noise if jitter is None else noise + jitter.unsqueeze(-1), factor)

    @property
    def inverse(self) -> Tensor:
        """A⁻¹, in the dtype of the factor."""
        if self._inverse is None:
            self._inverse = inverse_from(self._factor)
        return self._inverse

    def quantities(
        self,
        names: Sequence[str],
        Y: Tensor | None = None,
        units: Units | None = None,
        form: QuadraticForm | None = None,
        with_gradient: bool = True,
    ) -> list[tuple[Tensor, ...]]:
        """The quantities of these names in :class:`Cotangents`, each as one array or one for each size of groups."""
        if Y is not None and self.V is None:
            self.V = self._solve(Y)
        return [self._quantity(name, Y, units, form, with_gradient) for name in names]

    def _quantity(
        self, name: str, Y: Any, units: Units | None, form: QuadraticForm | None, with_gradient: bool
    ) -> tuple[Tensor, ...]:
        if name == "V":
            return (self.V,)
        if name == "P":  # = Y − DV as well, but that form loses the digits of P where η is much larger than K
            return (self.K @ self.V,)
        if name == "inverse":
            return self._parts(self.inverse, units)
        if name == "forms" and form is not None:
            return self._forms(form, units, with_gradient)
        if name == "log_determinant":
            return (self._log_determinant(),)
        n, m = Y.shape[-2:]
        return (0.5 * (inner(Y, self.V) + m * (self._log_determinant() + n * math.log(2.0 * math.pi))),)

    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""
        (V,), (P,) = self.quantities(("V", "P"), Y)
        return V, P

    def regress_left_out(self, Y: Tensor, units: Units | None = None) -> tuple[Tensor, Tensor, Blocks]:
        """V = A⁻¹Y, P = KV and diag A⁻¹ or its blocks, whose gradients are one symmetric product."""
        (V,), (P,), parts = self.quantities(("V", "P", "inverse"), Y, units)
        return V, P, _blocks(parts, units)

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y."""
        return self.quantities(("V",), Y)[0][0]

    def inverse_parts(self, units: Units | None = None) -> Blocks:
        """diag A⁻¹, or the blocks [A⁻¹]_GG where the units are groups of rows."""
        return _blocks(self.quantities(("inverse",), None, units)[0], units)

    def inverse_forms(self, form: QuadraticForm, units: Units | None = None) -> tuple[Blocks, Blocks]:
        """diag A⁻¹LA⁻¹ for a ``form`` L, and diag A⁻¹, ``(*batch, n)`` each; or the blocks of both."""
        forms, parts = self.quantities(("forms", "inverse"), None, units, form)
        return _blocks(forms, units), _blocks(parts, units)

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        return self.quantities(("log_determinant",))[0][0]

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) over the columns of ``Y`` ``(*batch, n, m)`` in nats, of shape ``batch``."""
        return self.quantities(("density",), Y)[0][0]

    def pull_back(
        self, at: Cotangents, units: Units | None = None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """A matrix whose symmetric part is ∂q/∂K, ∂q/∂D or its sum, and ∂q/∂Y without that of the density."""
        G = B = update = None
        V, noise = self.V, at.noise
        if at.V is not None or at.P is not None:
            right: Any = at.V if at.P is None else self.K @ at.P
            B = self._solve(right if at.P is None or at.V is None else right + at.V)
            update = (-B if at.P is None else at.P - B), V
            noise = _sum(noise, -self.row_sums(B, V))
        if at.inverse is not None or at.forms is not None:
            G, diagonal = self._inverse_gradient(at, units, update)
            noise = _sum(noise, diagonal)
        elif update is not None:
            G = update[0] @ update[1].swapaxes(-1, -2)
        if at.log_determinant is not None or at.density is not None:
            part, diagonal = self._determinant_gradient(at)
            G, noise = _sum(G, part), _sum(noise, diagonal)
        return G, noise, B

    # The primitives, which :class:`~kernel_embed.linalg.lapack.LapackFactorization` has for NumPy arrays:

    def _solve(self, B: Tensor) -> Tensor:
        """A⁻¹B, with one step of iterative refinement unless by a factor with as many digits as ``B``."""
        if self._factor is not None and self._factor.dtype == B.dtype:
            return _solve_by(self._factor, B)
        # A product with the inverse is less stable than a solve, and gets the step of refinement, too.
        X = self._solve_once(B)
        return X + self._solve_once(B - self.K @ X - self.noise.unsqueeze(-1) * X)

    def _solve_once(self, B: Tensor) -> Tensor:
        if self._factor is not None:
            return _solve_by(self._factor, B.to(self._factor)).to(B)
        return (self.inverse @ B.to(self.inverse)).to(B)

    def row_sums(self, A: Tensor, B: Tensor) -> Tensor:
        """Σ_j A_ij B_ij, where one noise for all rows allows also the sum over i."""
        return (A * B).sum(-1)

    def _log_determinant(self) -> Tensor:
        L: Tensor = self._factor
        return 2.0 * L.diagonal(dim1=-2, dim2=-1).to(self.K).log().sum(-1)

    def _parts(self, C: Tensor, units: Units | None) -> tuple[Tensor, ...]:
        """The diagonal of ``C``, or its blocks where units are groups, in the dtype of K."""
        if units is None or units.labels is None:
            return (C.diagonal(dim1=-2, dim2=-1).to(self.K, copy=True),)
        return tuple(block.to(self.K) for block in units.blocks(C))

    def _forms(self, form: QuadraticForm, units: Units | None, with_gradient: bool) -> tuple[Tensor, ...]:
        """diag A⁻¹LA⁻¹ or its blocks; diagonals without a gradient do not need all of the matrix."""
        self._inverse = C = self.inverse.to(self.K)
        if with_gradient or (units is not None and units.labels is not None):
            self.M = self._form_product(form)
            return self._parts(self.M, units)
        columns = (C[..., block] for block in blocks_of(C.shape[-1]))
        return (torch.cat([(c * form.apply(c)).sum(-2) for c in columns], dim=-1),)

    def _form_product(self, form: QuadraticForm) -> Tensor:
        return sandwiched_form(self.inverse, form)

    def _inverse_gradient(
        self, at: Cotangents, units: Units | None, update: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """−(C diag(g) C + C diag(a) M + M diag(a) C) + LVᵀ for ``update`` (L, V), and the diagonal of the first."""
        groups, C = None if units is None or units.labels is None else units, self.inverse
        if at.forms is not None:
            M, self.M = self.M, None
            return forms_gradient(C, M, at.forms, at.inverse, groups, update)
        update = None if update is None else (update[0].to(C), update[1].to(C))
        G, diagonal = inverse_gradient(C, at.inverse, groups, update)
        return G.to(self.K), diagonal.to(self.K)

    def _determinant_gradient(self, at: Cotangents) -> tuple[Tensor, Tensor]:
        """gA⁻¹ + ½h(mA⁻¹ − VVᵀ), over the inverse if it was computed for this, and its diagonal."""
        scale: Any = at.log_determinant
        V, fresh = self.V, self._inverse is None
        if at.density is not None:
            scale = _sum(scale, 0.5 * V.shape[-1] * at.density)
        part = self.inverse.to(self.K)
        part, self._inverse = (part, None) if fresh else (part.clone(), self._inverse)
        if part.dim() == 2 and at.density is not None:
            part.addmm_(V, V.mT, beta=scale.item(), alpha=-0.5 * at.density.item())
            return part, part.diagonal()
        part *= scale[..., None, None]
        if at.density is not None:
            part -= (0.5 * at.density[..., None, None] * V) @ V.mT
        return part, part.diagonal(dim1=-2, dim2=-1)


def _solve_by(factor: Tensor, B: Tensor) -> Tensor:
    """A⁻¹B by two triangular solves, which read the factor in place where ``cholesky_solve`` copies it first."""
    half = torch.linalg.solve_triangular(factor, B, upper=False)
    V: Tensor = torch.linalg.solve_triangular(factor.mT, half, upper=True)
    return V


def _sum(one: Tensor | None, other: Tensor) -> Tensor:
    return other if one is None else one + other


def _blocks(parts: tuple[Tensor, ...], units: Units | None) -> Blocks:
    return parts[0] if units is None or units.labels is None else parts


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
        raise NanError(
            f"Expected a finite kernel matrix, got {int((~torch.isfinite(A)).sum())} values that are not finite "
            f"among {A.numel()}. Look for hyperparameters that overflowed, or features on very different scales."
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
