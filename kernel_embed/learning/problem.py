"""Optimizers, and the problem that one minimizes: points to evaluate, batches, and where to report."""

from __future__ import annotations

import abc
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..kernels import DiagonalBoundError
from ..objectives.base import B
from ..progress import ProgressBar, progress_bar
from .checkpoint import OptimizerState
from .data import Batch, Batches, Data
from .loss import Loss, Terms
from .parameters import Bounds, ParameterVector, Snapshot, Vector
from .search import Evaluation, Search, Visit

NO_VALUE = (NotPSDError, NanError, DiagonalBoundError)
"""What :meth:`Problem.evaluate` raises where the objective does not exist; a line search turns back there."""


class Problem:
    """Minimize an objective over the raw parameters of an embedding, as one vector or where they are.

    An optimizer that asks for points uses :meth:`evaluate`; one that steps the parameters themselves, as those of
    ``torch.optim`` do, uses :attr:`parameters`, :meth:`batches`, :meth:`backpropagate` and :meth:`project`. Both
    :meth:`record` what they have met; ``fit`` keeps the best of it.

    Attributes:
        generator: for every random choice, seeded by ``fit(seed=…)``.

    Args:
        loss: the objective with its embedding.
        data: rows, or batches of them.
        vector: the parameters as one vector.
        search: what was met so far.
        progress: show a progress bar.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class Downhill(ke.learning.Optimizer):
        ...     def minimize(self, problem):
        ...         point = problem.start
        ...         for _ in range(3):
        ...             found = problem.evaluate(point)
        ...             problem.record(found)
        ...             point = point - 0.5 * found.gradient
        ...         return ke.learning.Outcome(converged=False, message="three steps")
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> x, y = torch.rand(20, 1, dtype=torch.float64), torch.arange(20) % 2
        >>> ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, optimizer=Downhill()).message
        'three steps'
    """

    def __init__(
        self,
        loss: Loss[B],
        data: Data,
        vector: ParameterVector,
        search: Search,
        generator: np.random.Generator,
        progress: bool | None = None,
    ) -> None:
        self._data, self._vector, self._search = data, vector, search
        self._backpropagate = loss.backpropagate
        self._direct = None if data.whole is None else loss.direct(*data.whole, vector)
        self.generator = generator
        self._progress = progress

    @property
    def start(self) -> Vector:
        """The point at which the search began; that of the first call where a checkpoint was resumed."""
        return self._search.origin

    @property
    def bounds(self) -> Bounds:
        """The lowest and highest value of each entry, ``None`` where there is none."""
        return self._vector.bounds()

    @property
    def best_value(self) -> float:
        """The lowest value recorded so far, ∞ before the first."""
        return self._search.best_value

    @property
    def best_point(self) -> Vector:
        """Where that was; the start before the first."""
        return self._search.best_point

    @property
    def history(self) -> Sequence[Mapping[str, float]]:
        """One record for each call of :meth:`record`, those before a resumption included."""
        return self._search.history

    @property
    def saved_state(self) -> OptimizerState:
        """What an optimizer of the same class handed to :meth:`record` before a resumption; else empty."""
        return self._search.optimizer_state

    def evaluate(self, point: Vector) -> Evaluation:
        """Value and gradient on all rows; raises one of ``NO_VALUE`` where they do not exist or are not finite.

        Raises:
            linear_operator.utils.errors.NanError: if the objective or its gradient is not finite.
        """
        x, y = self._whole()
        self._vector.set(point)
        self._search.count()
        direct = None if self._direct is None else self._direct(point)
        if direct is None:
            self._vector.clear_gradient()
            value, terms = self._backpropagate(x, y)
            gradient = self._vector.gradient()
        else:
            value, terms, gradient = direct
        if not (math.isfinite(value) and np.isfinite(gradient).all()):
            where = "these" if self.history else "the starting"
            raise NanError(
                f"The objective or its gradient is not finite at {where} parameters; its value is {value}. "
                "Start from lengthscales near the distances in x, or scale the features."
            )
        return Evaluation(point.copy(), value, terms, gradient)

    def _whole(self) -> Batch:
        if self._data.whole is None:
            raise ValueError(
                "Expected a loader alone, which yields batches (x, y) for an optimizer that takes batches, got it "
                "together with one that takes all rows at once. Use Adam(...) or TorchOptimizer(...), or give tensors "
                "x and y."
            )
        return self._data.whole

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters themselves, for optimizers that change them in place."""
        return self._vector.parameters

    def batches(self, batch_size: int | None, num_epochs: int) -> Batches:
        """Epochs of batches: of this size, of all rows (``None``), or as a loader has them (``None``)."""
        return self._data.batches(batch_size, num_epochs, self.generator)

    def backpropagate(self, x: Tensor, y: Tensor | None) -> tuple[float, Terms]:
        """The objective on a batch at the parameters as they are, and its terms; the gradient is added to theirs."""
        self._search.count()
        return self._backpropagate(x, y)

    def project(self) -> None:
        """Move the parameters back inside their bounds, after a step that knew of none."""
        self._vector.project()

    def snapshot(self) -> Snapshot:
        """Parameters and buffers as they are."""
        return Snapshot.take(self._vector)

    def restore(self, snapshot: Snapshot) -> None:
        """Put parameters and buffers back."""
        snapshot.restore(self._vector)

    def record(self, visit: Visit, *, start: int = 0, state: Callable[[], OptimizerState] | None = None) -> None:
        """Report a point: it enters the history and the checkpoint, the callback hears of it, the best one is kept.

        Args:
            visit: what :meth:`evaluate` returned, or a :class:`Visit` of one's own.
            start: which start it belongs to, for optimizers with several.
            state: called at once where there is a checkpoint; what it returns comes back as :attr:`saved_state` when
                the search is resumed. It must not share tensors with what the optimizer goes on to change.
        """
        self._search.record(visit, start, state)

    def progress_bar(self, total: int) -> ProgressBar:
        """A bar for ``total`` steps, to be used in a ``with``; shown where ``fit(progress=…)`` says so."""
        return progress_bar(total, "fit", self._progress)


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
    """Chosen by ``fit(…, optimizer=…)``. Subclass it, as a frozen dataclass of its settings, for one of your own.

    The contract of :meth:`minimize`: evaluate points of the problem, ``problem.record`` those that count, and say how
    it ended. ``fit`` does the rest: it leaves the embedding at the best recorded point, whatever ended the search, and
    owns history, checkpoint, callback and Ctrl-C. So keep no state in the optimizer, let exceptions pass, and take
    random numbers from ``problem.generator``. See :class:`kernel_embed.learning.Problem`.

    Example:
        >>> import gpytorch, torch
        >>> import kernel_embed as ke
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
        >>> x = torch.linspace(0, 1, 40, dtype=torch.float64).unsqueeze(-1)
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> y = (x.squeeze(-1) > 0.5).long()
        >>> result = ke.fit(embedding, ke.LeaveOneOutRisk(), x, y, optimizer=RandomSearch(), seed=0)
        >>> result.message, result.value < result.history[0]["value"]
        ('made all 30 draws', True)
    """

    @abc.abstractmethod
    def minimize(self, problem: Problem) -> Outcome:
        """Search, record, and say how it ended."""
