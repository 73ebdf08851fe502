"""The base of kernels that are built on one other kernel, between bags of points or smoothed."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from gpytorch.kernels import Kernel

from ..structure import batch_shape_of


class BasedKernel(Kernel):
    """A kernel with a ``base_kernel``, whose own parts are left to it."""

    base_kernel: Kernel

    def named_sub_kernels(self) -> Iterable[tuple[str, Kernel]]:
        """The base kernel alone."""
        return [(name, child) for name, child in self.named_children() if isinstance(child, Kernel)]

    @property
    def is_stationary(self) -> bool:
        """False unless a subclass overrides it: bags, for example, are no points of a vector space."""
        return False

    def check_last_dim(self, last_dim_is_batch: bool) -> None:
        """Raise where GPyTorch requests one kernel for each column, which has no meaning here."""
        if last_dim_is_batch:
            raise RuntimeError(f"{type(self).__name__} does not accept the last_dim_is_batch argument.")


class FollowingKernel(BasedKernel):
    """A kernel without parameters of its own: its batch shape is that of its base kernel."""

    @property
    def batch_shape(self) -> torch.Size:
        """That of the base kernel."""
        return batch_shape_of(self.base_kernel)

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        """Nothing to set, because the base kernel holds every parameter."""
