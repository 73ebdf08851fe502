"""Who holds which rows: here all of them are in one place. Elsewhere ranks hold some each, and this is replaced."""

from __future__ import annotations

from torch import Tensor


class Shards:
    """One place for all rows, and the interface of many.

    Sums over rows and values at rows are the same on every rank, and so are their derivatives. What belongs to a rank
    alone is its part of ∂q/∂Z, given times :attr:`size`, so that the mean over ranks of the gradients of parameters
    is the gradient.
    """

    size = 1
    """The number of ranks."""

    def total(self, num_rows: int) -> int:
        """n, for ``num_rows`` rows of this rank."""
        return num_rows

    def sum(self, part: Tensor) -> Tensor:
        """The sum over ranks."""
        return part

    def own(self, whole: Tensor, dim: int = -2) -> Tensor:
        """The rows of this rank."""
        return whole

    def gather(self, part: Tensor, dim: int = -2) -> Tensor:
        """The rows of all ranks."""
        return part
