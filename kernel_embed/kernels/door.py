"""The Gram matrix as callers from outside get it: their points are looked at before it is computed.

Inside the package ``kernel_embed.kernels.gram`` is called on points that have been looked at, in every evaluation
of an objective, and on learned features, whose overflow is the business of the search.
"""

from __future__ import annotations

from gpytorch.kernels import Kernel
from torch import Tensor

from ..validation import check_finite
from .gram import gram as unchecked_gram


def gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The matrix k(x1_i, x2_j), of shape ``(*batch, n1, n2)``; ``x2=None`` means ``x1``.

    It is ``kernel_embed.kernels.gram``, and refuses points that are not finite.

    Example:
        >>> import torch
        >>> from gpytorch.kernels import RBFKernel
        >>> gram(RBFKernel(), torch.tensor([[0.0], [float("nan")]]))
        Traceback (most recent call last):
        ...
        ValueError: Expected finite values in x1, got 1 NaN or infinite, the first at index (1, 0). Remove ...
    """
    if not isinstance(kernel, Kernel):
        raise TypeError(f"Expected a gpytorch.kernels.Kernel, got {type(kernel).__name__}. Give the kernel first.")
    for name, x in (("x1", x1), ("x2", x2)):
        if isinstance(x, Tensor):
            check_finite(x, name)
    return unchecked_gram(kernel, x1, x2)
