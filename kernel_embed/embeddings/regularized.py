"""λ, registered once for every embedding that has it: positive, on a logarithmic scale, with an optional prior."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels.parameters import positive, register_positive, set_positive


class RegularizedEmbedding(gpytorch.Module):
    """A kernel and λ, of the kernel's batch shape.

    Args:
        kernel: k, any GPyTorch kernel.
        regularization: λ.
        regularization_prior: a GPyTorch prior on λ.
        regularization_constraint: a GPyTorch constraint on λ.
    """

    def __init__(
        self,
        kernel: Kernel,
        regularization: float,
        regularization_prior: Prior | None = None,
        regularization_constraint: Interval | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(kernel, Kernel):
            raise TypeError(f"Expected a gpytorch.kernels.Kernel, got {type(kernel).__name__}.")
        self.kernel = kernel
        register_positive(self, "regularization", kernel, regularization_prior, regularization_constraint)
        self.regularization = regularization

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the kernel, and so of λ and of every answer."""
        return torch.Size(self.kernel.batch_shape)

    @property
    def regularization(self) -> Tensor:
        """λ, of shape ``batch_shape``."""
        return positive(self, "regularization")

    @regularization.setter
    def regularization(self, value: float | Tensor) -> None:
        set_positive(self, "regularization", value)
