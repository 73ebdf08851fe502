"""Learning by several processes at once: what they must be able to do, and how one of them reads for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

import gpytorch
from torch import Tensor

from ..objectives.base import B, B_co

T = TypeVar("T")


@runtime_checkable
class ProcessGroup(Protocol[B_co]):
    """An embedding that several processes learn together, each with its share of the rows."""

    module: gpytorch.Module
    """The embedding itself, whose parameters are learned."""

    leads: bool
    """True on the one process that writes checkpoints."""

    def attach(self, x: Tensor, y: Tensor | None = None) -> B_co:
        """The embedding with the rows of all processes, differentiable in its parameters."""
        ...  # pragma: no cover

    def total_rows(self, num_rows: int) -> float:
        """The rows of all processes together."""
        ...  # pragma: no cover

    def reduce_gradients(self) -> None:
        """Make the gradients of the parameters those of all rows."""
        ...  # pragma: no cover

    def from_leader(self, value: T) -> T:
        """``value`` as the leader has it."""
        ...  # pragma: no cover


def by_leader(together: ProcessGroup[B], read: Callable[[], T]) -> T:
    """What ``read`` returns or raises, on one process for all."""
    found: list[T | ValueError] = []
    if together.leads:
        try:
            found.append(read())
        except ValueError as error:
            found.append(error)
    (outcome,) = together.from_leader(found)
    if isinstance(outcome, ValueError):
        raise outcome
    return outcome
