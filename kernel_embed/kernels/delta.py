"""The Kronecker delta δ(y, y') on class labels, the target kernel that turns a conditional embedding multiclass."""

from __future__ import annotations

from typing import Any

from gpytorch.kernels import Kernel
from torch import Tensor


class DeltaKernel(Kernel):
    """δ(y, y') = 1 where two rows are equal, else 0.

    Example:
        >>> import torch
        >>> DeltaKernel()(torch.tensor([[0.0], [1.0], [0.0]])).to_dense()
        tensor([[1., 0., 1.],
                [0., 1., 0.],
                [1., 0., 1.]])
    """

    is_stationary = True

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Equality of rows, as numbers of the dtype of ``x1``."""
        if diag:
            return (x1 == x2).all(dim=-1).to(x1.dtype)
        return (x1.unsqueeze(-2) == x2.unsqueeze(-3)).all(dim=-1).to(x1.dtype)
