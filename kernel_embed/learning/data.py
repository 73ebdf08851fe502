"""The rows that an embedding is learned from, in memory or from a ``DataLoader``, and a check of the kernel on them."""

from __future__ import annotations

import abc
import dataclasses
import hashlib
import warnings
from collections.abc import Iterator, Sized
from typing import Protocol

import gpytorch
import numpy as np
import torch
from gpytorch.kernels import Kernel
from linear_operator.utils.warnings import NumericalWarning
from torch import Tensor
from torch.utils.data import DataLoader

from ..kernels import gram, gram_diagonal
from ..kernels.initialization import has_lengthscale
from ..validation import check_count

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


NUM_ROWS = 50
"""Rows that are compared with all others."""
ALONE = 1e-12
"""Correlations k(x, x') / √(k(x, x) k(x', x')) below which two points do not see each other."""
ALIKE = 1e-8
"""Differences, as a part of the largest kernel value, below which points are not told apart."""


def warn_of_blind_start(embedding: gpytorch.Module, x: Tensor) -> None:
    """Warn of a Gram matrix that is diagonal or constant up to rounding, where no gradient shows the way.

    Embeddings with a ridge λ are meant: their objectives are flat there. The evidence of a mean embedding is not, since
    it is computed in the log domain.
    """
    kernel = getattr(embedding, "kernel", None)
    if not isinstance(kernel, Kernel) or not hasattr(embedding, "raw_regularization") or x.shape[-2] < 2:
        return
    if not has_lengthscale(kernel, x):
        return
    fault = _fault(kernel, x)
    if fault is not None:
        warnings.warn(
            f"The kernel {fault} at the start of fit, where the objective is flat and the search may end as it began. "
            "Call kernel_embed.kernels.set_lengthscales_by_median(embedding.kernel, x) before, or scale the features.",
            NumericalWarning,
            stacklevel=3,
        )


@torch.no_grad()
def _fault(kernel: Kernel, x: Tensor) -> str | None:
    """What is wrong, in words, with K between some rows and all."""
    rows = torch.linspace(0, x.shape[-2] - 1, min(NUM_ROWS, x.shape[-2]), device=x.device).round().long()
    K = gram(kernel, x[rows], x)
    size = K.abs().amax(dim=(-2, -1))
    if bool((K.amax(dim=(-2, -1)) - K.amin(dim=(-2, -1)) <= ALIKE * size).any()) and bool((x[rows] != x[:1]).any()):
        return "is constant up to rounding"
    diagonal = gram_diagonal(kernel, x).clamp_min(torch.finfo(x.dtype).tiny).sqrt()
    correlations = K.abs() / (diagonal[..., rows].unsqueeze(-1) * diagonal.unsqueeze(-2))
    correlations[..., torch.arange(len(rows), device=x.device), rows] = 0.0
    if bool((correlations.amax(dim=-1).median(dim=-1).values < ALONE).any()):
        return "sees no two points as near, for more than half of them,"
    return None
