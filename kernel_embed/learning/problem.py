"""The problem that an optimizer minimizes: points to evaluate, batches, and the records of the search."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError

from ..archive import load_checkpoint, save_checkpoint
from ..kernels import DiagonalBoundError
from ..runtime import ProgressBar, collected_warnings, progress_bar
from .early_stopping import HeldOut
from .loss import Batch, Data, Loss
from .parameters import Snapshot, Vector
from .result import Callback, Evaluation, Progress, StopSearch, Terms, Visit

NO_VALUE = (NotPSDError, NanError, DiagonalBoundError)
"""Errors of :meth:`Problem.evaluate` where the objective does not exist; a line search steps back there."""
SECONDS_BETWEEN_CHECKPOINTS = 5.0
CONTENT = {"best_value", "best", "best_buffers", "origin", "history", "num_evaluations", "optimizer", "optimizer_state"}
OptimizerState = Mapping[str, object]  # tensors, numbers, text, and dicts and lists of them


class Problem:
    """Minimize an objective over the raw parameters of an embedding; made by ``fit`` for an optimizer.

    An optimizer that chooses points uses :meth:`evaluate`; one that changes ``parameters`` in place uses
    :meth:`batches`, :meth:`backpropagate` and :meth:`project`. Both :meth:`record` what they have evaluated; ``fit``
    keeps the best of it.

    Attributes:
        generator: for every random choice, seeded by ``fit(seed=…)``.
        start: the point at which the search began, before any resumption.
        bounds: the lowest and highest value of each entry, ``None`` if there is none: those of constraints, and the
            default bounds that keep lengthscales and λ away from degenerate values.
        constraint_bounds: those of constraints alone.
        lowest: the default lower bounds alone, −∞ where there is none.
        parameters: the parameters themselves.
        history: one record for each call of :meth:`record`, those before a resumption included.
        best_value: the lowest value so far, ∞ before the first; with early stopping, that at the lowest held-out loss.
        num_evaluations: evaluations of objective and gradient so far.
        saved_state: what an optimizer of the same class passed to :meth:`record` before a resumption; else empty.

    Args:
        loss: the objective with its embedding, parameters and data.
        generator: for random choices.
        progress: show a progress bar.
        callback: called after every record.
        held_out: rows that decide which point is the best.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class OneStep(ke.learning.Optimizer):
        ...     def minimize(self, problem):
        ...         first = problem.evaluate(problem.start)
        ...         problem.record(first)
        ...         problem.record(problem.evaluate(first.point - 0.1 * first.gradient))
        ...         return ke.learning.Outcome(False, f"{len(first.point)} parameters")
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> x, y = torch.rand(20, 1, dtype=torch.float64), torch.arange(20) % 2
        >>> ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, optimizer=OneStep()).message
        '2 parameters'
    """

    best_warnings: list[str]  # of the evaluation at the best point

    def __init__(
        self,
        loss: Loss,
        generator: np.random.Generator,
        progress: bool | None = None,
        callback: Callback | None = None,
        held_out: HeldOut | None = None,
    ) -> None:
        self._loss, self._progress, self._callback, self._held_out = loss, progress, callback, held_out
        vector = self._vector = loss.vector
        self._began = self._saved = time.perf_counter()
        self._checkpoint: str | os.PathLike[str] | None = None
        self._identity: dict[str, object] = {}
        self._best = Snapshot.take(vector)
        self._warnings: list[str] = []
        self.generator, self.start = generator, self._best.point.copy()
        self.bounds, self.constraint_bounds = vector.bounds(), vector.constraint_bounds()
        self.lowest = np.full(len(self.start), -np.inf) if vector.lowest is None else vector.lowest
        self.parameters = vector.parameters
        self.history: list[dict[str, float]] = []
        self.best_value, self.num_evaluations, self.best_warnings = math.inf, 0, []
        self.saved_state: OptimizerState = {}

    def resume(self, path: str | os.PathLike[str], identity: Mapping[str, object], optimizer: str) -> None:
        """Continue from the checkpoint at ``path`` where the file exists, and write it from now on.

        ``identity`` is what a checkpoint of the same problem has; only the same ``optimizer`` gets its state back.
        """
        self._checkpoint, self._identity = path, {**identity, "optimizer": optimizer}
        outcome: Any = None
        if self._loss.group.leads:
            try:
                outcome = load_checkpoint(path, **identity)
            except ValueError as error:
                outcome = error
        content = self._loss.group.from_leader(outcome)
        if isinstance(content, ValueError):
            raise content
        if content is None:
            return
        fault = None
        if not content.keys() >= CONTENT:
            fault = "lacks some of its content"
        elif not np.isfinite([content["best_value"], *content["best"]]).all():
            fault = "has parameters or a value that are not finite"
        elif not isinstance(content["num_evaluations"], int) or content["num_evaluations"] < len(content["history"]):
            fault = "has fewer evaluations than records"
        if fault is not None:
            raise ValueError(f"The checkpoint {path} {fault}. Delete it, or name another.")
        self.best_value, self.start = content["best_value"], content["origin"].numpy()
        self._best = Snapshot(content["best"].numpy(), content["best_buffers"])
        self.history, self.num_evaluations = content["history"], content["num_evaluations"]
        if content["optimizer"] == optimizer:
            self.saved_state = content["optimizer_state"]
        self._best.restore(self._vector)

    @property
    def best_point(self) -> Vector:
        """Where the best value was; the start before the first record."""
        return np.array(self._best.point)

    @property
    def seconds(self) -> float:
        """The time since the search began."""
        return time.perf_counter() - self._began

    def evaluate(self, point: Vector) -> Evaluation:
        """``value``, its ``terms`` and ``gradient`` on all rows, at ``point``.

        Raises:
            linear_operator.utils.errors.NanError: if the objective or its gradient is not finite.
        """
        if self._loss.data.whole is None:
            raise ValueError(
                "This optimizer needs all rows at once, but a loader yields batches. Use Adam(...) or "
                "TorchOptimizer(...), or give tensors x and y."
            )
        self._vector.set(point)
        self.num_evaluations += 1
        with collected_warnings() as self._warnings:
            evaluation = self._loss.evaluate(point)
        if not (math.isfinite(evaluation.value) and np.isfinite(evaluation.gradient).all()):
            where = "these" if self.history else "the starting"
            raise NanError(
                f"The objective or its gradient is not finite at {where} parameters; its value is {evaluation.value}. "
                "Start from lengthscales near the distances in x, or scale the features."
            )
        return evaluation

    def batches(self, batch_size: int | None, num_epochs: int) -> Data:
        """Epochs of batches: of this size, of all rows (``None``), or as a loader has them (``None``)."""
        return self._loss.data.batches(batch_size, num_epochs, self.generator)

    def backpropagate(self, batch: Batch) -> tuple[float, Terms]:
        """The objective on a batch at the current parameters, and its terms; the gradient is added to theirs."""
        self.num_evaluations += 1
        with collected_warnings() as self._warnings:
            return self._loss.backpropagate(batch)

    def project(self) -> None:
        """Move the parameters back inside their bounds after a step."""
        self._vector.project()

    def snapshot(self) -> Snapshot:
        """Parameters and buffers as they are."""
        return Snapshot.take(self._vector)

    def restore(self, snapshot: Snapshot) -> None:
        """Put parameters and buffers back."""
        snapshot.restore(self._vector)

    def progress_bar(self, total: int) -> ProgressBar:
        """A bar for ``total`` steps, to be used in a ``with``; shown where ``fit(progress=…)`` says so."""
        return progress_bar(total, "fit", self._progress)

    def record(self, visit: Visit, *, start: int = 0, state: Callable[[], OptimizerState] | None = None) -> None:
        """Report a point: it enters the history and the checkpoint, the callback is called, the best one is kept.

        Args:
            visit: the result of :meth:`evaluate`, or your own :class:`Visit`.
            start: which start it belongs to, for optimizers with several.
            state: called at once if there is a checkpoint; its result becomes ``saved_state`` when the search is
                resumed. It must not share tensors that the optimizer changes later.

        Raises:
            kernel_embed.learning.result.StopSearch: if the callback ends the search; ``fit`` catches it.
        """
        self.history.append({"start": float(start), "value": visit.value, **visit.terms})
        held_out = self._held_out
        if visit.value < self.best_value if held_out is None else held_out.is_best(self._vector, visit, self.history):
            self.best_value, self._best = visit.value, Snapshot.take(self._vector, visit.point)
            self.best_warnings = self._warnings
        if self._checkpoint is not None:
            # Written with its record: a file never holds an epoch without the state after it.
            self.saved_state = {} if state is None else state()
            if time.perf_counter() - self._saved > SECONDS_BETWEEN_CHECKPOINTS:
                self._save()
        if held_out is not None:
            held_out.check_patience(self.history)
        if self._callback is None:
            return
        terms, number = MappingProxyType(dict(visit.terms)), len(self.history)
        progress = Progress(number, start, visit.value, terms, self.best_value, self.seconds, self._loss.group.module)
        # The leader decides for all processes.
        if self._loss.group.from_leader(bool(self._callback(progress))):
            raise StopSearch(f"stopped by the callback after record {number}")

    def finish(self) -> None:
        """Leave the embedding at the best point, without gradients, and the checkpoint up to date."""
        self._best.restore(self._vector)
        self._vector.clear_gradient()
        if self.history:
            self._save()

    def _save(self) -> None:
        self._saved = time.perf_counter()
        if self._checkpoint is None or not self._loss.group.leads:
            return
        content = {
            "best_value": self.best_value,
            "best": torch.as_tensor(self._best.point, device="cpu"),
            "best_buffers": dict(self._best.buffers),
            "origin": torch.as_tensor(self.start, device="cpu"),
            "history": self.history,
            "num_evaluations": self.num_evaluations,
            "optimizer_state": self.saved_state,
        }
        save_checkpoint(self._checkpoint, {**self._identity, **content})
