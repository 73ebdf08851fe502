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
    r"""A = K + ηI as products with vectors: no n × n matrix, no factor, and no gradient.

    Args:
        product: V ↦ KV.
        diagonal: diag K, ``(n,)``.
        ridge: η, a number.
        preconditioner: a system near this one, such as that of Nyström features.
        tolerance: ‖AV − Y‖ ≤ ``tolerance`` ‖Y‖ ends the iteration.
        max_iterations: a limit of products with A.
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
        self.num_iterations = 0
        self._diagonal = diagonal

    @torch.no_grad()
    def regress(self, Y: Tensor) -> tuple[Tensor, Tensor]:
        """V = A⁻¹Y up to the tolerance, and P = Y − ηV."""
        V, self.num_iterations = conjugate_gradients(
            lambda V: self.product(V) + self.ridge * V,
            Y,
            self.preconditioner.solve,
            self.tolerance,
            self.max_iterations,
        )
        return V, Y - self.ridge * V

    def coefficients(self, Y: Tensor) -> Tensor:
        """V = A⁻¹Y."""
        return self.solve(Y)

    def diagonal(self) -> Tensor:
        """diag K, of shape ``(n,)``."""
        return self._diagonal


def conjugate_gradients(
    product: Callable[[Tensor], Tensor],
    Y: Tensor,
    preconditioner: Callable[[Tensor], Tensor],
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, int]:
    """V with ‖AV − Y‖ ≤ ``tolerance`` ‖Y‖, and the number of products with A; a warning if that is not reached."""
    count = 0

    def matmul(V: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return product(V)

    V = torch.zeros_like(Y)
    # linear_cg loses its conjugacy over many orders of magnitude, so it restarts from the true residual.
    for _ in range(RESTARTS):
        residual = Y - matmul(V) if count else Y.clone()
        if bool(residual.norm() <= tolerance * Y.norm()) or count >= max_iterations:
            break
        target = max(float(0.3 * tolerance * Y.norm() / residual.norm()), 1e-4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            V = V + linear_cg(
                matmul,
                residual,
                tolerance=target,
                eps=torch.finfo(Y.dtype).tiny ** 0.5,
                max_iter=max(max_iterations - count, 1),
                max_tridiag_iter=0,
                preconditioner=preconditioner,
            )
    final = ((Y - matmul(V)).norm() / Y.norm()).item()
    if final > tolerance:
        warn_numerical(
            f"Conjugate gradients ended after {count} products with a residual of {final:.2g}, above the tolerance "
            f"{tolerance:.2g}. Allow more iterations, more points of the preconditioner, or a larger regularization.",
            stacklevel=4,
        )
    return V, count
