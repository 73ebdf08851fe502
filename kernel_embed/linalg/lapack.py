"""A = K + D of a few hundred rows in NumPy and LAPACK: for few rows, calls of torch cost as much as the arithmetic."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import torch

from .factorization import Factorization
from .forms import QuadraticForm
from .regression import Cotangents, Units

Array: TypeAlias = Any
"""An array of float64."""

FEW_ROWS = 100
"""Below this many rows LAPACK's triangle of the inverse is faster than the whole inverse by torch."""


class LapackFactorization(Factorization):
    """One float64 matrix, without groups of rows, factorized again and again in one buffer."""

    def __init__(self, num_rows: int) -> None:
        from scipy.linalg import lapack

        self._lapack: Any = lapack
        self._factor = np.empty((num_rows, num_rows), order="F")
        self._diagonal = self._factor.T.reshape(-1)[:: num_rows + 1]

    def factorize(self, K: Array, noise: Array) -> bool:
        """Factorize K + diag(noise); whether it is positive definite."""
        super().__init__(K, noise, self._factor)  # what was computed for the last matrix is forgotten
        self._factor.T[:] = K
        self._diagonal += noise
        _, info = self._lapack.dpotrf(self._factor, lower=1, clean=1, overwrite_a=1)
        return bool(info == 0)

    @property
    def inverse(self) -> Array:
        """A⁻¹."""
        if self._inverse is None:
            # LAPACK writes columns, which are the rows of the same matrix.
            inverse: Array = torch.cholesky_inverse(torch.from_numpy(self._factor)).mT.numpy()
            self._inverse = inverse
        return self._inverse

    def _solve(self, B: Array) -> Array:
        return self._lapack.dpotrs(self._factor, B, lower=1)[0]

    def row_sums(self, A: Array, B: Array) -> Array:
        """Σ_j A_ij B_ij, or its sum over i."""
        return np.vdot(A, B) if len(self.noise) == 1 else np.einsum("ij,ij->i", A, B)

    def _of_noise(self, G: Array) -> Array:
        return G.trace() if len(self.noise) == 1 else G.diagonal()

    def _log_determinant(self) -> Array:
        return 2.0 * np.log(self._diagonal).sum()

    def _parts(self, C: Array, units: Units | None) -> Array:
        return C.diagonal()

    def _form_product(self, form: QuadraticForm) -> Array:
        C = torch.from_numpy(self.inverse)
        return (C @ form.apply(C)).numpy()

    def _inverse_gradient(
        self, at: Cotangents, units: Units | None, update: tuple[Array, Array] | None
    ) -> tuple[Array, Array]:
        g: Array = None if at.inverse is None else at.inverse[0]
        if at.forms is not None:
            a: Array = at.forms[0]
            X = a[:, None] * self.M
            X = self.inverse @ (X if g is None else X + (0.5 * g)[:, None] * self.inverse)
            G = -(X + X.T)
            return G if update is None else G + update[0] @ update[1].T, self._of_noise(G)
        # Without the rows where g is zero: losses have flat parts.
        rows = np.flatnonzero(g)
        C = self.inverse[rows] if len(rows) < len(g) else self.inverse
        scaled = C * g[rows][:, None]
        G = np.zeros_like(self.K) if update is None else update[0] @ update[1].T
        torch.from_numpy(G).addmm_(torch.from_numpy(C).mT, torch.from_numpy(scaled), alpha=-1.0)
        return G, -self.row_sums(C.T, scaled.T)

    def _determinant_gradient(self, at: Cotangents) -> tuple[Array, Array]:
        """As the general one; for few rows A⁻¹ is replaced by a triangle with the same symmetric part."""
        V, scale = self.V, at.log_determinant or 0.0
        if at.density is not None:
            scale = scale + 0.5 * V.shape[1] * at.density
        if self._inverse is not None or len(self._factor) >= FEW_ROWS:
            part = self.inverse * scale
        else:
            triangle, diagonal = self.triangle()
            part = np.multiply(triangle, 2.0 * scale)
            part.reshape(-1)[:: len(part) + 1] = scale * diagonal
        if at.density is not None:
            part -= (0.5 * at.density * V) @ V.T
        return part, self._of_noise(part)

    def triangle(self) -> tuple[Array, Array]:
        """The upper triangle of A⁻¹ over the factor, zero below, and its diagonal."""
        self._lapack.dpotri(self._factor, lower=1, overwrite_c=1)
        return self._factor.T, self._diagonal
