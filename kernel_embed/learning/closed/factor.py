r"""The factor and the inverse of one symmetric matrix in one buffer, by LAPACK: a call each, and no copy.

For fifty rows a call through torch costs as much as its arithmetic. :math:`A = L L^\top` is written over A, and the
lower triangle T of :math:`A^{-1}` over L; what stands in the other triangle is zero, so that sums over it need no mask:

.. math::  \langle A^{-1}, M \rangle = 2 \langle T, M \rangle \quad \text{for symmetric } M \text{ with zero diagonal.}
"""

from __future__ import annotations

import numpy as np
import torch

from ..parameters import Vector

FEW_ROWS = 100
"""Below them LAPACK's triangle of the inverse is faster than the whole inverse by torch."""


class Factor:
    """A buffer for A, with the calls that turn it into L and T.

    Example:
        >>> factor = Factor(2)
        >>> factor.A[:] = [[4.0, 2.0], [2.0, 3.0]]
        >>> factor.factorize(), factor.solve(np.array([[1.0], [0.0]])).ravel().round(6).tolist()
        (True, [0.375, -0.25])
        >>> factor.inverse().round(6).tolist()
        [[0.375, -0.25], [-0.25, 0.5]]
        >>> factor.folded_inverse(2.0).round(6).tolist()
        [[0.75, -1.0], [0.0, 1.0]]
        >>> factor.T.round(6).tolist()
        [[0.375, 0.0], [-0.25, 0.5]]
    """

    def __init__(self, n: int) -> None:
        from scipy.linalg import lapack

        self._lapack = lapack
        self.A = np.empty((n, n), order="F")
        self.diagonal = self.A.T.reshape(-1)[:: n + 1]

    @property
    def T(self) -> Vector:
        """The lower triangle of A⁻¹, after :meth:`invert`."""
        return self.A

    def factorize(self) -> bool:
        """L over A; whether A is positive definite."""
        _, info = self._lapack.dpotrf(self.A, lower=1, clean=1, overwrite_a=1)
        return bool(info == 0)

    def solve(self, b: Vector) -> Vector:
        """A⁻¹b, after :meth:`factorize`."""
        solution: Vector = self._lapack.dpotrs(self.A, b, lower=1)[0]
        return solution

    def log_determinant(self) -> float:
        """log|A|, after :meth:`factorize`."""
        return 2.0 * float(np.log(self.diagonal).sum())

    def invert(self) -> None:
        """T over L."""
        self._lapack.dpotri(self.A, lower=1, overwrite_c=1)

    def folded_inverse(self, scale: float) -> Vector:
        """A matrix whose symmetric part is ``scale`` A⁻¹, by whichever road is faster; L may be gone."""
        if len(self.A) >= FEW_ROWS:
            C = self.inverse()
            C *= scale
            return C
        self.invert()
        folded: Vector = np.multiply(self.A.T, 2.0 * scale)
        folded.reshape(-1)[:: len(folded) + 1] = scale * self.diagonal
        return folded

    def inverse(self) -> Vector:
        """A⁻¹ with both triangles, beside L, after :meth:`factorize`."""
        # The columns that LAPACK writes are the rows of the same matrix.
        C: Vector = torch.cholesky_inverse(torch.from_numpy(self.A)).mT.numpy()
        return C
