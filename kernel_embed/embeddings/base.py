"""What every embedding has: a kernel, its batch shape, and for those that regularize λ."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from linear_operator.utils.warnings import NumericalWarning
from torch.nn.modules.module import _IncompatibleKeys

from ..kernels.parameters import PositiveParameter, register_positive
from ..kernels.structure import batch_shape_of, check_kernel
from .module import Module


class KernelEmbedding(Module):
    """A module with a kernel, which is joined with data in one of two ways.

    ``attach(...)`` uses the kernel as it is and stays differentiable in its parameters: for one evaluation of an
    objective. ``condition(...)`` does the same with a frozen copy of the whole embedding: its answers stay what they
    are when this embedding is learned further, and they carry no gradient to its parameters.

    Args:
        kernel: k, any GPyTorch kernel.

    Raises:
        TypeError: if ``kernel`` is not a :class:`gpytorch.kernels.Kernel`.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> issubclass(ke.MulticlassEmbedding, ke.embeddings.KernelEmbedding)
        True
    """

    kernel: Kernel

    takes_targets: ClassVar[bool] = False
    """Whether it is joined with inputs and targets, or with a sample alone."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        check_kernel(kernel)
        self.kernel = kernel

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> _IncompatibleKeys:
        """Take parameters and buffers; where they lose digits, because these are narrower, with a warning."""
        own = {} if assign else self.state_dict()
        rounded = [
            name
            for name, value in state_dict.items()
            if name in own and isinstance(value, torch.Tensor) and _loses_digits(value, own[name].dtype)
        ]
        if rounded:
            warnings.warn(
                f"{', '.join(rounded)} are rounded to {own[rounded[0]].dtype} by load_state_dict. Call "
                "embedding.double() before, to keep all digits.",
                NumericalWarning,
                stacklevel=2,
            )
        missing: _IncompatibleKeys = super().load_state_dict(state_dict, strict=strict, assign=assign)
        return missing

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the kernel, and so of every parameter and answer."""
        return batch_shape_of(self.kernel)


def _loses_digits(value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Whether ``value`` is another number in ``dtype``."""
    if not (value.is_floating_point() and dtype.is_floating_point):
        return False
    return not torch.equal(value.to(dtype).to(value.dtype).nan_to_num(), value.nan_to_num())


class RegularizedEmbedding(KernelEmbedding):
    """A kernel and λ, of the kernel's batch shape.

    Args:
        kernel: k, any GPyTorch kernel.
        regularization: λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ; positive, on a logarithmic scale, by default.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel(), regularization=0.01)
        >>> isinstance(embedding, ke.embeddings.RegularizedEmbedding), round(embedding.regularization.item(), 4)
        (True, 0.01)
    """

    raw_regularization: torch.nn.Parameter
    regularization = PositiveParameter()
    """λ, of shape ``batch_shape``."""

    def __init__(
        self,
        kernel: Kernel,
        regularization: float,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
    ) -> None:
        super().__init__(kernel)
        register_positive(self, "regularization", kernel, regularization_prior, regularization_constraint)
        self.regularization = regularization
