"""Optimizers and what they return, the argument of a callback, and the result of ``fit``."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import gpytorch

from .parameters import Vector

if TYPE_CHECKING:
    from .problem import Problem

Terms = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Visit:
    """A point, and the objective there.

    Attributes:
        point: the raw parameters as one vector.
        value: the objective there, priors included.
        terms: its summands by name.

    Example:
        >>> import numpy as np, kernel_embed as ke
        >>> ke.learning.Visit(np.zeros(2), 0.7, {"LeaveOneOutRisk": 0.7}).value
        0.7
    """

    point: Vector
    value: float
    terms: Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class Evaluation(Visit):
    """A visit with the ``gradient`` in the raw parameters, of the shape of ``point``."""

    gradient: Vector


@dataclasses.dataclass(frozen=True)
class Progress:
    """The argument of a callback of ``fit``, after every evaluation of L-BFGS or epoch of Adam.

    Attributes:
        number: of the record, from 1, counted over resumptions.
        start: 0, or the number of the restart.
        value: the objective, priors included.
        terms: its summands by name.
        best_value: the lowest value so far, this one included.
        seconds: since ``fit`` was called.
        embedding: the current embedding; do not change its parameters.

    Example:
        >>> import gpytorch, torch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> x, y = torch.rand(20, 1), torch.arange(20) % 2
        >>> ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, callback=lambda told: told.number == 2).num_evaluations
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


class StopEarly(StopSearch):
    """Raised when the held-out loss has not fallen for a while; ends one start of a search."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """How a search ended.

    Attributes:
        converged: whether the optimizer met its own criterion.
        message: how it ended, in words.

    Example:
        >>> from kernel_embed.learning import Outcome
        >>> Outcome(converged=True, message="gradient below 1e-5").converged
        True
    """

    converged: bool
    message: str


class Optimizer(abc.ABC):
    """Base class of optimizers for ``fit(…, optimizer=…)``. To write your own, subclass it as a frozen dataclass.

    :meth:`minimize` evaluates points of a :class:`~kernel_embed.learning.Problem`, records candidates of the best one,
    and returns an :class:`Outcome`; ``fit`` does the rest. So keep no state in the optimizer, do not catch exceptions,
    and draw random numbers from ``problem.generator``.

    Example:
        >>> import dataclasses, gpytorch, torch, kernel_embed as ke
        >>> @dataclasses.dataclass(frozen=True)
        ... class RandomSearch(Optimizer):
        ...     num_draws: int = 30
        ...
        ...     def minimize(self, problem):
        ...         problem.record(problem.evaluate(problem.start))
        ...         for _ in range(self.num_draws):
        ...             step = 0.3 * problem.generator.standard_normal(problem.start.shape)
        ...             problem.record(problem.evaluate(problem.best_point + step))
        ...         return Outcome(False, f"made all {self.num_draws} draws")
        >>> x, y = torch.rand(20, 1, dtype=torch.float64), torch.arange(20) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, optimizer=RandomSearch(), seed=0).message
        'made all 30 draws'
    """

    @abc.abstractmethod
    def minimize(self, problem: Problem) -> Outcome:
        """Search, record points, and return the outcome."""


@dataclasses.dataclass
class FitResult:
    """The result of ``fit``; the learned parameters are in the embedding.

    Attributes:
        value: the objective, priors included, at the parameters of the embedding.
        history: one record for each evaluation (each epoch with mini-batches): ``start``, ``value``, and every term.
        num_evaluations: evaluations of objective and gradient.
        converged: whether the optimizer met its tolerance at a point that is not degenerate.
        message: how it ended, in words.
        seconds: wall-clock time.
        fixed: parameters held fixed because the objective cannot identify them.
        interrupted: whether Ctrl-C ended it.
        held_out: the numbers of the rows held out for early stopping; their loss is ``held_out`` in the history.
        degenerate: what is degenerate in the learned parameters, with the parameter and its column; announced by one
            warning.

    Example:
        >>> import gpytorch, torch, kernel_embed as ke
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk(), torch.rand(20, 1), torch.arange(20) % 2, max_evaluations=3)
        >>> len(result.history), sorted(result.history[0])
        (3, ['LeaveOneOutRisk(epsilon=0.001)', 'start', 'value'])
    """

    value: float
    history: list[dict[str, float]]
    num_evaluations: int
    converged: bool
    message: str
    seconds: float
    fixed: tuple[str, ...] = ()
    interrupted: bool = False
    degenerate: tuple[str, ...] = ()
    held_out: tuple[int, ...] = ()

    @property
    def terms(self) -> dict[str, float]:
        """Every term of the objective at the best point; empty if nothing was evaluated before an interruption."""
        best = min(self.history, key=lambda record: record.get("held_out", record["value"]), default={})
        return {name: value for name, value in best.items() if name not in ("start", "value", "held_out")}

    def __repr__(self) -> str:
        parts = {"fixed": self.fixed, "degenerate": self.degenerate, "num_held_out": len(self.held_out)}
        others = "".join(f", {name}={value}" for name, value in parts.items() if value)
        return (
            f"FitResult(value={self.value:.6g}, converged={self.converged}, num_evaluations={self.num_evaluations}, "
            f"message={self.message!r}, seconds={self.seconds:.3g}{others})"
        )
