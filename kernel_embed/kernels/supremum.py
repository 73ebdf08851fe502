r"""The bound of a kernel on its diagonal, :math:`\alpha(\theta)^2 = \sup_x k_\theta(x, x)` (Theorem 4).

It is known in closed form for stationary kernels and for their scaled, summed and multiplied forms. Other kernels are
either given a bound by the user, as a number or as a function (:mod:`kernel_embed.kernels.lipschitz`), or fall back on
the largest value over the data, which bounds the complexity on those data only; :class:`SupDiagonal` says which it was.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Protocol

import torch
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    ProductKernel,
    RBFKernel,
    RFFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from torch import Tensor

from .classes.feature import FeatureKernel
from .gram import gram_diagonal

CONSTANT_DIAGONAL = (
    RBFKernel,
    MaternKernel,
    RQKernel,
    PeriodicKernel,
    CosineKernel,
    PiecewisePolynomialKernel,
    SpectralMixtureKernel,
    RFFKernel,
    ConstantKernel,
)
"""Kernels with k(x, x) the same at every x, so that one evaluation gives the supremum."""


class DiagonalBoundError(ValueError):
    """A given bound of k(x, x) does not hold."""


@dataclasses.dataclass(frozen=True)
class SupDiagonal:
    """α² and where it comes from: ``"closed form"``, ``"given"``, ``"maximum over the data"``, or a function's word."""

    value: Tensor
    source: str

    @property
    def alpha(self) -> Tensor:
        """α, the bound of the feature map's norm."""
        return self.value.sqrt()


class DiagonalBound(Protocol):
    """α² as a function of the kernel and of its values k(x_i, x_i) at the data; ``source`` says what it is."""

    source: str

    def __call__(self, kernel: Kernel, diagonal: Tensor) -> Tensor:
        """α², of the batch shape of ``diagonal`` ``(*batch, n)``."""
        ...  # pragma: no cover


def sup_diagonal(
    kernel: Kernel, x: Tensor, bound: float | DiagonalBound | None = None, diagonal: Tensor | None = None
) -> SupDiagonal:
    """α² = sup k(x, x) of ``kernel``, of shape ``kernel.batch_shape``.

    Args:
        kernel: any GPyTorch kernel.
        x: data; used where no closed form exists.
        bound: a bound the caller knows, and the data are checked against it; or a function that finds one.
        diagonal: the values k(x_i, x_i), where they are at hand.

    Example:
        >>> import torch, gpytorch
        >>> x = torch.randn(5, 2)
        >>> kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        >>> kernel.outputscale = 4.0
        >>> sup_diagonal(kernel, x).source, round(sup_diagonal(kernel, x).value.item(), 4)
        ('closed form', 4.0)
        >>> sup_diagonal(gpytorch.kernels.LinearKernel(), x).source
        'maximum over the data'
    """
    if bound is not None and callable(bound):
        value = bound(kernel, gram_diagonal(kernel, x) if diagonal is None else diagonal)
        return SupDiagonal(value, getattr(bound, "source", "given by a function"))
    if bound is not None:
        if not (math.isfinite(bound) and bound > 0):
            raise ValueError(f"Expected a positive, finite bound of k(x, x), got {bound}.")
        highest = (gram_diagonal(kernel, x) if diagonal is None else diagonal).detach().amax().item()
        if highest > bound * (1.0 + 1e-6):
            raise DiagonalBoundError(
                f"Expected k(x, x) ≤ {bound:g}, the given bound, got {highest:.6g} on the data. Give a bound that "
                "holds for the hyperparameters in use, or none, and the largest value over the data is taken."
            )
        return SupDiagonal(torch.full(kernel.batch_shape, bound, dtype=x.dtype, device=x.device), "given")
    closed = _closed_form(kernel, x)
    if closed is not None:
        return SupDiagonal(closed, "closed form")
    diagonal = gram_diagonal(kernel, x) if diagonal is None else diagonal
    lowest = diagonal.detach().amin()
    if bool(lowest < 0):
        raise ValueError(
            f"Expected k(x, x) ≥ 0 of a positive definite kernel, got {lowest.item():.3g} from {type(kernel).__name__}."
        )
    return SupDiagonal(diagonal.amax(dim=-1), "maximum over the data")


def _closed_form(kernel: Kernel, x: Tensor) -> Tensor | None:
    # A class that declares itself stationary counts; the property GPyTorch inherits only says "has a lengthscale".
    if type(kernel) in CONSTANT_DIAGONAL or type(kernel).is_stationary is True:
        return gram_diagonal(kernel, x[..., :1, :])[..., 0]
    if isinstance(kernel, ScaleKernel):
        base = _closed_form(kernel.base_kernel, _active(kernel, x))
        return None if base is None else kernel.outputscale * base
    if isinstance(kernel, FeatureKernel):
        if kernel.base_kernel is None or not _is_constant(kernel.base_kernel):
            return None
        # The same at every φ(x), so at φ = 0 too: no evaluation of the network.
        width = kernel.num_features or kernel.features(_active(kernel, x)).shape[-1]
        return _closed_form(kernel.base_kernel, x.new_zeros(1, width))
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        parts = [_closed_form(part, x) for part in kernel.kernels]
        if any(part is None for part in parts):
            return None
        # Both are exact here: each part's diagonal is constant, so all suprema are reached at the same x.
        total = parts[0]
        for part in parts[1:]:
            total = total + part if isinstance(kernel, AdditiveKernel) else total * part  # type: ignore[operator]
        return total
    return None


def _is_constant(kernel: Kernel) -> bool:
    """Whether the structure of ``kernel`` makes k(x, x) the same at every x."""
    if type(kernel) in CONSTANT_DIAGONAL or type(kernel).is_stationary is True:
        return True
    if isinstance(kernel, ScaleKernel):
        return _is_constant(kernel.base_kernel)
    if isinstance(kernel, FeatureKernel):
        return kernel.base_kernel is not None and _is_constant(kernel.base_kernel)
    return isinstance(kernel, AdditiveKernel | ProductKernel) and all(_is_constant(part) for part in kernel.kernels)


def _active(kernel: ScaleKernel | FeatureKernel, x: Tensor) -> Tensor:
    """What ``kernel`` hands to its base kernel, which chooses its own active dimensions when asked directly."""
    if kernel.active_dims is None or (isinstance(kernel, ScaleKernel) and kernel.base_kernel.active_dims is not None):
        return x
    return x.index_select(-1, kernel.active_dims)
