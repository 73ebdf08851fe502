"""Learning by several processes at once: what they must be able to do, and one process that has it easy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar, runtime_checkable

import gpytorch
from torch import Tensor

from ..objectives.base import B, B_co, Embedding, bound

T = TypeVar("T")


@runtime_checkable
class Cooperative(Protocol[B_co]):
    """An embedding that several processes learn together, each with its share of the rows."""

    module: gpytorch.Module
    """The embedding itself, whose parameters are learned."""

    leads: bool
    """True on the one process that writes checkpoints."""

    def bind(self, x: Tensor, y: Tensor | None = None) -> B_co:
        """The embedding with the rows of all processes, differentiable in its parameters."""
        ...  # pragma: no cover

    def total_rows(self, num_rows: int) -> int:
        """The rows of all processes together."""
        ...  # pragma: no cover

    def reduce_gradients(self) -> None:
        """Make the gradients of the parameters those of all rows."""
        ...  # pragma: no cover

    def from_leader(self, value: T) -> T:
        """``value`` as the leader has it."""
        ...  # pragma: no cover


class Alone(Generic[B]):
    """An embedding that one process learns: every row is here, and nobody is asked."""

    leads = True

    def __init__(self, embedding: Embedding[B]) -> None:
        self.module: gpytorch.Module = embedding
        self._embedding = embedding

    def bind(self, x: Tensor, y: Tensor | None = None) -> B:
        """The embedding with its data."""
        return bound(self._embedding, x, y)

    def total_rows(self, num_rows: int) -> int:
        """All of them."""
        return num_rows

    def reduce_gradients(self) -> None:
        """Nothing to do."""

    def from_leader(self, value: T) -> T:
        """``value``."""
        return value


def as_cooperative(embedding: Embedding[B] | Cooperative[B]) -> Cooperative[B]:
    """The embedding as one that processes learn together, be it a single one."""
    return embedding if isinstance(embedding, Cooperative) else Alone(embedding)


def by_leader(together: Cooperative[B], read: Callable[[], T]) -> T:
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
