"""The state of one search: the best point, the history, the counter, the checkpoint. One owner, no other writer."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TypedDict, cast

import numpy as np
import torch
from torch import Tensor

from ..objectives.base import Attached
from .checkpoint import load_checkpoint, save_checkpoint
from .parameters import ParameterVector, Snapshot, Vector
from .process_group import ProcessGroup, by_leader
from .records import Callback, Progress, StopSearch, Visit

SECONDS_BETWEEN_CHECKPOINTS = 5.0

OptimizerState = Mapping[str, object]
"""What an optimizer needs to go on where it was: tensors, numbers, text, and dicts and lists of them."""


class _Content(TypedDict):
    """A checkpoint, besides what tells its problem from others."""

    best_value: float
    best: Tensor
    best_buffers: dict[str, Tensor]
    origin: Tensor
    history: list[dict[str, float]]
    num_evaluations: int
    optimizer: str
    optimizer_state: OptimizerState


class Checkpoint:
    """Where a search is written, and for whom.

    Args:
        path: the file.
        identity: what a checkpoint must agree on to belong to this problem.
        optimizer: the name of the optimizer, to which alone its state is given back.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Mapping[str, object], optimizer: str) -> None:
        self._path, self._identity, self.optimizer = path, identity, optimizer
        self._saved = time.perf_counter()

    def read(self, together: ProcessGroup[Attached]) -> _Content | None:
        """What the leader reads, on all processes; ``None`` where there is no file."""
        content = by_leader(together, lambda: load_checkpoint(self._path, **self._identity))
        if content is None:
            return None
        if not content.keys() >= _Content.__required_keys__:
            raise ValueError(f"The checkpoint {self._path} lacks some of its content. Delete it, or name another.")
        finite = all(
            bool(torch.isfinite(torch.as_tensor(content[name], device="cpu")).all()) for name in ("best", "best_value")
        )
        if not finite:
            raise ValueError(
                f"Expected finite parameters in the checkpoint {self._path}, got NaN or infinite ones. Delete it, "
                "or name another."
            )
        if not isinstance(content["num_evaluations"], int) or content["num_evaluations"] < len(content["history"]):
            raise ValueError(
                f"Expected at least as many evaluations as records in the checkpoint {self._path}, got "
                f"{content['num_evaluations']!r} and {len(content['history'])}. Delete it, or name another."
            )
        return cast(_Content, content)

    def is_due(self) -> bool:
        """Whether the last writing was long enough ago."""
        return time.perf_counter() - self._saved > SECONDS_BETWEEN_CHECKPOINTS

    def write(self, content: _Content) -> None:
        """Write it whole."""
        self._saved = time.perf_counter()
        save_checkpoint(self._path, {**self._identity, **content})


class Search:
    """What one call of ``fit`` has found so far. Optimizers reach it through their problem alone.

    Args:
        together: the embedding, learned by one process or several.
        vector: its free parameters.
        checkpoint: resumed from where its file exists, and written.
        callback: told of every record.
    """

    def __init__(
        self,
        together: ProcessGroup[Attached],
        vector: ParameterVector,
        checkpoint: Checkpoint | None = None,
        callback: Callback | None = None,
    ) -> None:
        self._together, self._vector, self._checkpoint, self._callback = together, vector, checkpoint, callback
        self._started = time.perf_counter()
        self._best_value, self._best = float("inf"), Snapshot.take(vector)
        self._origin = self._best.point
        self._history: list[dict[str, float]] = []
        self._num_evaluations = 0
        self._optimizer_state: OptimizerState = {}
        content = None if checkpoint is None else checkpoint.read(together)
        if checkpoint is not None and content is not None:
            self._resume(content, checkpoint.optimizer)

    def _resume(self, content: _Content, optimizer: str) -> None:
        self._best_value = content["best_value"]
        self._best = Snapshot(content["best"].numpy(), content["best_buffers"])
        self._origin = content["origin"].numpy()
        self._history, self._num_evaluations = content["history"], content["num_evaluations"]
        if content["optimizer"] == optimizer:
            self._optimizer_state = content["optimizer_state"]
        self._best.restore(self._vector)

    @property
    def origin(self) -> Vector:
        """The point at which the search began, before any resumption."""
        return np.array(self._origin)

    @property
    def best_value(self) -> float:
        """The lowest value so far, ∞ before the first."""
        return self._best_value

    @property
    def best_point(self) -> Vector:
        """Where it was; the present point before the first."""
        return np.array(self._best.point)

    @property
    def history(self) -> Sequence[dict[str, float]]:
        """Every record so far."""
        return self._history

    @property
    def num_evaluations(self) -> int:
        """Evaluations of objective and gradient so far."""
        return self._num_evaluations

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return time.perf_counter() - self._started

    @property
    def optimizer_state(self) -> OptimizerState:
        """What the same optimizer handed over with its last record, empty where there is none."""
        return self._optimizer_state

    def count(self) -> None:
        """One evaluation more."""
        self._num_evaluations += 1

    def record(self, visit: Visit, start: int, state: Callable[[], OptimizerState] | None) -> None:
        """Remember a visit, and its point if it is the best; tell the callback, which may end the search."""
        self._history.append({"start": float(start), "value": visit.value, **visit.terms})
        if visit.value < self._best_value:
            self._best_value, self._best = visit.value, Snapshot.take(self._vector, visit.point)
        if self._checkpoint is not None:
            # With the record it belongs to: a file never holds an epoch without the state that follows it.
            self._optimizer_state = {} if state is None else state()
            if self._checkpoint.is_due():
                self._save(self._checkpoint)
        self._tell(visit, start)

    def _tell(self, visit: Visit, start: int) -> None:
        if self._callback is None:
            return
        terms, number = MappingProxyType(dict(visit.terms)), len(self._history)
        module = self._together.module
        told = Progress(number, start, visit.value, terms, self._best_value, self.seconds, module)
        # Processes that learn together end together: the leader's answer counts.
        if self._together.from_leader(bool(self._callback(told))):
            raise StopSearch(f"stopped by the callback after record {number}")

    def finish(self) -> None:
        """Leave the embedding at the best point, without gradients, and the checkpoint up to date."""
        self._best.restore(self._vector)
        self._vector.clear_gradient()
        if self._checkpoint is not None and self._history:
            self._save(self._checkpoint)

    def _save(self, checkpoint: Checkpoint) -> None:
        if not self._together.leads:
            return
        content: _Content = {
            "best_value": self._best_value,
            "best": torch.as_tensor(self._best.point, device="cpu"),
            "best_buffers": dict(self._best.buffers),
            "origin": torch.as_tensor(self._origin, device="cpu"),
            "history": self._history,
            "num_evaluations": self._num_evaluations,
            "optimizer": checkpoint.optimizer,
            "optimizer_state": self._optimizer_state,
        }
        checkpoint.write(content)
