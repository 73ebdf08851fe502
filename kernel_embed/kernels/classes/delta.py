"""The Kronecker delta δ(y, y') on class labels, the target kernel that turns a conditional embedding multiclass."""

from __future__ import annotations

import torch
from gpytorch.kernels import Kernel
from torch import Tensor


class DeltaKernel(Kernel):
    """δ(y, y') = 1 where two rows are equal, else 0.

    Args:
        batch_shape: as in every GPyTorch kernel.
        active_dims: the columns to compare; all by default.

    Example:
        >>> import torch
        >>> DeltaKernel()(torch.tensor([[0.0], [1.0], [0.0]])).to_dense()
        tensor([[1., 0., 1.],
                [0., 1., 0.],
                [1., 0., 1.]])
    """

    is_stationary = True

    def __init__(self, batch_shape: torch.Size | None = None, active_dims: tuple[int, ...] | None = None) -> None:
        super().__init__(batch_shape=batch_shape, active_dims=active_dims)
        # Without parameters nothing else would say which batch, dtype and device this kernel has.
        self.register_buffer("_one", torch.ones(self.batch_shape, device=torch.get_default_device()), persistent=False)

    @property
    def dtype(self) -> torch.dtype:
        """The dtype the kernel was moved to."""
        dtypes: set[torch.dtype] = {self._one.dtype, *(parameter.dtype for parameter in self.parameters())}
        if len(dtypes) > 1:
            raise RuntimeError(f"The kernel's parameters have multiple dtypes: {dtypes}.")
        return dtypes.pop()

    @property
    def device(self) -> torch.device:
        """The device the kernel was moved to."""
        device: torch.device = self._one.device
        return device

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: object) -> Tensor:
        """Equality of rows, as numbers of the dtype of ``x1``."""
        if diag:
            return (x1 == x2).all(dim=-1).to(x1.dtype)
        return (x1.unsqueeze(-2) == x2.unsqueeze(-3)).all(dim=-1).to(x1.dtype)
