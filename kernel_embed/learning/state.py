"""The state of a search for parameters: loss, best point so far, history, checkpoint."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import gpytorch
import torch
from torch import Tensor

from ..objectives import Objective, bound
from .checkpoint import load_checkpoint, save_checkpoint
from .parameters import ParameterVector, Vector, prior_loss

SECONDS_BETWEEN_CHECKPOINTS = 5.0


@runtime_checkable
class Cooperative(Protocol):
    """An embedding that several processes learn together, each with its share of the rows."""

    module: gpytorch.Module
    """The embedding itself, whose parameters are learned."""

    leads: bool
    """True on the one process that writes checkpoints."""

    def condition(self, x: Tensor, y: Tensor) -> Any:
        """The embedding with the rows of all processes."""
        ...  # pragma: no cover

    def total_rows(self, num_rows: int) -> int:
        """The rows of all processes together."""
        ...  # pragma: no cover

    def reduce_gradients(self) -> None:
        """Make the gradients of the parameters those of all rows."""
        ...  # pragma: no cover

    def from_leader(self, value: Any) -> Any:
        """``value`` as the leader has it."""
        ...  # pragma: no cover


def module_of(embedding: gpytorch.Module | Cooperative) -> gpytorch.Module:
    """The module whose parameters are learned."""
    return embedding.module if isinstance(embedding, Cooperative) else embedding


class Search:
    """The state of one call of ``fit``: best point, history, checkpoint."""

    def __init__(
        self,
        embedding: gpytorch.Module | Cooperative,
        objective: Objective,
        vector: ParameterVector,
        num_data: int | None,
        data: str,
        checkpoint: str | os.PathLike[str] | None,
    ) -> None:
        self.embedding, self.objective, self.vector, self.num_data = embedding, objective, vector, num_data
        self.module = module_of(embedding)
        self.checkpoint = checkpoint
        self.started = self._saved = time.perf_counter()
        self.best_value, self.best = float("inf"), vector.get()
        self.origin = self.best
        self.best_buffers = self.buffers()
        self.history: list[dict[str, float]] = []
        self.num_evaluations = self.start = 0
        self.converged, self.message = False, ""
        self.optimizer_state: dict[str, Any] = {}
        self._identity = {
            "objective": repr(objective),
            "shapes": {name: list(p.shape) for name, p in vector.named.items()},
            "data": data,
        }
        self._resume()

    def _resume(self) -> None:
        if self.checkpoint is None:
            return
        checkpoint, identity = self.checkpoint, self._identity
        content = self._by_leader(lambda: load_checkpoint(checkpoint, **identity))
        if content is None:
            return
        self.best_value, self.best = content["best_value"], content["best"].numpy()
        self.origin = content["origin"].numpy()
        self.history, self.num_evaluations = content["history"], content["num_evaluations"]
        self.start, self.optimizer_state = content["start"], content["optimizer_state"]
        self.best_buffers = content["best_buffers"]
        self.restore(self.best, self.best_buffers)

    def _by_leader(self, read: Callable[[], Any]) -> Any:
        """What ``read`` returns or raises, on one rank for all."""
        if not isinstance(self.embedding, Cooperative):
            return read()
        outcome: Any = None
        if self.embedding.leads:
            try:
                outcome = read()
            except ValueError as error:
                outcome = error
        outcome = self.embedding.from_leader(outcome)
        if isinstance(outcome, ValueError):
            raise outcome
        return outcome

    def buffers(self) -> dict[str, Tensor]:
        """A copy of all buffers, such as the running statistics of batch normalisation."""
        return {name: buffer.detach().clone() for name, buffer in self.module.named_buffers()}

    def restore(self, point: Vector, buffers: dict[str, Tensor]) -> None:
        """Put parameters and buffers back."""
        self.vector.set(point)
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                if name in buffers:
                    buffer.copy_(buffers[name])

    def save(self, force: bool = False) -> None:
        """Write the checkpoint, at most every few seconds unless forced."""
        now = time.perf_counter()
        if self.checkpoint is None or not (force or now - self._saved > SECONDS_BETWEEN_CHECKPOINTS):
            return
        self._saved = now
        if isinstance(self.embedding, Cooperative) and not self.embedding.leads:
            return
        content = {
            **self._identity,
            "best_value": self.best_value,
            "best": torch.as_tensor(self.best, device="cpu"),
            "best_buffers": self.best_buffers,
            "origin": torch.as_tensor(self.origin, device="cpu"),
            "history": self.history,
            "num_evaluations": self.num_evaluations,
            "start": self.start,
            "optimizer_state": self.optimizer_state,
        }
        save_checkpoint(self.checkpoint, content)

    def finish(self) -> None:
        """Leave the embedding at the best point, without gradients."""
        self.restore(self.best, self.best_buffers)
        self.vector.clear_gradient()
        self.save(force=True)

    def loss(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, dict[str, float]]:
        """The objective with priors on these rows, and its terms."""
        embedding: Any = self.embedding
        joined = bound(embedding, x, y)
        values = [(repr(term), c * term.evaluate(joined).sum()) for c, term in self.objective.terms()]
        prior = prior_loss(self.module)
        if prior is not None:
            # A prior belongs to all n data: a mini-batch, mean or sum, carries its share of it.
            values.append(("priors", prior * self._share(joined.num_data)))
        total = sum((value for _, value in values), start=x.new_zeros(()))
        terms: dict[str, float] = {}
        for name, value in values:
            terms[name] = terms.get(name, 0.0) + value.item()
        return total, terms

    def _share(self, num_rows: int) -> float:
        if self.num_data is None:
            raise ValueError(
                "Expected a loader whose dataset has a length, because registered priors are weighed by n, got one "
                "without. Give the dataset a __len__, or remove the priors."
            )
        return 1.0 / self.num_data if self.objective.per_datum else num_rows / self.num_data

    def backward(self, loss: Tensor) -> None:
        """The gradient of ``loss``, over all ranks where there are several."""
        loss.backward()
        if isinstance(self.embedding, Cooperative):
            self.embedding.reduce_gradients()

    def record(self, value: float, terms: dict[str, float], point: Vector) -> None:
        """Remember an evaluation, and the point if it is the best."""
        self.history.append({"start": float(self.start), "value": value, **terms})
        if value < self.best_value:
            self.best_value, self.best, self.best_buffers = value, point.copy(), self.buffers()
        self.save()


def fingerprint(*tensors: Tensor | None) -> str:
    """What tells one data set from another, so that a checkpoint is never resumed on other data."""
    digest = hashlib.sha256()
    for tensor in tensors:
        if tensor is not None:
            digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
