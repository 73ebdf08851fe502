"""Where mini-batches come from: rows of tensors in memory, or a ``DataLoader``."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

Batch = tuple[Tensor, "Tensor | None"]


class Batches(Protocol):
    """Epoch after epoch of mini-batches."""

    num_data: int | None
    """n, where it is known before the data have been seen."""

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        ...  # pragma: no cover

    def state(self) -> Tensor | None:
        """What the order of the next epoch depends on, for a checkpoint."""
        ...  # pragma: no cover

    def restore(self, state: Tensor | None) -> None:
        """Go on as from ``state``."""
        ...  # pragma: no cover


class TensorBatches:
    """Rows of ``x`` and ``y`` in a new permutation for each epoch (Algorithm 1, line 4)."""

    def __init__(
        self, x: Tensor, y: Tensor | None, batch_size: int, num_epochs: int, generator: np.random.Generator
    ) -> None:
        self.x, self.y = x, y
        self.num_data: int | None = x.shape[-2]
        self._num_batches = -(-x.shape[-2] // batch_size)
        # All of them now, so that a resumed run meets the same ones.
        self._orders = [generator.permutation(x.shape[-2]) for _ in range(num_epochs)]

    def epoch(self, number: int) -> Iterator[Batch]:
        """The batches of one epoch, of as equal size as possible."""
        for rows in np.array_split(self._orders[number], self._num_batches):
            batch = torch.as_tensor(rows, device=self.x.device)
            yield self.x[batch], None if self.y is None else self.y[batch]

    def state(self) -> None:
        """Nothing: the seed fixes every epoch."""

    def restore(self, state: Tensor | None) -> None:
        """Nothing to do."""


class LoaderBatches:
    """What a ``torch.utils.data.DataLoader`` yields, moved to the dtype and device of ``like``.

    Args:
        loader: yields ``(x, y)``, or ``x`` alone for embeddings without targets.
        like: a parameter of the embedding.
    """

    def __init__(self, loader: DataLoader[object], like: Tensor) -> None:
        self.loader, self.like = loader, like
        self.num_data: int | None = len(loader.dataset) if isinstance(loader.dataset, Sized) else None

    def epoch(self, number: int) -> Iterator[Batch]:
        """One pass through the loader."""
        for batch in self.loader:
            yield as_pair(batch, self.like)

    def state(self) -> Tensor | None:
        """Of the loader's own generator; the order of a loader without one cannot be repeated."""
        generator = self.loader.generator
        return None if generator is None else generator.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Set the loader's generator."""
        if state is not None and self.loader.generator is not None:
            self.loader.generator.set_state(state)

    def identity(self) -> str:
        """What tells one loader from another in a checkpoint; the data themselves are not read for it."""
        return f"{type(self.loader.dataset).__name__} of {self.num_data}, batch size {self.loader.batch_size}"


def as_pair(batch: object, like: Tensor) -> Batch:
    """``(x, y)`` of what a loader yielded, with x in the dtype and on the device of ``like``.

    Example:
        >>> x, y = as_pair([torch.tensor([[1, 2]]), torch.tensor([0])], torch.zeros(()))
        >>> x, y
        (tensor([[1., 2.]]), tensor([0]))
    """
    if isinstance(batch, Tensor):
        return batch.to(like), None
    if not (isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        raise TypeError(
            f"Expected batches (x, y) of two tensors from the loader, got {type(batch).__name__}. "
            "Use a TensorDataset, or a collate_fn that returns a pair."
        )
    x, y = batch
    return x.to(like), y.to(like.device)
