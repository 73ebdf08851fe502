r"""A V = Y for A = K + ηI by preconditioned conjugate gradients, through linear_operator, with K never stored.

A product with K forms a block of its rows at a time. The preconditioner is the exact inverse of a Nyström
approximation :math:`\hat K + \eta I`, through its s × s system.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from linear_operator.utils.linear_cg import linear_cg
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor

RESTARTS = 12


def conjugate_gradients(
    product: Callable[[Tensor], Tensor],
    Y: Tensor,
    preconditioner: Callable[[Tensor], Tensor],
    tolerance: float,
    max_iterations: int,
) -> tuple[Tensor, int]:
    """V with ‖AV − Y‖ ≤ ``tolerance`` ‖Y‖, and the number of products with A; a warning where that is not reached.

    Args:
        product: V ↦ AV.
        Y: right-hand sides, ``(n, m)``.
        preconditioner: Y ↦ Â⁻¹Y for an Â near A.
        tolerance: of the residual, relative to ‖Y‖.
        max_iterations: a limit of products.
    """
    count = 0

    def matmul(V: Tensor) -> Tensor:
        nonlocal count
        count += 1
        return product(V)

    V = torch.zeros_like(Y)
    # linear_cg loses its conjugacy over many orders of magnitude, so it starts anew from the true residual every few.
    for _ in range(RESTARTS):
        residual = Y - matmul(V) if count else Y.clone()
        if bool(residual.norm() <= tolerance * Y.norm()) or count >= max_iterations:
            break
        wanted = max(float(0.3 * tolerance * Y.norm() / residual.norm()), 1e-4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            V = V + linear_cg(
                matmul,
                residual,
                tolerance=wanted,
                eps=torch.finfo(Y.dtype).tiny ** 0.5,
                max_iter=max(max_iterations - count, 1),
                max_tridiag_iter=0,
                preconditioner=preconditioner,
            )
    final = ((Y - matmul(V)).norm() / Y.norm()).item()
    if final > tolerance:
        warnings.warn(
            f"Conjugate gradients ended after {count} products with a residual of {final:.2g}, above the tolerance "
            f"{tolerance:.2g}. Allow more iterations, more points of the preconditioner, or a larger regularization.",
            NumericalWarning,
            stacklevel=4,
        )
    return V, count
