"""What is minimized: the objective on some rows, with the priors' share, and its gradient."""

from __future__ import annotations

import dataclasses
from typing import Generic

import torch
from torch import Tensor

from ..objectives import Objective
from ..objectives.base import B
from .cooperation import Cooperative
from .parameters import prior_loss

Terms = dict[str, float]


@dataclasses.dataclass(frozen=True)
class Loss(Generic[B]):
    """The objective with priors, as a function of rows.

    Args:
        embedding: whose parameters it depends on.
        objective: without priors.
        num_data: n over all rows and processes, where it is known; priors need it.
    """

    embedding: Cooperative[B]
    objective: Objective[B]
    num_data: int | None

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Terms]:
        """The loss on these rows, and its terms."""
        joined = self.embedding.bind(x, y)
        values = [(repr(term), c * term.evaluate(joined).sum()) for c, term in self.objective.terms()]
        prior = prior_loss(self.embedding.module)
        if prior is not None:
            # A prior belongs to all n data: a mini-batch, mean or sum, carries its share of it.
            values.append(("priors", prior * self._share(joined.num_data)))
        total = sum((value for _, value in values), start=x.new_zeros(()))
        terms: Terms = {}
        for name, value in values:
            terms[name] = terms.get(name, 0.0) + value.item()
        return total, terms

    def backpropagate(self, x: Tensor, y: Tensor | None) -> tuple[float, Terms]:
        """The loss as a number and its terms; a finite one adds its gradient, over all rows, to the parameters'."""
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
