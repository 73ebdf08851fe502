"""What an optimizer is: a value that minimizes a problem."""

from __future__ import annotations

import abc
import dataclasses

from ..problem import Problem


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
