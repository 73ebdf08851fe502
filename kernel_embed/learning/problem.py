"""What is minimized, and what an optimizer sees of it: points to evaluate, batches, and where to report."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

import gpytorch
import numpy as np
import torch
from linear_operator.utils.errors import NanError, NotPSDError
from torch import Tensor

from ..kernels import DiagonalBoundError
from ..linalg import single_precision
from ..objectives import Objective
from ..objectives.base import B, Embedding, bound
from ..progress import ProgressBar, progress_bar
from .batches import Batch, Batches
from .closed import ClosedLoss, Pieces, closed_loss
from .data import Data
from .parameters import Bounds, ParameterVector, Snapshot, Vector, prior_loss
from .process_group import ProcessGroup
from .records import Evaluation, Visit
from .state import OptimizerState, Search

T = TypeVar("T")
Terms = dict[str, float]

NO_VALUE = (NotPSDError, NanError, DiagonalBoundError)
"""What :meth:`Problem.evaluate` raises where the objective does not exist; a line search turns back there."""


class LocalProcess(Generic[B]):
    """An embedding that one process learns: every row is here, and nobody is asked."""

    leads = True

    def __init__(self, embedding: Embedding[B], weights: Tensor | None = None) -> None:
        self.module: gpytorch.Module = embedding
        self._embedding, self._weights = embedding, weights

    @property
    def has_weights(self) -> bool:
        """Whether rows stand for several."""
        return self._weights is not None

    def attach(self, x: Tensor, y: Tensor | None = None) -> B:
        """The embedding with its data."""
        if self._weights is not None and len(self._weights) != x.shape[-2]:
            raise ValueError(
                f"Expected weights with all rows at once, got a mini-batch of {x.shape[-2]} of {len(self._weights)} "
                "rows. Learn with full batches, or repeat rows in place of weights."
            )
        return bound(self._embedding, x, y, self._weights)

    def total_rows(self, num_rows: int) -> float:
        """All of them, each as often as its weight says."""
        return num_rows if self._weights is None else float(self._weights.sum())

    def reduce_gradients(self) -> None:
        """Nothing to do."""

    def from_leader(self, value: T) -> T:
        """``value``."""
        return value


@dataclasses.dataclass(frozen=True)
class Loss(Generic[B]):
    """The objective with priors, as a function of rows.

    Args:
        embedding: whose parameters it depends on.
        objective: without priors.
        num_data: n over all rows and processes, where it is known; priors need it.
        single: factorize in single precision.
    """

    embedding: ProcessGroup[B]
    objective: Objective[B]
    num_data: float | None
    single: bool = False

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Terms]:
        """The loss on these rows, and its terms."""
        joined = self.embedding.attach(x, y)
        values = [(repr(term), c * term.evaluate(joined).sum()) for c, term in self.objective.terms()]
        prior = prior_loss(self.embedding.module)
        if prior is not None:
            # A prior belongs to all n data: a mini-batch, mean or sum, carries its share of it.
            values.append(("priors", prior * self._share(joined.num_data)))
        total = sum((value for _, value in values), start=x.new_zeros(()))
        names, numbers = zip(*((name, value.item()) for name, value in values), strict=True)
        return total, _by_name(names, numbers)

    def backpropagate(self, x: Tensor, y: Tensor | None) -> tuple[float, Terms]:
        """The loss as a number and its terms; a finite one adds its gradient, over all rows, to the parameters'."""
        with single_precision(self.single):
            loss, terms = self(x, y)
        if torch.isfinite(loss):
            loss.backward()
            self.embedding.reduce_gradients()
        return loss.item(), terms

    def _share(self, num_rows: int) -> float:
        if self.num_data is None:
            raise ValueError(
                "Expected a loader whose dataset has a length, because registered priors are weighed by n, got one "
                "without. Give the dataset a __len__, or remove the priors."
            )
        return 1.0 / self.num_data if self.objective.per_datum else num_rows / self.num_data


def _by_name(names: Sequence[str], values: Sequence[float]) -> Terms:
    """Values by name, those of one name added up; a value more than names is that of the priors."""
    terms: Terms = {}
    for name, value in zip((*names, "priors"), values, strict=False):
        terms[name] = terms.get(name, 0.0) + value
    return terms


def _closed_form(loss: Loss[B], data: Data, vector: ParameterVector) -> Pieces | None:
    """The loss on all rows without a graph, where one process learns from rows that all count once."""
    alone = loss.embedding
    if (
        not isinstance(alone, LocalProcess)
        or alone.has_weights
        or loss.single
        or data.whole is None
        or data.num_data is None
    ):
        return None
    return closed_loss(alone.module, loss.objective, *data.whole, vector, data.num_data)


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
        self._names = [repr(term) for _, term in loss.objective.terms()]
        self._closed = ClosedLoss(lambda: _closed_form(loss, data, vector))
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
        known = self._closed(point)
        if known is not None:
            return Evaluation(point.copy(), known.value, _by_name(self._names, known.terms), known.gradient)
        self._vector.clear_gradient()
        value, terms = self._backpropagate(x, y)
        gradient = self._vector.gradient()
        if not (np.isfinite(value) and np.isfinite(gradient).all()):
            where = "these" if self.history else "the starting"
            raise NanError(
                f"Expected a finite objective and gradient at {where} parameters, got {value}. "
                "Start from lengthscales near the distances in x, or scale the features."
            )
        self._closed.judge(point, value)
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
