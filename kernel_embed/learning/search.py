"""The search of one call of ``fit``: its records, its result, and its state (best point, history, counter)."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import gpytorch
import numpy as np
import torch

from ..objectives.base import Attached
from .checkpoint import Checkpoint, CheckpointContent, OptimizerState
from .loss import ProcessGroup
from .parameters import ParameterVector, Snapshot, Vector


@dataclasses.dataclass(frozen=True)
class Visit:
    """A point, and the objective there.

    Attributes:
        point: the raw parameters as one vector.
        value: the objective there, priors included.
        terms: its summands by name.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.learning import Visit
        >>> Visit(np.zeros(2), 0.7, {"LeaveOneOutRisk": 0.7}).value
        0.7
    """

    point: Vector
    value: float
    terms: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Evaluation(Visit):
    """A visit with the gradient of the value in the raw parameters.

    Attributes:
        gradient: in the raw parameters, of the shape of ``point``.

    Example:
        >>> import kernel_embed as ke
        >>> class OneStep(ke.learning.Optimizer):
        ...     def minimize(self, problem):
        ...         first = problem.evaluate(problem.start)
        ...         problem.record(first)
        ...         problem.record(problem.evaluate(first.point - 0.1 * first.gradient))
        ...         return ke.learning.Outcome(converged=False, message="one step")
    """

    gradient: Vector


@dataclasses.dataclass(frozen=True)
class Progress:
    """What a callback of ``fit`` is told after every record: an evaluation of L-BFGS, an epoch of Adam.

    Attributes:
        number: of the record, from 1, counted over resumptions.
        start: 0, or the number of the restart.
        value: the objective, priors included.
        terms: its summands by name.
        best_value: the lowest value so far, this one included.
        seconds: since ``fit`` was called.
        embedding: as it is now; look at it, and leave its parameters as they are.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> x, y = torch.rand(20, 1), torch.arange(20) % 2
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, callback=lambda progress: progress.number == 2)
        >>> result.num_evaluations
        2
    """

    number: int
    start: int
    value: float
    terms: Mapping[str, float]
    best_value: float
    seconds: float
    embedding: gpytorch.Module = dataclasses.field(repr=False)


Callback = Callable[[Progress], "bool | None"]
"""Called with a :class:`~kernel_embed.learning.Progress`; ``True`` ends the search."""


class StopSearch(Exception):
    """Raised inside an optimizer when the callback ends the search; ``fit`` catches it."""


@dataclasses.dataclass
class FitResult:
    """What ``fit`` did; the embedding itself holds the learned parameters.

    Attributes:
        value: the lowest objective met, priors included; the embedding's parameters are those that reached it.
        history: one record for each evaluation (each epoch with mini-batches): ``start``, ``value``, and every term.
        num_evaluations: evaluations of objective and gradient.
        converged: whether the optimizer met its tolerance.
        message: how it ended, in words.
        seconds: wall-clock time.
        fixed: parameters held fixed because the objective cannot identify them.
        interrupted: whether Ctrl-C ended it.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk(), torch.rand(20, 1), torch.arange(20) % 2, max_evaluations=3)
        >>> len(result.history) == result.num_evaluations, sorted(result.history[0])[0]
        (True, 'LeaveOneOutRisk(epsilon=0.001)')
    """

    value: float
    history: list[dict[str, float]]
    num_evaluations: int
    converged: bool
    message: str
    seconds: float
    fixed: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def terms(self) -> dict[str, float]:
        """Every term of the objective at the best point; empty where nothing was evaluated before an interruption."""
        if not self.history:
            return {}
        best = min(self.history, key=lambda record: record["value"])
        return {name: value for name, value in best.items() if name not in ("start", "value")}

    def __repr__(self) -> str:
        """One line; the history is left out."""
        fixed = f", fixed={self.fixed}" if self.fixed else ""
        return (
            f"FitResult(value={self.value:.6g}, converged={self.converged}, num_evaluations={self.num_evaluations}, "
            f"message={self.message!r}, seconds={self.seconds:.3g}{fixed})"
        )


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

    def _resume(self, content: CheckpointContent, optimizer: str) -> None:
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
        """Remember a visit, and its point if it is the best; call the callback, which may end the search."""
        self._history.append({"start": float(start), "value": visit.value, **visit.terms})
        if visit.value < self._best_value:
            self._best_value, self._best = visit.value, Snapshot.take(self._vector, visit.point)
        if self._checkpoint is not None:
            # With the record it belongs to: a file never holds an epoch without the state that follows it.
            self._optimizer_state = {} if state is None else state()
            if self._checkpoint.is_due():
                self._save(self._checkpoint)
        self._report(visit, start)

    def _report(self, visit: Visit, start: int) -> None:
        if self._callback is None:
            return
        terms, number = MappingProxyType(dict(visit.terms)), len(self._history)
        module = self._together.module
        progress = Progress(number, start, visit.value, terms, self._best_value, self.seconds, module)
        # Processes that learn together end together: the leader's answer counts.
        if self._together.from_leader(bool(self._callback(progress))):
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
        content: CheckpointContent = {
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
