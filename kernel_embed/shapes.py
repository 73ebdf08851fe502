"""The shape that several shapes have in common.

PyTorch's own function loads SymPy at its first call, which takes longer than a fit of a hundred rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel


def broadcast_shapes(*shapes: Sequence[int]) -> torch.Size:
    """What :func:`torch.broadcast_shapes` returns.

    Args:
        shapes: of tensors.

    Returns:
        The shape of their sum.

    Raises:
        RuntimeError: if tensors of these shapes cannot be added.

    Example:
        >>> broadcast_shapes((2,), (3, 1))
        torch.Size([3, 2])
    """
    try:
        return torch.Size(np.broadcast_shapes(*(tuple(shape) for shape in shapes)))
    except ValueError as error:
        given = ", ".join(str(tuple(shape)) for shape in shapes)
        raise RuntimeError(f"Expected shapes that broadcast, got {given}. Give equal sizes, or 1.") from error


def batch_shape_of(kernel: Kernel) -> torch.Size:
    """``kernel.batch_shape``, by the function above where it is GPyTorch's: its own and those of its parts.

    Args:
        kernel: any kernel.

    Returns:
        The shape of the batch.

    Example:
        >>> from gpytorch.kernels import LinearKernel, RBFKernel
        >>> batch_shape_of(RBFKernel(batch_shape=torch.Size([2])) + LinearKernel())
        torch.Size([2])
    """
    if type(kernel).batch_shape is not Kernel.batch_shape:
        return torch.Size(kernel.batch_shape)
    return broadcast_shapes(kernel._batch_shape, *(batch_shape_of(part) for part in kernel.sub_kernels()))
