r"""The one door through which every embedding evaluates a GPyTorch kernel.

:func:`gram` returns :math:`K_{ij} = k(x_i, x'_j)` as a dense tensor, equal to ``kernel(x1, x2).to_dense()``. Radial
kernels, alone or scaled, summed and multiplied, take the closed-form gradient of :mod:`kernel_embed.kernels.radial`;
every other kernel is evaluated by GPyTorch itself.
"""

from __future__ import annotations

import contextlib
import functools
import operator
from collections.abc import Iterator

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    InducingPointKernel,
    Kernel,
    MaternKernel,
    ProductKernel,
    ProductStructureKernel,
    RBFKernel,
    ScaleKernel,
)
from torch import Tensor

from .classes.feature import FeatureKernel
from .radial import matern, radial_gram, squared_exponential


def gram(kernel: Kernel, x1: Tensor, x2: Tensor | None = None) -> Tensor:
    """The matrix k(x1_i, x2_j), of shape ``(*batch, n1, n2)``; ``x2=None`` means ``x1``.

    Example:
        >>> import torch, gpytorch
        >>> x = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        >>> kernel = gpytorch.kernels.RBFKernel().double()
        >>> kernel.lengthscale = 1.0
        >>> gram(kernel, x).detach()
        tensor([[1.0000, 0.6065],
                [0.6065, 1.0000]], dtype=torch.float64)
    """
    check_columns(kernel, x1.shape[-1])
    if not _has_closed_form(kernel):
        return _by_gpytorch(kernel, x1, x2)
    if kernel.active_dims is not None:
        x1 = x1.index_select(-1, kernel.active_dims)
        x2 = None if x2 is None else x2.index_select(-1, kernel.active_dims)
    return _closed_form(kernel, x1, x2)


def gram_diagonal(kernel: Kernel, x: Tensor) -> Tensor:
    """The values k(x_i, x_i), of shape ``(*batch, n)``."""
    with cross_evaluation(kernel):
        if type(kernel) is ProductStructureKernel:
            # Its __call__ takes every answer for a matrix (GPyTorch 1.15), so only forward knows the diagonal.
            x = x if kernel.active_dims is None else x.index_select(-1, kernel.active_dims)
            return _dense(kernel.forward(x, x, diag=True))
        return _dense(kernel(x, diag=True))


@contextlib.contextmanager
def cross_evaluation(kernel: Kernel) -> Iterator[None]:
    """Let an ``InducingPointKernel`` be evaluated between any two sets of points, whatever its mode.

    In training mode it refuses unequal inputs, and in evaluation mode it remembers its factor past a change of its
    parameters. Inside this context it is in evaluation mode with nothing remembered; afterwards it is as it was.
    """
    inducing = [module for module in kernel.modules() if isinstance(module, InducingPointKernel)]
    modes = [module.training for module in inducing]
    try:
        for module in inducing:
            module.training = False
            module._clear_cache()
        yield
    finally:
        for module, mode in zip(inducing, modes, strict=True):
            module._clear_cache()
            module.training = mode


def _has_closed_form(kernel: Kernel) -> bool:
    # Subclasses may compute something else, so only the classes themselves are recognised.
    if type(kernel) in (RBFKernel, MaternKernel, FeatureKernel):
        return True
    if type(kernel) is ScaleKernel:
        return _has_closed_form(kernel.base_kernel)
    if type(kernel) in (AdditiveKernel, ProductKernel):
        return any(_has_closed_form(part) for part in kernel.kernels)
    return False


def _closed_form(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """What ``kernel.forward`` computes: the active dimensions are chosen already."""
    if isinstance(kernel, FeatureKernel):
        return _of_features(kernel, x1, x2)
    if isinstance(kernel, ScaleKernel):
        outputscale: Tensor = kernel.outputscale[..., None, None]
        return outputscale * _closed_form(kernel.base_kernel, x1, x2)
    if isinstance(kernel, AdditiveKernel):
        return functools.reduce(operator.add, (gram(part, x1, x2) for part in kernel.kernels))
    if isinstance(kernel, ProductKernel):
        return functools.reduce(operator.mul, (gram(part, x1, x2) for part in kernel.kernels))
    profile = squared_exponential if isinstance(kernel, RBFKernel) else matern(kernel.nu)
    z1, z2 = x1 / kernel.lengthscale, None if x2 is None else x2 / kernel.lengthscale
    return radial_gram(z1, z2, profile, rough=isinstance(kernel, MaternKernel) and kernel.nu == 0.5)


def _of_features(kernel: FeatureKernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    """κ(φ(x1), φ(x2)), with φ evaluated once for each."""
    z1, z2 = kernel.pair(x1, x2)
    if kernel.base_kernel is not None:
        return gram(kernel.base_kernel, z1, z2)
    K = z1 @ (z1 if z2 is None else z2).mT
    return K.expand(*torch.broadcast_shapes(kernel.batch_shape, K.shape[:-2]), *K.shape[-2:])


def _by_gpytorch(kernel: Kernel, x1: Tensor, x2: Tensor | None) -> Tensor:
    try:
        with cross_evaluation(kernel):
            return _dense(kernel(x1) if x2 is None else kernel(x1, x2))
    except RuntimeError as error:
        other = next((p.dtype for p in [*kernel.parameters(), *kernel.buffers()] if p.dtype != x1.dtype), None)
        if "dtype" not in str(error) or other is None:
            raise
        raise TypeError(
            f"Expected the parameters of {type(kernel).__name__} in the dtype of x, {x1.dtype}, got {other}. "
            "Convert the embedding with embedding.to(x.dtype), or let kernel_embed.fit do so."
        ) from error


def _dense(matrix: object) -> Tensor:
    return matrix if isinstance(matrix, Tensor) else matrix.to_dense()  # type: ignore[attr-defined]


def check_columns(kernel: Kernel, width: int, chosen: bool = False) -> None:
    """Raise where a part of ``kernel`` expects another number of features than it gets from ``width`` columns."""
    if kernel.active_dims is not None and not chosen:
        last = int(kernel.active_dims.max())
        if last >= width:
            raise ValueError(
                f"Expected x with at least {last + 1} features for active_dims of {type(kernel).__name__}, got "
                f"{width}. Choose columns that exist."
            )
        width = len(kernel.active_dims)
    if kernel.ard_num_dims is not None and kernel.ard_num_dims != width:
        raise ValueError(
            f"Expected {kernel.ard_num_dims} features (ard_num_dims of {type(kernel).__name__}), got x with {width}. "
            f"Build the kernel with ard_num_dims={width}, or choose columns with active_dims."
        )
    if type(kernel) is ScaleKernel:
        check_columns(kernel.base_kernel, width, chosen=True)  # which takes the columns its scale has chosen
    elif type(kernel) in (AdditiveKernel, ProductKernel):
        for part in kernel.kernels:
            check_columns(part, width)
