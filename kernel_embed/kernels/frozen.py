"""A module as it is now, which later learning does not touch."""

from __future__ import annotations

import copy
from typing import TypeVar

import gpytorch
from gpytorch.kernels import InducingPointKernel

M = TypeVar("M", bound=gpytorch.Module)


def frozen(module: M) -> M:
    """A copy of a kernel or an embedding with the same values and modes, and without gradients to its parameters.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = RBFKernel()
        >>> kernel.lengthscale = 2.0
        >>> twin = frozen(kernel)
        >>> kernel.lengthscale = 5.0
        >>> round(twin.lengthscale.item(), 6), twin.raw_lengthscale.requires_grad
        (2.0, False)
    """
    for part in module.modules():
        if isinstance(part, InducingPointKernel):
            part._clear_cache()  # its factors belong to a graph, which cannot be copied
    twin: M = copy.deepcopy(module).requires_grad_(False)
    return twin
