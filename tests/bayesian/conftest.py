"""Samples of the tests of Bayesian embeddings."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel
from torch import Tensor


@pytest.fixture
def x() -> Tensor:
    """Twenty points in the plane, in no order and on no grid."""
    return torch.as_tensor(np.random.RandomState(3).randn(20, 2))


@pytest.fixture
def line() -> Tensor:
    """Fifteen points of the line."""
    return torch.as_tensor(np.random.RandomState(4).randn(15, 1))


def rbf(*lengthscale: float) -> RBFKernel:
    """A squared exponential in float64 with these lengthscales."""
    kernel = RBFKernel(ard_num_dims=len(lengthscale) if len(lengthscale) > 1 else None).double()
    kernel.lengthscale = torch.tensor(lengthscale, dtype=torch.float64)
    return kernel


def shaken(kernel: Kernel, seed: int = 0) -> Kernel:
    """The kernel in float64 with parameters that are all different."""
    generator = torch.Generator().manual_seed(seed)
    kernel = kernel.double()
    for parameter in kernel.parameters():
        noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        parameter.data.copy_(0.6 + 0.3 * noise)
    return kernel
