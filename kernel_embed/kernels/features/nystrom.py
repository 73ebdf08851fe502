r"""Nyström's features of a kernel at inducing points U.

.. math::
    z(x) = (Q \Lambda^{-1/2})^\top k(U, x), \qquad k(U, U) = Q \Lambda Q^\top
"""

from __future__ import annotations

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ...linalg import whitening
from ...validation import check_features
from ..classes.feature import FeatureKernel
from ..frozen import frozen
from ..gram import gram
from ..structure import batch_shape_of, check_kernel


class NystromFeatures(torch.nn.Module):
    """z(x) = Rᵀk(U, x) with RᵀK_UU R = I, for inducing points ``points`` U ``(s, d)``."""

    points: Tensor
    R: Tensor
    is_deterministic = True

    def __init__(self, kernel: Kernel, points: Tensor) -> None:
        super().__init__()
        check_kernel(kernel)
        if len(batch_shape_of(kernel)) > 0:
            raise ValueError(
                f"Expected a kernel without batch shape, got {tuple(kernel.batch_shape)}. "
                "Approximate each kernel of the batch alone."
            )
        points = check_features(points, "points")
        self.kernel = frozen(kernel).eval()
        with torch.no_grad():
            R = whitening(gram(self.kernel, points))
        self.register_buffer("points", points)
        self.register_buffer("R", R)

    def forward(self, x: Tensor) -> Tensor:
        """Features of rows ``x`` ``(n, d)``: ``(n, s)``, or fewer where K_UU is singular."""
        return gram(self.kernel, x, self.points) @ self.R


def nystrom_kernel(kernel: Kernel, points: Tensor) -> Kernel:
    """The kernel k(x, U) k(U, U)⁻¹ k(U, x') of inducing ``points`` U, with s explicit features.

    Args:
        kernel: any GPyTorch kernel.
        points: U, ``(s, d)``.

    Returns:
        A kernel with explicit features.

    Raises:
        TypeError: if ``points`` is not a tensor of real numbers.
        ValueError: if there are more points than a matrix of them can hold in memory, none, or values that are not
            finite.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> x = torch.rand(40, 1, dtype=torch.float64)
        >>> approximation = nystrom_kernel(RBFKernel().double(), x[:20])
        >>> bool((gram(approximation, x) - gram(RBFKernel().double(), x)).abs().max() < 1e-4)
        True
    """
    points = check_features(points, "points")
    if points.shape[0] > math.isqrt(2**31):
        raise ValueError(
            f"Expected fewer inducing points, got {points.shape[0]}, whose own matrix would not fit. Give fewer."
        )
    return FeatureKernel(NystromFeatures(kernel, points))
