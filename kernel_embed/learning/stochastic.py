"""Mini-batches: Algorithm 1 with Adam, or with any optimizer of ``torch.optim``."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from linear_operator.utils.errors import NanError

from ..validation import check_at_least, check_count
from .loss import Batch, Data
from .parameters import Snapshot
from .problem import Problem
from .result import Optimizer, Outcome, Visit

SETTLED = 1e-3  # a search has converged when its last ten epochs differ by less than this share of their mean
Factory = Callable[[list[torch.nn.Parameter]], torch.optim.Optimizer]


@dataclasses.dataclass(frozen=True)
class TorchOptimizer(Optimizer):
    """Any optimizer of ``torch.optim``: one step for each batch; the epoch with the lowest mean objective is kept.

    Args:
        factory: creates the optimizer for the parameters; called for each search.
        num_epochs: passes through the rows.
        batch_size: rows of a mini-batch, in a new permutation each epoch; all rows at once by default. A loader sets
            its own.

    Raises:
        TypeError: if ``num_epochs`` is not a number, or ``factory`` cannot be called.
        ValueError: if it is below 1.

    Example:
        >>> TorchOptimizer(torch.optim.SGD, num_epochs=5)
        TorchOptimizer(factory=<class 'torch.optim.sgd.SGD'>, num_epochs=5, batch_size=None)
    """

    factory: Factory
    num_epochs: int = 200
    batch_size: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.factory):
            raise TypeError(
                f"The factory must make a torch.optim.Optimizer of parameters, but {self.factory!r} cannot be called. "
                "Use, say, TorchOptimizer(lambda p: torch.optim.SGD(p, lr=0.1))."
            )
        check_count("num_epochs", self.num_epochs)

    def minimize(self, problem: Problem) -> Outcome:
        """Run all epochs; converged if the last ten hardly differ."""
        stepper = self.factory(problem.parameters)
        if not isinstance(stepper, torch.optim.Optimizer):
            raise TypeError(
                f"The factory must return a torch.optim.Optimizer, not a {type(stepper).__name__}. "
                "Use, say, TorchOptimizer(lambda p: torch.optim.SGD(p, lr=0.1))."
            )
        batches = problem.batches(self.batch_size, self.num_epochs)
        saved: Any = problem.saved_state
        first = 0
        if saved.get("stepper") == type(stepper).__qualname__:
            stepper.load_state_dict(copy.deepcopy(saved["moments"]))  # the optimizer would write into them
            problem.restore(Snapshot(saved["point"].numpy(), saved["buffers"]))
            batches.restore(saved["batches"])
            first = int(saved["epoch"])
        with problem.progress_bar(self.num_epochs) as bar:
            bar.update(first)
            for epoch in range(first, self.num_epochs):
                visit = _epoch(problem, stepper, batches.epoch(epoch), epoch)
                problem.record(visit, state=functools.partial(_state, problem, stepper, batches, epoch + 1))
                bar.update()
                bar.set_postfix_str(f"{visit.value:.4f}", refresh=False)
        tail = [record["value"] for record in problem.history[-10:]]
        has_settled = len(tail) == 10 and bool(max(tail) - min(tail) <= SETTLED * abs(np.mean(tail)))
        return Outcome(has_settled, f"ran all {self.num_epochs} epochs")


@dataclasses.dataclass(frozen=True)
class Adam(Optimizer):
    """``torch.optim.Adam``, Algorithm 1: see :class:`~kernel_embed.learning.TorchOptimizer`.

    Args:
        num_epochs: passes through the rows.
        learning_rate: of Adam.
        batch_size: rows of a mini-batch; all rows at once by default. A loader sets its own.

    Raises:
        TypeError: if a setting is not a number.
        ValueError: if ``num_epochs`` is below 1, or ``learning_rate`` negative.

    Example:
        >>> Adam(num_epochs=50, batch_size=100)
        Adam(num_epochs=50, learning_rate=0.1, batch_size=100)
    """

    num_epochs: int = 200
    learning_rate: float = 0.1
    batch_size: int | None = None

    def __post_init__(self) -> None:
        check_count("num_epochs", self.num_epochs)
        check_at_least(0, learning_rate=self.learning_rate)

    def minimize(self, problem: Problem) -> Outcome:
        """Run all epochs; converged if the last ten hardly differ."""
        factory = functools.partial(torch.optim.Adam, lr=self.learning_rate)
        return TorchOptimizer(factory, self.num_epochs, self.batch_size).minimize(problem)


def _state(problem: Problem, stepper: torch.optim.Optimizer, batches: Data, epoch: int) -> dict[str, object]:
    """The state in a checkpoint after an epoch."""
    now = problem.snapshot()
    return {
        "stepper": type(stepper).__qualname__,
        "moments": copy.deepcopy(stepper.state_dict()),  # the optimizer changes its tensors in place
        "point": torch.as_tensor(now.point, device="cpu"),
        "buffers": dict(now.buffers),
        "batches": batches.state(),
        "epoch": epoch,
    }


def _epoch(problem: Problem, stepper: torch.optim.Optimizer, batches: Iterable[Batch], epoch: int) -> Visit:
    """One step for each batch; the mean of their objectives."""
    before, totals, num_batches = problem.snapshot().point, dict[str, float](), 0
    for batch in batches:
        for name, term in _step(problem, stepper, batch, epoch).items():
            totals[name] = totals.get(name, 0.0) + term
        num_batches += 1
    if num_batches == 0:
        raise ValueError(f"The data yielded no batch in epoch {epoch}. Are they empty?")
    means = {name: total / num_batches for name, total in totals.items()}
    # With one batch the value belongs to the point before the step; with several, to the path of the epoch.
    point = before if num_batches == 1 else problem.snapshot().point
    return Visit(point, sum(means.values()), means)


def _step(problem: Problem, stepper: torch.optim.Optimizer, batch: Batch, epoch: int) -> Mapping[str, float]:
    """One step, and the terms of the objective before it; steppers with a line search evaluate more than once."""
    met: list[Mapping[str, float]] = []

    def closure() -> float:
        stepper.zero_grad()
        value, terms = problem.backpropagate(batch)
        if not math.isfinite(value):
            raise NanError(f"The objective is {value} in epoch {epoch}. A smaller learning_rate usually avoids this.")
        met.append(terms)
        return value

    stepper.step(closure)
    problem.project()
    if not met:
        raise TypeError(f"{type(stepper).__name__}.step(closure) did not call its closure.")
    return met[0]
