"""Samples and kernels that the tests share."""

from __future__ import annotations

import torch
from gpytorch.kernels import RBFKernel
from torch import Tensor


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rbf(lengthscale: float | Tensor, **options: object) -> RBFKernel:
    kernel = RBFKernel(**options).double()
    kernel.lengthscale = torch.as_tensor(lengthscale, dtype=torch.float64)
    return kernel
