r"""Ridge regression on explicit features for every ridge, with leave-one-out values, from one eigendecomposition.

.. math::
    Z^\top W Z = Q \operatorname{diag}(s) Q^\top, \qquad
    C(\eta) = Q \operatorname{diag}\frac{1}{s + \eta} Q^\top Z^\top W Y, \qquad
    h_i(\eta) = w_i \sum_j \frac{(z_i^\top q_j)^2}{s_j + \eta}, \qquad
    Y_i - \hat Y_{-i} = \frac{Y_i - z_i^\top C}{1 - h_i} .

After the decomposition, another ridge costs O(npm) for n rows, p features and m targets. With centered features and
targets, the regression has a constant without a ridge, which adds 1/n to every leverage.
"""

from __future__ import annotations

import torch
from torch import Tensor
from typing_extensions import Self

from .regression import Units


class RidgePath:
    """The regressions ZZᵀ + ηW⁻¹ for every η.

    ``eigenvalues`` s and ``directions`` Q ``(p, r)`` are those of ZᵀWZ. A ``ridge`` is a number, or a vector of
    E numbers, which adds a last dimension of size E to what is returned.

    Example:
        >>> Z = torch.tensor([[1.0], [2.0], [0.0]], dtype=torch.float64)
        >>> path = RidgePath.from_sums(Z.T @ Z)
        >>> path.leverage(path.rotate(Z), torch.tensor([1.0, 5.0], dtype=torch.float64)).tolist()
        [[0.16666666666666666, 0.1], [0.6666666666666666, 0.4], [0.0, 0.0]]
    """

    def __init__(self, eigenvalues: Tensor, directions: Tensor) -> None:
        self.eigenvalues, self.directions = eigenvalues, directions

    @classmethod
    def from_sums(cls, G: Tensor) -> Self:
        """The path from G = ZᵀWZ ``(p, p)``, summed over all rows."""
        s, Q = torch.linalg.eigh(G)
        return cls(s.clamp_min(0.0), Q)

    @classmethod
    def from_rows(cls, Z: Tensor, weights: Tensor | None = None) -> Self:
        """The path from all rows ``Z`` ``(n, p)``, at a cost of min(n, p)³."""
        root = Z if weights is None else weights.sqrt().unsqueeze(-1) * Z
        n, p = Z.shape
        if p <= n:
            return cls.from_sums(root.mT @ root)
        # W^½Z = U s^½ Qᵀ
        s, U = torch.linalg.eigh(root @ root.mT)
        kept = s > s[-1] * n * torch.finfo(s.dtype).eps
        return cls(s[kept], root.mT @ (U[:, kept] / s[kept].sqrt()))

    def truncated(self, tolerance: float) -> Self:
        """The path without the directions whose eigenvalues are at most ``tolerance`` times max(1, s_max)."""
        s = self.eigenvalues
        kept = s > tolerance * s.clamp_min(1.0).amax(0, keepdim=True) if len(s) else s > 0
        return type(self)(s[kept], self.directions[:, kept])

    def shrinkage(self, ridge: float | Tensor) -> Tensor:
        """1/(s + η), ``(r,)`` or ``(r, E)``."""
        s = self.eigenvalues.unsqueeze(-1) if isinstance(ridge, Tensor) and ridge.dim() else self.eigenvalues
        return 1.0 / (s + ridge)

    def degrees_of_freedom(self, ridge: float | Tensor) -> Tensor:
        """Σ s/(s + η), the trace of the matrix that maps targets to fitted values."""
        return self.eigenvalues @ self.shrinkage(ridge)

    def coefficients(self, C: Tensor, ridge: float) -> Tensor:
        """C(η) ``(p, m)`` from C = ZᵀWY ``(p, m)``."""
        return self.directions @ (self.shrinkage(ridge).unsqueeze(-1) * (self.directions.mT @ C))

    def rotate(self, Z: Tensor) -> Tensor:
        """ZQ ``(n', r)`` of some rows, computed once for all ridges."""
        return Z @ self.directions

    def leverage(self, ZQ: Tensor, ridge: float | Tensor) -> Tensor:
        """zᵀ(ZᵀWZ + ηI)⁻¹z of rows ``ZQ``, ``(n',)`` or ``(n', E)``."""
        return ZQ.square() @ self.shrinkage(ridge)

    def leave_one_out(
        self, ZQ: Tensor, Y: Tensor, C: Tensor, ridge: float, weights: Tensor | None = None, units: Units | None = None
    ) -> Tensor:
        """Leave-one-out values ``(n', m)`` at rows ``ZQ`` with targets ``Y``, from C = ZᵀWY of all rows.

        The ``units`` are those of these rows; a group must be among them as a whole.
        """
        shrinkage = self.shrinkage(ridge).unsqueeze(-1)
        P = ZQ @ (shrinkage * (self.directions.mT @ C))
        if units is not None and units.labels is not None:
            return Y - left_out_blocks(Y - P, ZQ * shrinkage.squeeze(-1), ZQ, units, weights)
        return left_out_from_leverage(P, self.leverage(ZQ, ridge), ZQ.square().sum(-1), Y, ridge, weights, units)

    def squared_errors(self, ZQ: Tensor, Y: Tensor, ridges: Tensor, leverage: Tensor) -> Tensor:
        """The sum over rows of squared leave-one-out residuals, ``(E, m)``, for all rows ``ZQ`` without weights."""
        shrunk = self.shrinkage(ridges).unsqueeze(-1) * (ZQ.mT @ Y).unsqueeze(1)
        residuals = (ZQ @ shrunk.flatten(1)).reshape(len(Y), len(ridges), -1).sub_(Y.unsqueeze(1))
        return torch.einsum("nem,ne->em", residuals.square_(), (1.0 - leverage).pow(-2))


def left_out_from_leverage(
    P: Tensor,
    leverage: Tensor,
    norms: Tensor,
    Y: Tensor,
    ridge: float,
    weights: Tensor | None = None,
    units: Units | None = None,
) -> Tensor:
    """Leave-one-out values from the fitted values P = ZC ``(n', m)`` at some rows, for one ridge η.

    ``leverage`` is zᵀ(ZᵀWZ + ηI)⁻¹z and ``norms`` zᵀz of each row, ``(n',)``.
    """
    w = 1.0 if weights is None else weights
    # 1 − h ≥ η / (η + w|z|²) always; only rounding can bring it below.
    lowest = ridge / (ridge + w * norms)
    kept = torch.maximum(1.0 - w * leverage, lowest)
    if units is not None and units.shares is not None:
        kept = units.shares * kept + 1.0 - units.shares  # c̃η/w
    return Y - (Y - P) / kept.unsqueeze(-1)


def left_out_blocks(residuals: Tensor, U: Tensor, Z: Tensor, units: Units, weights: Tensor | None) -> Tensor:
    """(I − U_G Z_Gᵀ W_G)⁻¹ (Y − P)_G for every group, with U = Z(ZᵀWZ + ηI)⁻¹: the residuals without the group."""
    WZ = Z if weights is None else weights.unsqueeze(-1) * Z
    H = units.outer_blocks(U, WZ)
    blocks = tuple(torch.eye(h.shape[-1], dtype=h.dtype, device=h.device) - h for h in H)
    return units.residuals(residuals, blocks, residuals)
