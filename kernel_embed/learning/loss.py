"""The loss that ``fit`` minimizes, on rows in memory, from a ``DataLoader`` or over several processes."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterator, Sized
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import gpytorch
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from ..embeddings import ConditionalEmbedding
from ..linalg import Groups, Units, repeated_rows, single_precision
from ..objectives import Objective
from ..objectives.base import attach, check_value
from ..runtime import usable_for_gradients
from ..validation import check_count
from .direct import Direct, direct_objective
from .parameters import ParameterVector, Vector
from .priors import PriorLoss, prior_loss
from .result import Evaluation, Terms

T = TypeVar("T")


class Batch(NamedTuple):
    """Rows x, y, and their numbers in the data, if these are in memory."""

    x: Tensor
    y: Tensor | None
    rows: Tensor | None = None


class Data:
    """Rows in memory, all at once or in epochs of batches, each a new permutation (Algorithm 1, line 4).

    ``whole`` has all rows if they are in memory; ``num_data`` is n if it is known in advance.
    """

    whole: Batch | None
    num_data: int | None

    def __init__(self, x: Tensor, y: Tensor | None) -> None:
        self.whole, self.num_data = Batch(x, y), x.shape[-2]

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Data:
        """These data with epochs of batches of as equal size as possible; of all rows where it is ``None``."""
        n = self.num_data
        assert n is not None
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
        assert self.whole is not None
        x, y, _ = self.whole
        for part in np.array_split(self._orders[number], self._num_batches):
            rows = torch.as_tensor(part, device=x.device)
            yield Batch(x[rows], None if y is None else y[rows], rows)

    def identity(self) -> str:
        """Values that identify these data, so that a checkpoint is never resumed on other data."""
        return fingerprint(*(self.whole or ())[:2])

    def state(self) -> Tensor | None:
        """The state that determines the order of the next epoch, for a checkpoint, if it depends on one."""
        return None

    def restore(self, state: Tensor | None) -> None:
        """Continue from ``state``, if the order depends on one."""


class LoaderData(Data):
    """The batches of a ``DataLoader``, ``(x, y)`` or ``x`` alone, in the dtype and on the device of ``like``."""

    def __init__(self, loader: DataLoader[object], like: Tensor) -> None:
        self.loader, self.like, self.whole = loader, like, None
        self.num_data = len(loader.dataset) if isinstance(loader.dataset, Sized) else None

    def batches(self, batch_size: int | None, num_epochs: int, generator: np.random.Generator) -> Data:
        """The batches of the loader."""
        if batch_size is not None:
            raise ValueError(f"The loader sets the batch size. Leave out batch_size={batch_size}.")
        return self

    def epoch(self, number: int) -> Iterator[Batch]:
        """One pass through the loader."""
        return (as_pair(batch, self.like) for batch in self.loader)

    def identity(self) -> str:
        """The loader's dataset and batch size; the data themselves are not read."""
        return f"{type(self.loader.dataset).__name__} of {self.num_data}, batch size {self.loader.batch_size}"

    def state(self) -> Tensor | None:
        """The state of the loader's generator; the order of a loader without one cannot be repeated."""
        return None if self.loader.generator is None else self.loader.generator.get_state()

    def restore(self, state: Tensor | None) -> None:
        """Set the loader's generator."""
        if state is not None and self.loader.generator is not None:
            self.loader.generator.set_state(state)


def as_pair(batch: object, like: Tensor) -> Batch:
    """``(x, y)`` of what a loader yielded, with x in the dtype and on the device of ``like``."""
    if isinstance(batch, Tensor):
        return Batch(usable_for_gradients(batch).to(like), None)
    if not (isinstance(batch, list | tuple) and len(batch) == 2 and all(isinstance(part, Tensor) for part in batch)):
        raise TypeError(
            f"The loader must yield pairs (x, y) of tensors, not {type(batch).__name__}. "
            "Use a TensorDataset, or a collate_fn that returns a pair."
        )
    x, y = (usable_for_gradients(part) for part in batch)
    return Batch(x.to(like), y.to(like.device))


@runtime_checkable
class ProcessGroup(Protocol):
    """An embedding that several processes learn together, each with its share of the rows."""

    module: gpytorch.Module  # the embedding itself, whose parameters are learned
    leads: bool  # True on the one process that writes checkpoints

    def attach(self, x: Tensor, y: Tensor | None = None) -> Any:
        """The embedding with the rows of all processes, differentiable in its parameters."""

    def total_rows(self, num_rows: int) -> float:
        """The rows of all processes."""

    def reduce_gradients(self) -> None:
        """Make the gradients of the parameters those of all rows."""

    def from_leader(self, value: T) -> T:
        """The ``value`` of the leader, on every process."""


class LocalProcess:
    """An embedding learned by one process, which has all rows, with their weights and groups."""

    leads = True

    def __init__(self, embedding: gpytorch.Module, weights: Tensor | None = None, groups: Groups = None) -> None:
        self.module: gpytorch.Module = embedding
        self.weights, self.groups = weights, groups
        self._cached: tuple[Tensor, Units] | None = None

    def attach(self, x: Tensor, y: Tensor | None = None) -> Any:
        """The embedding with its data."""
        groups = self.groups.labels if isinstance(self.groups, Units) else self.groups
        for name, values in (("Weights", self.weights), ("Groups", groups)):
            if values is not None and len(values) != x.shape[-2]:
                raise ValueError(
                    f"{name} are for all {len(values)} rows, but the loader yields {x.shape[-2]} of them. Pass x and y "
                    "instead of a loader, or repeat rows instead of weighting them."
                )
        return attach(self.module, x, y, self.weights, self.units(x, y))

    def units(self, x: Tensor, y: Tensor | None) -> Units | None:
        """What is left out at a time; computed once for rows that stay the same."""
        if y is None or not (isinstance(self.module, ConditionalEmbedding) or self.groups is not None):
            return None
        if self._cached is None or self._cached[0] is not x:
            units = repeated_rows(x, y) if self.groups is None else Units.of(x, self.groups)
            self._cached = x, units or Units()
        return self._cached[1]

    def restricted(self, rows: Tensor) -> LocalProcess:
        """The embedding with the weights and groups of some rows."""
        groups = self.groups.subset(rows) if isinstance(self.groups, Units) else self.groups
        groups = groups[rows] if isinstance(groups, Tensor) else groups
        return LocalProcess(self.module, None if self.weights is None else self.weights[rows], groups)

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


class Loss:
    """The objective with priors on a batch, or on all rows as a function of u; ``single`` factorizes in float32."""

    def __init__(
        self, group: ProcessGroup, objective: Objective[Any], vector: ParameterVector, data: Data, single: bool = False
    ) -> None:
        self.group, self.objective, self.vector, self.data, self._single = group, objective, vector, data, single
        self._num_data = None if data.num_data is None else group.total_rows(data.num_data)
        self._priors: PriorLoss | None = None
        self._has_priors = next(iter(group.module.named_priors()), None) is not None
        self._names = [repr(term) for _, term in objective.terms()] + ["priors"] * self._has_priors

    @functools.cached_property
    def direct(self) -> Direct | None:
        """The objective on few rows without modules and graph, if it has such a form."""
        group, rows = self.group, self.data.whole
        if rows is None or self._single or not isinstance(group, LocalProcess):
            return None
        units = group.units(rows.x, rows.y)
        return direct_objective(group.module, self.objective, rows.x, rows.y, self.vector, group.weights, units)

    def __call__(self, batch: Batch) -> tuple[Tensor, Terms]:
        """The loss on these rows, differentiable, and its terms."""
        x, y, rows = batch
        group, module = self.group, self.group.module
        if rows is not None and isinstance(group, LocalProcess):
            group = group.restricted(rows)
        attached = group.attach(x, y)
        values = [c * check_value(t, t.evaluate(attached), module).sum() for c, t in self.objective.terms()]
        if self._has_priors:
            # The prior is for all n rows, so a mini-batch gets its share of it.
            values.append(prior_loss(module) * self._share(attached.num_data))
        return sum(values, start=x.new_zeros(())), self._named([value.item() for value in values])

    def backpropagate(self, batch: Batch) -> tuple[float, Terms]:
        """The loss as a number and its terms; if it is finite, its gradient over all rows is accumulated."""
        with single_precision(self._single):
            loss, terms = self(batch)
        if torch.isfinite(loss):
            loss.backward()
            self.group.reduce_gradients()
        return loss.item(), terms

    def evaluate(self, u: Vector) -> Evaluation:
        """The loss on all rows at u, which the parameters already have."""
        evaluation = self.evaluate_directly(u)
        if evaluation is None:
            assert self.data.whole is not None
            self.vector.clear_gradient()
            value, terms = self.backpropagate(self.data.whole)
            evaluation = Evaluation(u.copy(), value, terms, self.vector.gradient())
        return evaluation

    def evaluate_directly(self, u: Vector) -> Evaluation | None:
        """The same without modules and graph; ``None`` if the autograd path must decide."""
        answer = None if self.direct is None else self.direct(u)
        if self.direct is None or self.data.num_data is None or answer is None:
            return None
        values, gradient = answer
        if self._has_priors:
            share = self._share(self.data.num_data)
            self._priors = self._priors or PriorLoss(self.vector)
            prior, slope = self._priors(u)
            values, gradient = [*values, share * prior], gradient + share * slope
        terms = self._named(values)
        value = sum(terms.values())
        if self.direct.is_direct and not math.isfinite(value):
            return None
        return Evaluation(u.copy(), value, terms, gradient)

    def _named(self, values: list[float]) -> Terms:
        """Values by the names of their terms; those with the same name are added."""
        terms: Terms = {}
        for name, value in zip(self._names, values, strict=True):
            terms[name] = terms.get(name, 0.0) + value
        return terms

    def _share(self, num_rows: int) -> float:
        """The weight of the priors in the loss on ``num_rows`` rows."""
        if self._num_data is None:
            raise ValueError(
                "Registered priors are weighted by n, but the dataset of the loader has no length. Give the dataset a "
                "__len__, or remove the priors."
            )
        return 1.0 / self._num_data if self.objective.per_datum else num_rows / self._num_data
