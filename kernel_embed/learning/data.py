"""The rows that an embedding is learned from: tensors in memory, or what a ``DataLoader`` yields."""

from __future__ import annotations

import abc
import hashlib

import gpytorch
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..validation import check_features
from .batches import Batch, Batches, LoaderBatches, TensorBatches


class Data(abc.ABC):
    """All rows at once, or in batches."""

    num_data: int | None
    """n, where it is known before the data have been seen."""

    @abc.abstractmethod
    def whole(self) -> Batch:
        """All rows."""

    @abc.abstractmethod
    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Batches:
        """``num_epochs`` epochs of mini-batches; all rows in one batch where ``batch_size`` is ``None``."""

    @abc.abstractmethod
    def identity(self) -> str:
        """What tells these data from others, so that a checkpoint is never resumed on other data."""


class TensorData(Data):
    """Rows of ``x`` and, where there are targets, ``y``."""

    def __init__(self, x: Tensor, y: Tensor | None) -> None:
        self.x, self.y = x, y
        self.num_data = x.shape[-2]

    def whole(self) -> Batch:
        """``x`` and ``y``."""
        return self.x, self.y

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Batches:
        """A new permutation for each epoch."""
        n = self.x.shape[-2]
        if batch_size is not None and not 2 <= batch_size <= n:
            raise ValueError(f"Expected batch_size from 2 to the {n} rows of x, got {batch_size}.")
        return TensorBatches(self.x, self.y, batch_size or n, num_epochs, generator)

    def identity(self) -> str:
        """A digest of shapes, dtypes and values."""
        return fingerprint(self.x, self.y)


class LoaderData(Data):
    """The batches of a loader, which never has all rows at once."""

    def __init__(self, loader: DataLoader[object], like: Tensor) -> None:
        self._batches = LoaderBatches(loader, like)
        self.num_data = self._batches.num_data

    def whole(self) -> Batch:
        """Not available."""
        raise ValueError(
            "Expected a loader alone, which yields batches (x, y) for an optimizer that takes batches, got it together "
            "with one that takes all rows at once. Use Adam(...) or TorchOptimizer(...), or give tensors x and y."
        )

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


def as_data(x: Tensor | DataLoader[object], y: Tensor | None, module: gpytorch.Module) -> Data:
    """The rows, and ``module`` in the dtype and on the device of tensors; a loader follows the module instead."""
    if isinstance(x, DataLoader):
        if y is not None:
            raise ValueError("Expected a loader alone, which yields batches (x, y), got it together with y.")
        return LoaderData(x, next(module.parameters(), torch.empty(0)))
    x = check_features(x)
    module.to(dtype=x.dtype, device=x.device)
    return TensorData(x, y)


def fingerprint(*tensors: Tensor | None) -> str:
    """A digest of shapes, dtypes and values."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
