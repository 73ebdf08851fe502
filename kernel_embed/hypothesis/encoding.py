r"""Columns of any kind as points of one space, in which a squared exponential is a suitable kernel.

A real column is divided by its spread. A categorical one becomes one coordinate for each category, divided by
:math:`(1 - \sum_c p_c^2)^{1/2}`, the root of their total variance, so that every column weighs the same. A squared
exponential of these points is a product over columns: of real numbers the usual one, of categories
:math:`\rho^{[a \neq b]}`, 1 where they agree and a constant below 1 where they do not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor

from ..kernels import FeatureKernel

NORMAL_QUARTILES = 1.349
"""Between the quartiles of a standard normal variable."""


class Encoding(torch.nn.Module):
    """From columns to that space, for the pooled sample ``x`` (``(n, d)``) and its ``categorical`` columns.

    Example:
        >>> x = torch.tensor([[0.0, 1.0], [2.0, 1.0], [4.0, 7.0], [6.0, 7.0]], dtype=torch.float64)
        >>> Encoding(x, categorical=[1])(x).shape            # one real column and two categories
        torch.Size([4, 3])
    """

    spread: Tensor

    def __init__(self, x: Tensor, categorical: Sequence[int] = ()) -> None:
        super().__init__()
        self.categorical = tuple(categorical)
        self.real = tuple(j for j in range(x.shape[-1]) if j not in self.categorical)
        self.register_buffer("spread", _spread(x[:, list(self.real)]))
        self.names: list[str] = []
        for j in self.categorical:
            values, counts = x[:, j].unique(return_counts=True)
            share = counts.to(x) / x.shape[0]
            deviation = (1.0 - share.square().sum()).sqrt()
            self.names.append(f"categories_{j}")
            self.register_buffer(f"categories_{j}", values)
            self.register_buffer(f"categories_{j}_scale", deviation if deviation > 0 else torch.ones_like(deviation))

    def forward(self, x: Tensor) -> Tensor:
        """The points of the rows of ``x``."""
        parts = [x[:, list(self.real)] / self.spread]
        for j, name in zip(self.categorical, self.names, strict=True):
            equal = x[:, j : j + 1] == getattr(self, name)
            parts.append(equal.to(x) / getattr(self, f"{name}_scale"))
        return torch.cat(parts, dim=-1)

    def kernel(self, lengthscale: float) -> Kernel:
        """The squared exponential of this lengthscale there, as a kernel on the columns themselves."""
        if self.categorical:
            base = RBFKernel().double().to(self.spread.device)
            base.lengthscale = self.spread.new_tensor(lengthscale)
            return FeatureKernel(self, base)
        d = len(self.real)
        kernel = RBFKernel(ard_num_dims=d if d > 1 else None).double().to(self.spread.device)
        kernel.lengthscale = lengthscale * self.spread
        return kernel


def _spread(x: Tensor) -> Tensor:
    """The distance of the quartiles, which no outlier moves, as a standard deviation; that itself where it is zero."""
    if x.shape[1] == 0:
        return x.new_ones(0)
    low, high = torch.quantile(x, x.new_tensor([0.25, 0.75]), dim=0) if x.shape[0] <= 2**18 else _quartiles(x)
    spread = (high - low) / NORMAL_QUARTILES
    spread = torch.where(spread > 0, spread, x.std(dim=0))
    return torch.where(spread > 0, spread, 1.0)


def _quartiles(x: Tensor) -> tuple[Tensor, Tensor]:
    n = x.shape[0]  # torch.quantile has a limit of size
    return x.kthvalue(1 + n // 4, dim=0).values, x.kthvalue(1 + (3 * n) // 4, dim=0).values
