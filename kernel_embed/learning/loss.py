"""The loss that ``fit`` minimizes: the objective with the registered priors, for few rows without autograd."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ..linalg import single_precision
from ..objectives import Objective
from ..objectives.base import check_value
from .data import Batch, LocalProcess, ProcessGroup
from .direct import direct_objective
from .parameters import ParameterVector, Vector
from .priors import PriorLoss, prior_loss
from .result import Evaluation, Terms


class Loss:
    """The objective with priors, as a function of rows, or of the raw parameters u for all rows.

    Args:
        group: the embedding, learned by one or several processes.
        objective: what is minimized.
        vector: the parameters that are learned.
        num_data: n over all rows and processes, if it is known; priors need it.
        rows: all rows, if they are in memory.
        single: whether to factorize in single precision.
    """

    def __init__(
        self,
        group: ProcessGroup,
        objective: Objective[Any],
        vector: ParameterVector,
        num_data: float | None,
        rows: Batch | None = None,
        single: bool = False,
    ) -> None:
        self.group, self.objective, self.rows = group, objective, rows
        self._vector, self._num_data, self._single = vector, num_data, single
        self._has_priors = next(iter(group.module.named_priors()), None) is not None
        self._names = [repr(term) for _, term in objective.terms()] + ["priors"] * self._has_priors
        self.direct = None
        if rows is not None and not single and isinstance(group, LocalProcess):
            units = group.units(*rows)
            self.direct = direct_objective(group.module, objective, *rows, vector, group.weights, units)
        self._priors = PriorLoss(vector) if self.direct is not None and self._has_priors else None

    def __call__(self, x: Tensor, y: Tensor | None) -> tuple[Tensor, Terms]:
        """The loss on these rows, differentiable, and its terms."""
        attached, module = self.group.attach(x, y), self.group.module
        values = [c * check_value(t, t.evaluate(attached), module).sum() for c, t in self.objective.terms()]
        if self._has_priors:
            # The prior is for all n rows, so a mini-batch gets its share of it.
            values.append(prior_loss(module) * self._share(attached.num_data))
        return sum(values, start=x.new_zeros(())), self._named([value.item() for value in values])

    def backpropagate(self, x: Tensor, y: Tensor | None) -> tuple[float, Terms]:
        """The loss as a number and its terms; if it is finite, its gradient over all rows is accumulated."""
        with single_precision(self._single):
            loss, terms = self(x, y)
        if torch.isfinite(loss):
            loss.backward()
            self.group.reduce_gradients()
        return loss.item(), terms

    def evaluate(self, u: Vector) -> Evaluation:
        """The loss on all rows at u, which the parameters already have."""
        evaluation = self.evaluate_directly(u)
        if evaluation is None:
            assert self.rows is not None
            self._vector.clear_gradient()
            value, terms = self.backpropagate(*self.rows)
            evaluation = Evaluation(u.copy(), value, terms, self._vector.gradient())
        return evaluation

    def evaluate_directly(self, u: Vector) -> Evaluation | None:
        """The same without modules and graph; ``None`` if the autograd path must decide."""
        answer = None if self.direct is None else self.direct(u)
        if self.direct is None or self.rows is None or answer is None:
            return None
        values, gradient = answer
        if self._priors is not None:
            share = self._share(len(self.rows[0]))
            prior, slope = self._priors(u)
            values, gradient = [*values, share * prior], gradient + share * slope
        terms = self._named(values)
        value = sum(terms.values())
        if self.direct.is_direct and not math.isfinite(value):
            return None
        return Evaluation(u.copy(), value, terms, gradient)

    def _named(self, values: list[float]) -> Terms:
        """Values by the names of their terms; those with the same name are added."""
        terms: Terms = {}
        for name, value in zip(self._names, values, strict=True):
            terms[name] = terms.get(name, 0.0) + value
        return terms

    def _share(self, num_rows: int) -> float:
        """The weight of the priors in the loss on ``num_rows`` rows."""
        if self._num_data is None:
            raise ValueError(
                "Registered priors are weighted by n, but the dataset of the loader has no length. Give the dataset a "
                "__len__, or remove the priors."
            )
        return 1.0 / self._num_data if self.objective.per_datum else num_rows / self._num_data
