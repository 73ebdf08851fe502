r"""Every ridge at once: explicit features through the eigenvalues of :math:`G = Z^\top W Z`.

.. math::
    G = Q \operatorname{diag}(s) Q^\top, \qquad
    C(\eta) = Q \operatorname{diag}\frac{1}{s + \eta} Q^\top Z^\top W Y, \qquad
    h_i(\eta) = w_i \sum_j \frac{(z_i^\top q_j)^2}{s_j + \eta} .

After one eigendecomposition, p³ in size, the leave-one-out values of n rows for another ridge cost O(npm): the ridge is
learned at full size for the price of one.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from .system import left_out


class RidgePath:
    """The system ZZᵀ + ηW⁻¹ for every η, from the sums G = ZᵀWZ ``(p, p)`` and ZᵀWY ``(p, m)`` over all rows.

    Example:
        >>> Z = torch.tensor([[1.0], [2.0], [0.0]], dtype=torch.float64)
        >>> Y = torch.tensor([[1.0], [0.0], [3.0]], dtype=torch.float64)
        >>> path = RidgePath(Z.T @ Z, Z.T @ Y)
        >>> path.coefficients(1.0)
        tensor([[0.1667]], dtype=torch.float64)
    """

    def __init__(self, G: Tensor, C: Tensor) -> None:
        s, self._Q = torch.linalg.eigh(G)
        self._s = s.clamp_min(0.0)
        self._C = self._Q.mT @ C

    @classmethod
    def of_rows(cls, Z: Tensor, Y: Tensor, weights: Tensor | None = None) -> Self:
        """The same from all rows ``Z`` ``(n, p)`` with targets ``Y``, at a cost of min(n, p)³.

        Example:
            >>> Z, Y = torch.eye(2, 3, dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
            >>> RidgePath.of_rows(Z, Y).coefficients(1.0).T
            tensor([[0.5000, 0.5000, 0.0000]], dtype=torch.float64)
        """
        left = Z if weights is None else weights.unsqueeze(-1) * Z
        n, p = Z.shape
        if p <= n:
            return cls(left.mT @ Z, left.mT @ Y)
        # Z̃ = W^½Z = U s^½ Qᵀ
        root = Z if weights is None else weights.sqrt().unsqueeze(-1) * Z
        s, U = torch.linalg.eigh(root @ root.mT)
        kept = s > s[-1] * n * torch.finfo(s.dtype).eps
        path = cls.__new__(cls)
        path._s, path._Q = s[kept], root.mT @ (U[:, kept] / s[kept].sqrt())
        path._C = path._Q.mT @ (left.mT @ Y)
        return path

    def coefficients(self, ridge: float) -> Tensor:
        """C(η), ``(p, m)``."""
        coefficients: Tensor = self._Q @ (self._C / (self._s + ridge).unsqueeze(-1))
        return coefficients

    def rotated(self, Z: Tensor) -> Tensor:
        """ZQ, what :meth:`leave_one_out` takes of some rows; made once for all ridges."""
        rotated: Tensor = Z @ self._Q
        return rotated

    def leave_one_out(self, ZQ: Tensor, Y: Tensor, ridge: float, weights: Tensor | None = None) -> Tensor:
        """The values at some rows ``ZQ`` with targets ``Y`` of the system that has not seen each of them."""
        inverse = 1.0 / (self._s + ridge)
        P = ZQ @ (self._C * inverse.unsqueeze(-1))
        return featured_left_out(P, ZQ.square() @ inverse, ZQ.square().sum(-1), Y, ridge, weights)


def featured_left_out(
    P: Tensor, leverage: Tensor, norms: Tensor, Y: Tensor, ridge: float, weights: Tensor | None = None
) -> Tensor:
    """Leave-one-out values from fitted ones P = ZC at some rows, for one ridge η.

    Args:
        P: ``(n', m)``.
        leverage: zᵀ(ZᵀWZ + ηI)⁻¹z of each row, ``(n',)``.
        norms: zᵀz, ``(n',)``.
        Y: their targets, ``(n', m)``.
        ridge: η.
        weights: w, ``(n',)``; 1 each by default.
    """
    w = 1.0 if weights is None else weights
    # 1 − h ≥ η / (η + w|z|²) always; only rounding can bring it below.
    lowest = ridge / (ridge + w * norms)
    c = w * torch.maximum(1.0 - w * leverage, lowest) / ridge
    V = (Y - P) / ridge if weights is None else weights.unsqueeze(-1) * (Y - P) / ridge
    return left_out(Y, V, c, P.new_tensor(ridge), weights)
