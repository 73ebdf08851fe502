"""Objectives are values: they are called, added and scaled."""

from __future__ import annotations

import abc
from collections.abc import Iterator
from typing import Any, Protocol

from torch import Tensor

from ..embeddings import ConditionedMulticlass


class Conditionable(Protocol):
    """Anything with ``condition``: every embedding of this package."""

    def condition(self, *data: Tensor) -> Any:
        """The embedding with its data."""
        ...  # pragma: no cover


class Objective(abc.ABC):
    """A scalar loss of an embedding and data; lower is better.

    ``objective(embedding, x, y)`` is differentiable in the parameters of the embedding, so it serves as the loss of
    any training loop. ``a + b`` and ``c * a`` are objectives, and all terms of a sum share one factorisation.
    """

    per_datum: bool = True
    """True where the value is a mean over data, so that n times it plays the part of a negative log likelihood."""

    identifies_scale: bool = False
    """False where the value depends on λ and the kernel's outputscale through their ratio alone."""

    def __call__(self, embedding: Conditionable, x: Tensor, y: Tensor | None = None) -> Tensor:
        """The loss: a scalar, or one value for each element of the embedding's batch shape."""
        return self.evaluate(embedding.condition(x) if y is None else embedding.condition(x, y))

    @abc.abstractmethod
    def evaluate(self, conditioned: Any) -> Tensor:
        """The loss of an embedding that already holds its data."""

    def require_classes(self, conditioned: Any) -> None:
        """Raise unless ``conditioned`` is a multiclass embedding, for objectives that count classes."""
        if not isinstance(conditioned, ConditionedMulticlass):
            raise TypeError(
                f"Expected a MulticlassEmbedding for {type(self).__name__}, got "
                f"{type(conditioned.embedding).__name__}. For other targets use ConditionalEvidence or "
                "CrossValidationRisk."
            )

    def terms(self) -> Iterator[tuple[float, Objective]]:
        """The summands, each with its coefficient."""
        yield 1.0, self

    def __add__(self, other: Objective) -> Objective:
        if not isinstance(other, Objective):
            return NotImplemented
        return Sum((*self.terms(), *other.terms()))

    def __radd__(self, other: int) -> Objective:
        return self if other == 0 else NotImplemented  # what sum([...]) starts with

    def __mul__(self, factor: float) -> Objective:
        if isinstance(factor, Objective | str):
            return NotImplemented
        return Sum(tuple((float(factor) * coefficient, term) for coefficient, term in self.terms()))

    __rmul__ = __mul__


class Sum(Objective):
    """A weighted sum of objectives, made by ``a + b`` and ``c * a``."""

    def __init__(self, parts: tuple[tuple[float, Objective], ...]) -> None:
        self._parts = parts
        if len({term.per_datum for _, term in parts}) > 1:
            raise ValueError(
                f"Expected objectives of one kind, got means over data together with sums over data in {self!r}. "
                "Scale of the sum would change with n; use one or the other."
            )
        self.per_datum = parts[0][1].per_datum
        self.identifies_scale = any(term.identifies_scale for _, term in parts)

    def evaluate(self, conditioned: Any) -> Tensor:
        """Σ c_j q_j, every q_j from the same factorisation."""
        return sum((c * term.evaluate(conditioned) for c, term in self._parts), start=conditioned.x.new_zeros(()))

    def terms(self) -> Iterator[tuple[float, Objective]]:
        """The summands, each with its coefficient."""
        yield from self._parts

    def __repr__(self) -> str:
        return " + ".join(repr(term) if c == 1.0 else f"{c:.6g} * {term!r}" for c, term in self._parts)
