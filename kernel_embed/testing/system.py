"""Contract of linear systems, checked against the dense matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..linalg import LinearSystem
from .comparison import check_close


class SystemContract:
    """Inherit and define :meth:`make_system`, which returns a system and the matrices K and A = K + ηW⁻¹ it stands for.

    Attributes:
        tolerance: relative.
        is_factorized: whether it has diag A⁻¹, log |A| and densities.

    Example:
        >>> from kernel_embed.linalg import DenseSystem
        >>> from kernel_embed.testing import SystemContract
        >>> class TestDense(SystemContract):
        ...     def make_system(self):
        ...         K = torch.eye(3, dtype=torch.float64)
        ...         return DenseSystem(K, torch.tensor(0.5, dtype=torch.float64)), K, K + 0.5 * K
    """

    tolerance = 1e-8
    is_factorized = True

    def make_system(self) -> tuple[LinearSystem, Tensor, Tensor]:
        """The system, K and A.

        Raises:
            TypeError: if the subclass does not define it.
        """
        raise TypeError("Define make_system in your subclass; it returns a system with K and A.")

    def _targets(self, A: Tensor) -> Tensor:
        return torch.randn(A.shape[-1], 2, generator=torch.Generator().manual_seed(0), dtype=A.dtype)

    def test_regression(self) -> None:
        """V = A⁻¹Y and P = KV."""
        system, K, A = self.make_system()
        Y = self._targets(A)
        V, P = system.regress(Y)
        expected = torch.linalg.solve(A, Y)
        check_close("V = A⁻¹Y", V, expected, self.tolerance)
        check_close("solve(Y)", system.solve(Y), expected, self.tolerance)
        check_close("P = KV", P, K @ expected, self.tolerance)

    def test_diagonal(self) -> None:
        """diag K."""
        system, K, _ = self.make_system()
        check_close("diag K", system.diagonal(), K.diagonal(dim1=-2, dim2=-1), self.tolerance)

    def test_inverse_diagonal_and_determinant(self) -> None:
        """diag A⁻¹, log |A| and −log N(Y; 0, A), or a TypeError with a message."""
        system, _, A = self.make_system()
        Y = self._targets(A)
        if not self.is_factorized:
            for ask in (system.inverse_diagonal, system.log_determinant):
                try:
                    ask()
                except TypeError as error:
                    assert "Expected a factorized system" in str(error)  # noqa: PT017 — pytest is not imported here
                else:
                    raise AssertionError(
                        f"Expected {type(system).__name__} to reject {ask.__name__}, but it returned a value."
                    )
            return
        inverse = torch.linalg.inv(A)
        check_close("diag A⁻¹", system.inverse_diagonal(), inverse.diagonal(dim1=-2, dim2=-1), self.tolerance)
        check_close("log |A|", system.log_determinant(), torch.logdet(A), self.tolerance)
        n, m = Y.shape
        density = 0.5 * ((Y * (inverse @ Y)).sum() + m * torch.logdet(A) + n * m * math.log(2.0 * math.pi))
        check_close("−log N(Y; 0, A)", system.negative_log_densities(Y), density, self.tolerance)
