r"""A V = Y for A = K + ηI by preconditioned conjugate gradients, through linear_operator, with K never stored."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from linear_operator.utils.linear_cg import linear_cg
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

from ..runtime import warn_numerical
from .system import LinearSystem

RESTARTS = 12


class IterativeSystem(LinearSystem):
    """A = K + ηI as products with vectors, V ↦ KV: no n × n matrix, no factor, and no gradient.

    The ``preconditioner`` is a system near this one, such as that of Nyström features. ‖AV − Y‖ ≤ ``tolerance`` ‖Y‖ or
    ``max_iterations`` products with A end the iteration.
    """

    def __init__(
        self,
        product: Callable[[Tensor], Tensor],
        diagonal: Tensor,
        ridge: Tensor,
        preconditioner: LinearSystem,
        tolerance: float = 1e-6,
        max_iterations: int = 1000,
    ) -> None:
        self.product, self.ridge, self.preconditioner = product, ridge, preconditioner
        self.tolerance, self.max_iterations = tolerance, max_iterations
        self._diagonal, self.num_iterations = diagonal, 0

    @torch.no_grad()
    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y with ‖AV − Y‖ ≤ ``tolerance`` ‖Y‖, or a warning, and P = Y − ηV."""
        count = 0

        def product(V: Tensor) -> Tensor:
            nonlocal count
            count += 1
            return self.product(V) + self.ridge * V

        V = torch.zeros_like(Y)
        # linear_cg loses its conjugacy over many orders of magnitude, so it restarts from the true residual.
        for _ in range(RESTARTS):
            residual = Y - product(V) if count else Y.clone()
            if bool(residual.norm() <= self.tolerance * Y.norm()) or count >= self.max_iterations:
                break
            target = max(float(0.3 * self.tolerance * Y.norm() / residual.norm()), 1e-4)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NumericalWarning)
                V = V + linear_cg(
                    product,
                    residual,
                    tolerance=target,
                    eps=torch.finfo(Y.dtype).tiny ** 0.5,
                    max_iter=max(self.max_iterations - count, 1),
                    max_tridiag_iter=0,
                    preconditioner=self.preconditioner.solve,
                )
        final = ((Y - product(V)).norm() / Y.norm()).item()
        if final > self.tolerance:
            warn_numerical(
                f"Conjugate gradients ended after {count} products with a residual of {final:.2g}, above the tolerance "
                f"{self.tolerance:.2g}. Allow more iterations, more points of the preconditioner, or a larger "
                "regularization.",
                stacklevel=3,
            )
        self.num_iterations = count
        return V, Y - self.ridge * V

    def coefficients(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y, the coefficients of the values k(x, x_i)."""
        return self.solve(Y)

    def diagonal(self) -> Tensor:
        """diag K, ``(n,)``, as passed."""
        return self._diagonal
