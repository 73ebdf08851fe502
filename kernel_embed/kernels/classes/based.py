"""Kernels that are built on one other kernel."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from gpytorch.kernels import Kernel

from ..structure import batch_shape_of


class BasedKernel(Kernel):
    """A kernel with a ``base_kernel``; what is below that is its own affair."""

    base_kernel: Kernel

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """The base kernel alone."""
        return [(name, child) for name, child in self.named_children() if isinstance(child, Kernel)]

    @property
    def is_stationary(self) -> bool:
        """Not unless a subclass says otherwise: bags, for one, are no points of a vector space."""
        return False

    def refuse_last_dim_as_batch(self, asked: bool) -> None:
        """Raise where GPyTorch asks for one kernel of each column, which has no meaning here."""
        if asked:
            raise RuntimeError(f"{type(self).__name__} does not accept the last_dim_is_batch argument.")


class FollowingKernel(BasedKernel):
    """A kernel without parameters of its own: its batch shape is that of its base kernel."""

    @property
    def batch_shape(self) -> torch.Size:
        """That of the base kernel."""
        return batch_shape_of(self.base_kernel)

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        """Nothing to set: the base kernel holds every parameter."""
