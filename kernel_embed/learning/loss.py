"""The loss that ``fit`` minimizes: the objective with the registered priors, differentiated by autograd."""

from __future__ import annotations

import dataclasses
from typing import Generic

import torch
from torch import Tensor

from ..linalg import single_precision
from ..objectives import Objective
from ..objectives.base import B, check_value
from .data import ProcessGroup
from .priors import prior_loss
from .result import Terms, by_name


@dataclasses.dataclass(frozen=True)
class Loss(Generic[B]):
    """The objective with priors, as a function of rows."""

    group: ProcessGroup[B]
    objective: Objective[B]
    num_data: float | None
    """n over all rows and processes, if it is known; priors need it."""
    single: bool = False

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Terms]:
        """The loss on these rows, and its terms."""
        attached = self.group.attach(x, y)
        shape = getattr(self.group.module, "batch_shape", torch.Size())
        terms = list(self.objective.terms())
        values = [(repr(term), c * check_value(term, term.evaluate(attached), shape).sum()) for c, term in terms]
        prior = prior_loss(self.group.module)
        if prior is not None:
            # The prior is for all n rows, so a mini-batch gets its share of it.
            values.append(("priors", prior * self.share(attached.num_data)))
        total = sum((value for _, value in values), start=x.new_zeros(()))
        names, numbers = zip(*((name, value.item()) for name, value in values), strict=True)
        return total, by_name(names, numbers)

    def backpropagate(self, x: Tensor, y: Tensor | None) -> tuple[float, Terms]:
        """The loss as a number and its terms; if it is finite, its gradient over all rows is accumulated."""
        with single_precision(self.single):
            loss, terms = self(x, y)
        if torch.isfinite(loss):
            loss.backward()
            self.group.reduce_gradients()
        return loss.item(), terms

    def share(self, num_rows: int) -> float:
        """The weight of the priors in the loss on ``num_rows`` rows."""
        if self.num_data is None:
            raise ValueError(
                "Registered priors are weighted by n, but the dataset of the loader has no length. Give the dataset a "
                "__len__, or remove the priors."
            )
        return 1.0 / self.num_data if self.objective.per_datum else num_rows / self.num_data
