"""What passes between an optimizer, the search it belongs to, and the one who watches: immutable records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping

import gpytorch

from .parameters import Vector


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
