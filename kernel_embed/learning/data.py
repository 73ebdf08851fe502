"""The rows that an embedding is learned from, in memory, from a ``DataLoader`` or over several processes."""

from __future__ import annotations

import abc
import hashlib
from collections.abc import Callable, Iterator, Sized
from typing import Any, Protocol, TypeVar, runtime_checkable

import gpytorch
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..embeddings import ConditionalEmbedding
from ..linalg import Groups, Units, repeated_rows
from ..objectives.base import attach
from ..runtime import usable_for_gradients
from ..validation import check_count

T = TypeVar("T")
Batch = tuple[Tensor, "Tensor | None"]


class Data(abc.ABC):
    """Rows, all at once or in epochs of batches."""

    num_data: int | None
    """n, if it is known in advance."""

    whole: Batch | None = None
    """All rows, if they are in memory."""

    @abc.abstractmethod
    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Data:
        """These data, with ``num_epochs`` epochs of batches; all rows in one batch where ``batch_size`` is ``None``."""

    @abc.abstractmethod
    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""

    @abc.abstractmethod
    def identity(self) -> str:
        """Values that identify these data, so that a checkpoint is never resumed on other data."""

    def state(self) -> Tensor | None:
        """The state that determines the order of the next epoch, for a checkpoint."""
        return None

    def restore(self, state: Tensor | None) -> None:
        """Continue from ``state``, if the order depends on one."""
        return None


class TensorData(Data):
    """Rows of ``x`` and, if there are targets, ``y``; a new permutation for each epoch (Algorithm 1, line 4)."""

    def __init__(self, x: Tensor, y: Tensor | None) -> None:
        self.whole: Batch = (x, y)
        self.num_data: int = x.shape[-2]

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Data:
        """Batches of as equal size as possible."""
        n = self.num_data
        if batch_size is not None and not 2 <= check_count("batch_size", batch_size) <= n:
            raise ValueError(
                f"batch_size must be from 2 to {n}, the number of rows of x, not {batch_size}. Leave it out for all "
                "rows at once."
            )
        self._num_batches = -(-n // (batch_size or n))
        # All of them now, so that a resumed run has the same ones.
        self._orders = [generator.permutation(n) for _ in range(num_epochs)]
        return self

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        x, y = self.whole
        for rows in np.array_split(self._orders[number], self._num_batches):
            batch = torch.as_tensor(rows, device=x.device)
            yield x[batch], None if y is None else y[batch]

    def identity(self) -> str:
        """A digest of shapes, dtypes and values."""
        return fingerprint(*self.whole)


class LoaderData(Data):
    """The batches of a ``DataLoader``, ``(x, y)`` or ``x`` alone, in the dtype and on the device of ``like``."""

    def __init__(self, loader: DataLoader[object], like: Tensor) -> None:
        self.loader, self.like = loader, like
        self.num_data: int | None = len(loader.dataset) if isinstance(loader.dataset, Sized) else None

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Data:
        """The batches of the loader."""
        if batch_size is not None:
            raise ValueError(f"The loader sets the batch size. Leave out batch_size={batch_size}.")
        return self

    def epoch(self, number: int) -> Iterator[Batch]:
        """One pass through the loader."""
        for batch in self.loader:
            yield as_pair(batch, self.like)

    def identity(self) -> str:
        """The loader's dataset and batch size; the data themselves are not read."""
        return f"{type(self.loader.dataset).__name__} of {self.num_data}, batch size {self.loader.batch_size}"

    def state(self) -> Tensor | None:
        """The state of the loader's generator; the order of a loader without one cannot be repeated."""
        generator = self.loader.generator
        return None if generator is None else generator.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Set the loader's generator."""
        if state is not None and self.loader.generator is not None:
            self.loader.generator.set_state(state)


def as_pair(batch: object, like: Tensor) -> Batch:
    """``(x, y)`` of what a loader yielded, with x in the dtype and on the device of ``like``."""
    if isinstance(batch, Tensor):
        return usable_for_gradients(batch).to(like), None
    if not (isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        raise TypeError(
            f"The loader must yield pairs (x, y) of tensors, not {type(batch).__name__}. "
            "Use a TensorDataset, or a collate_fn that returns a pair."
        )
    x, y = (usable_for_gradients(part) for part in batch)
    return x.to(like), y.to(like.device)


@runtime_checkable
class ProcessGroup(Protocol):
    """An embedding that several processes learn together, each with its share of the rows."""

    module: gpytorch.Module
    """The embedding itself, whose parameters are learned."""

    leads: bool
    """True on the one process that writes checkpoints."""

    def attach(self, x: Tensor, y: Tensor | None = None) -> Any:
        """The embedding with the rows of all processes, differentiable in its parameters."""
        ...  # pragma: no cover

    def total_rows(self, num_rows: int) -> float:
        """The rows of all processes group."""
        ...  # pragma: no cover

    def reduce_gradients(self) -> None:
        """Make the gradients of the parameters those of all rows."""
        ...  # pragma: no cover

    def from_leader(self, value: T) -> T:
        """``value`` as the leader has it."""
        ...  # pragma: no cover


def by_leader(group: ProcessGroup, read: Callable[[], T]) -> T:
    """The result or exception of ``read``, called by the leader and sent to all processes."""
    outcomes: list[T | ValueError] = []
    if group.leads:
        try:
            outcomes.append(read())
        except ValueError as error:
            outcomes.append(error)
    (outcome,) = group.from_leader(outcomes)
    if isinstance(outcome, ValueError):
        raise outcome
    return outcome


class LocalProcess:
    """An embedding learned by one process, which has all rows."""

    leads = True

    def __init__(self, embedding: gpytorch.Module, weights: Tensor | None = None, groups: Groups = None) -> None:
        self.module: gpytorch.Module = embedding
        self._embedding, self.weights, self.groups = embedding, weights, groups
        self._cached: tuple[Tensor, Units] | None = None

    def attach(self, x: Tensor, y: Tensor | None = None) -> Any:
        """The embedding with its data."""
        groups = self.groups.labels if isinstance(self.groups, Units) else self.groups
        for name, values in (("Weights", self.weights), ("Groups", groups)):
            if values is not None and len(values) != x.shape[-2]:
                raise ValueError(
                    f"{name} need all {len(values)} rows at once, got a mini-batch of {x.shape[-2]}. Learn with full "
                    "batches, or repeat rows instead of weighting them."
                )
        return attach(self._embedding, x, y, self.weights, self.units(x, y))

    def units(self, x: Tensor, y: Tensor | None) -> Units | None:
        """What is left out at a time; computed once for rows that stay the same."""
        if y is None or not (isinstance(self._embedding, ConditionalEmbedding) or self.groups is not None):
            return None
        if self._cached is None or self._cached[0] is not x:
            units = repeated_rows(x, y) if self.groups is None else Units.of(x, self.groups)
            self._cached = x, units or Units()
        return self._cached[1]

    def restricted(self, rows: Tensor) -> LocalProcess:
        """The embedding with the weights and groups of some rows."""
        groups = self.groups.subset(rows) if isinstance(self.groups, Units) else self.groups
        groups = groups[rows] if isinstance(groups, Tensor) else groups
        return LocalProcess(self._embedding, None if self.weights is None else self.weights[rows], groups)

    def total_rows(self, num_rows: int) -> float:
        """Their number, or the sum of their weights."""
        return num_rows if self.weights is None else float(self.weights.sum())

    def reduce_gradients(self) -> None:
        """Nothing to do."""

    def from_leader(self, value: T) -> T:
        """``value``."""
        return value


def fingerprint(*tensors: Tensor | None) -> str:
    """A digest of shapes, dtypes and values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
