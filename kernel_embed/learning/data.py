"""The rows that an embedding is learned from: tensors in memory, or what a ``DataLoader`` yields."""

from __future__ import annotations

import abc
import dataclasses
import hashlib

import numpy as np
from torch import Tensor
from torch.utils.data import DataLoader

from ..validation import check_count
from .batches import Batch, Batches, LoaderBatches, TensorBatches


class Data(abc.ABC):
    """All rows at once, or in batches."""

    num_data: int | None
    """n, where it is known before the data have been seen."""

    whole: Batch | None
    """All rows, where they are in memory."""

    @abc.abstractmethod
    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Batches:
        """``num_epochs`` epochs of mini-batches; all rows in one batch where ``batch_size`` is ``None``."""

    @abc.abstractmethod
    def identity(self) -> str:
        """What tells these data from others, so that a checkpoint is never resumed on other data."""


@dataclasses.dataclass(frozen=True, eq=False)
class TensorData(Data):
    """``num_data`` rows of x and, where there are targets, y."""

    whole: Batch
    num_data: int

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Batches:
        """A new permutation for each epoch."""
        n = self.num_data
        if batch_size is not None and not 2 <= check_count("batch_size", batch_size) <= n:
            raise ValueError(
                f"Expected batch_size from 2 to the {n} rows of x, got {batch_size}. "
                "Give another batch_size, or none for all rows at once."
            )
        return TensorBatches(*self.whole, batch_size or n, num_epochs, generator)

    def identity(self) -> str:
        """A digest of shapes, dtypes and values."""
        return fingerprint(*self.whole)


class LoaderData(Data):
    """The batches of a loader, which never has all rows at once."""

    whole = None

    def __init__(self, loader: DataLoader[object], like: Tensor) -> None:
        self._batches = LoaderBatches(loader, like)
        self.num_data = self._batches.num_data

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Batches:
        """The loader's own."""
        if batch_size is not None:
            raise ValueError(
                f"Expected a loader alone, got it together with batch_size={batch_size}. "
                "The loader sets the batch size."
            )
        return self._batches

    def identity(self) -> str:
        """Of the loader; the data themselves are not read for it."""
        return self._batches.identity()


def fingerprint(*tensors: Tensor | None) -> str:
    """A digest of shapes, dtypes and values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
