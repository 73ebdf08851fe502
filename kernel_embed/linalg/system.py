r"""The interface of all regularized linear systems.

.. math::  A = K + \eta\, W^{-1}, \qquad W = \operatorname{diag}(w)

with the ridge :math:`\eta` and one weight for each row, :math:`w_i = 1` unless given: a row of weight 2 counts as two
equal rows, which are left out together, and a row with noise of variance :math:`\sigma_i^2` has :math:`\eta = 1`,
:math:`w_i = \sigma_i^{-2}`.
"""

from __future__ import annotations

import abc
from collections.abc import Callable

from torch import Tensor

from .factorization import Blocks
from .forms import QuadraticForm
from .regression import Units


class LinearSystem(abc.ABC):
    """A system that is factorized once and solved many times; exact ones are differentiable in K, η, w and Y.

    Those that store K or features have :meth:`gram`, :meth:`block` and :meth:`restricted`; those that hold a factor
    also :attr:`noise` and what follows :meth:`solve`.
    """

    ridge: Tensor
    weights: Tensor | None = None
    """w, one for each row; ``None`` if all are 1."""
    noise: Tensor
    """D = η/w, ``(*batch, n)``, or ``(*batch, 1)`` without weights."""
    num_features: int | None = None
    """p, where new points are represented by explicit features; ``None`` where by their kernel values k(x, x_i)."""

    @abc.abstractmethod
    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y and the fitted values P = KV, for ``Y`` of shape ``(*batch, n, m)``."""

    @abc.abstractmethod
    def coefficients(self, Y: Tensor) -> Tensor:
        """The coefficients C of predictions φ(x)ᵀC from the representation φ(x) of a new point: ``(*batch, p, m)``."""

    def gram(self) -> Tensor:
        """K, of shape ``(*batch, n, n)``, computed if it is not stored."""
        raise self._unavailable("the Gram matrix")

    def block(self, rows: Tensor, columns: Tensor) -> Tensor:
        """The block of K of these rows and columns."""
        raise self._unavailable("a block of K")

    def between(self, part: LinearSystem, rows: Tensor, part_rows: Tensor) -> Tensor:
        """The representation of some ``rows`` in ``part``, which is this system ``restricted(part_rows)``."""
        return self.block(rows, part_rows)

    def restricted(self, rows: Tensor, ridge: Tensor) -> LinearSystem:
        """The system of some of the rows, with another ridge."""
        raise self._unavailable("a part of the rows")

    @abc.abstractmethod
    def diagonal(self) -> Tensor:
        """diag K, of shape ``(*batch, n)``."""

    def gram_from(self, representation: Tensor) -> Tensor:
        """k(x, x_i) from the representation of new points: ``(*batch, t, n)``."""
        return representation

    def solve(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y for ``Y`` of shape ``(*batch, n, m)``."""
        return self.regress(Y)[0]

    def regress_left_out(self, Y: Tensor, units: Units | None = None) -> tuple[Tensor, Tensor, Blocks]:
        """V = A⁻¹Y, P = KV, and for leave-one-out values diag A⁻¹, or its blocks [A⁻¹]_GG for groups."""
        V, P = self.regress(Y)
        return V, P, self.inverse_parts(units)

    def inverse_parts(self, units: Units | None = None) -> Blocks:
        """diag A⁻¹ ``(*batch, n)``, or the blocks [A⁻¹]_GG ``(*batch, g, s, s)`` of the groups of each size s."""
        raise self._unavailable("the diagonal of the inverse, which leave-one-out values need")

    def inverse_diagonal(self) -> Tensor:
        """diag A⁻¹, of shape ``(*batch, n)``."""
        diagonal = self.inverse_parts()
        assert isinstance(diagonal, Tensor)
        return diagonal

    def inverse_forms(self, form: QuadraticForm, units: Units | None = None) -> tuple[Blocks, Blocks]:
        """diag A⁻¹LA⁻¹ for a ``form`` L, and diag A⁻¹, ``(*batch, n)`` each; for groups, the blocks of both."""
        raise self._unavailable("the forms of the inverse, which leave-one-out scores need")

    def log_determinant(self) -> Tensor:
        """log |A|, of shape ``batch``."""
        raise self._unavailable("the determinant, which an evidence needs")

    def negative_log_densities(self, Y: Tensor) -> Tensor:
        """−Σ_c log N(Y_c; 0, A) over the columns of ``Y`` ``(*batch, n, m)`` in nats, of shape ``batch``."""
        raise self._unavailable("a density")

    def conditional_covariance(self, representation: Tensor, prior: Callable[[], Tensor]) -> Tensor:
        """The covariance at t new points of a Gaussian process with covariance k, given noisy values at the rows."""
        raise self._unavailable("a posterior covariance")

    def _unavailable(self, what: str) -> TypeError:
        return TypeError(
            f"Expected a factorized system for {what}, got {type(self).__name__}. "
            "Condition the embedding exactly, or approximate it by features (Nystrom, RandomFeatures)."
        )


class Shards:
    """The rows of each rank. Here one rank has all rows; see ``kernel_embed.scale.distributed`` for several.

    Sums over rows, values at rows and their derivatives are the same on every rank. Only ∂q/∂Z is that of the own
    rows, times :attr:`size`, so that the mean over ranks of the gradients of parameters is the gradient.
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

    def require_one(self, what: str) -> bool:
        """True; raises if there are several ranks."""
        if self.size > 1:
            raise TypeError(f"{what} need all rows in one place, not over several ranks.")
        return True
