"""λ, registered once for every embedding that has it: positive, on a logarithmic scale, with an optional prior."""

from __future__ import annotations

import gpytorch
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..kernels import log_scaled


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
        like = next(kernel.parameters(), None)
        zero = torch.zeros(kernel.batch_shape) if like is None else like.new_zeros(kernel.batch_shape)
        self.register_parameter("raw_regularization", torch.nn.Parameter(zero))
        self.register_constraint("raw_regularization", regularization_constraint or log_scaled())
        if regularization_prior is not None:
            self.register_prior("regularization_prior", regularization_prior, _get, _set)
        self.regularization = regularization

    @property
    def batch_shape(self) -> torch.Size:
        """The batch shape of the kernel, and so of λ and of every answer."""
        return torch.Size(self.kernel.batch_shape)

    @property
    def regularization(self) -> Tensor:
        """λ, of shape ``batch_shape``."""
        value: Tensor = self.raw_regularization_constraint.transform(self.raw_regularization)
        return value

    @regularization.setter
    def regularization(self, value: float | Tensor) -> None:
        raw = self.raw_regularization
        value = torch.as_tensor(value, dtype=raw.dtype, device=raw.device)
        if not bool((torch.isfinite(value) & (value > 0)).all()):
            raise ValueError(f"Expected a positive, finite regularization, got {value.tolist()}.")
        # Draws of a posterior come with one more dimension.
        value = value.expand(torch.broadcast_shapes(value.shape, raw.shape))
        self.initialize(raw_regularization=self.raw_regularization_constraint.inverse_transform(value))


# Named functions, where lambdas would keep the embedding from being pickled.
def _get(embedding: RegularizedEmbedding) -> Tensor:
    return embedding.regularization


def _set(embedding: RegularizedEmbedding, value: Tensor) -> None:
    embedding.regularization = value
