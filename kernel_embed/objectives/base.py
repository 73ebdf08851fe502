"""Objectives are values: they are called, added and scaled."""

from __future__ import annotations

import abc
import math
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar, overload

from torch import Tensor

from ..validation import check_number


class Attached(Protocol):
    """An embedding joined with its data, as ``attach`` and ``condition`` return it."""

    x: Tensor

    @property
    def num_data(self) -> int:
        """n."""


B = TypeVar("B", bound=Attached)
B_co = TypeVar("B_co", bound=Attached, covariant=True)
B_contra = TypeVar("B_contra", bound=Attached, contravariant=True)


class BindsTargets(Protocol[B_co]):
    """An embedding of targets given inputs."""

    def attach(self, x: Tensor, y: Tensor, weights: Tensor | None = None) -> B_co:
        """The embedding with its data, differentiable in its parameters."""


class BindsSample(Protocol[B_co]):
    """An embedding of a sample."""

    def attach(self, x: Tensor) -> B_co:
        """The embedding with its data, differentiable in its parameters."""


Embedding = BindsTargets[B] | BindsSample[B]
"""Whatever an objective can be evaluated for."""


def bound(embedding: Embedding[B], x: Tensor, y: Tensor | None, weights: Tensor | None = None) -> B:
    """``embedding.attach`` of the data that it takes."""
    takes_targets: bool | None = getattr(embedding, "takes_targets", None)
    if takes_targets is not None and takes_targets != (y is not None):
        raise TypeError(
            f"Expected {'targets y' if takes_targets else 'a sample x alone'} for {type(embedding).__name__}, got "
            f"{'none' if takes_targets else 'y too'}. Mean embeddings take a sample, conditional ones x and y."
        )
    if y is None:
        if weights is not None:
            raise TypeError("Expected a sample alone, got weights too. Only conditional embeddings take them.")
        return embedding.attach(x)  # type: ignore[call-arg]
    return embedding.attach(x, y) if weights is None else embedding.attach(x, y, weights)  # type: ignore[call-arg]


class Objective(abc.ABC, Generic[B_contra]):
    """A scalar loss of an embedding and data; lower is better.

    ``objective(embedding, x, y)`` is differentiable in the parameters of the embedding, so it serves as the loss of
    any training loop. ``a + b``, ``a - b``, ``c * a`` and ``a / c`` are objectives, and all terms of a sum share one
    factorization.

    A subclass writes :meth:`evaluate`; the type parameter says what it can evaluate.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class Shrink(ke.Objective):
        ...     def evaluate(self, bound):
        ...         return bound.regularization.log().square()
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> objective = ke.LeaveOneOutRisk() + 0.1 * Shrink()
        >>> objective(embedding, torch.rand(8, 1), torch.arange(8) % 2).dim()
        0
    """

    per_datum: bool = True
    """True where the value is a mean over data, so that n times it plays the part of a negative log likelihood."""

    identifies_scale: bool = False
    """False where the value depends on λ and the kernel's outputscale through their ratio alone."""

    is_log_likelihood: bool = False
    """True where exp(−value) is the likelihood of a model, so that a prior times it is a true posterior."""

    @overload
    def __call__(self, embedding: BindsTargets[B_contra], x: Tensor, y: Tensor) -> Tensor: ...

    @overload
    def __call__(self, embedding: BindsSample[B_contra], x: Tensor, y: None = None) -> Tensor: ...

    def __call__(self, embedding: Embedding[B_contra], x: Tensor, y: Tensor | None = None) -> Tensor:
        """The loss: a scalar, or one value for each element of the embedding's batch shape."""
        return self.evaluate(bound(embedding, x, y))

    @abc.abstractmethod
    def evaluate(self, bound: B_contra) -> Tensor:
        """The loss of an embedding that is joined with its data."""

    def terms(self) -> Iterator[tuple[float, Objective[B_contra]]]:
        """The summands, each with its coefficient."""
        yield 1.0, self

    def __add__(self: Objective[B], other: Objective[B]) -> Objective[B]:
        if not isinstance(other, Objective):
            return NotImplemented
        return Sum((*self.terms(), *other.terms()))

    def __radd__(self, other: int) -> Objective[B_contra]:
        return self if other == 0 else NotImplemented  # what sum([...]) starts with

    def __mul__(self, factor: float) -> Objective[B_contra]:
        if isinstance(factor, Objective | str):
            return NotImplemented
        factor = check_number("a factor", factor)
        if not math.isfinite(factor):
            raise ValueError(f"Expected a finite factor, got {factor}. Scale an objective by a number.")
        return Sum(tuple((factor * coefficient, term) for coefficient, term in self.terms()))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Objective[B_contra]:
        if check_number("a divisor", divisor) == 0.0:
            raise ZeroDivisionError("Expected a divisor other than 0, got 0. Divide by another number.")
        return self * (1.0 / divisor)

    def __neg__(self) -> Objective[B_contra]:
        return self * -1.0

    def __sub__(self: Objective[B], other: Objective[B]) -> Objective[B]:
        return self + (-other) if isinstance(other, Objective) else NotImplemented


class Sum(Objective[B_contra]):
    """A weighted sum of objectives, made by ``a + b`` and ``c * a``."""

    def __init__(self, parts: tuple[tuple[float, Objective[B_contra]], ...]) -> None:
        self._parts = parts
        if len({term.per_datum for _, term in parts}) > 1:
            raise ValueError(
                f"Expected objectives of one kind, got means over data together with sums over data in {self!r}. "
                "Scale of the sum would change with n; use one or the other."
            )
        self.per_datum = parts[0][1].per_datum
        self.identifies_scale = any(term.identifies_scale for _, term in parts)
        # Another exponent, or a second factor about the same data, is no likelihood any more.
        self.is_log_likelihood = len(parts) == 1 and parts[0][0] == 1.0 and parts[0][1].is_log_likelihood

    def evaluate(self, bound: B_contra) -> Tensor:
        """Σ c_j q_j, every q_j from the same factorization."""
        return sum((c * term.evaluate(bound) for c, term in self._parts), start=bound.x.new_zeros(()))

    def terms(self) -> Iterator[tuple[float, Objective[B_contra]]]:
        """The summands, each with its coefficient."""
        yield from self._parts

    def __repr__(self) -> str:
        return " + ".join(repr(term) if c == 1.0 else f"{c:.6g} * {term!r}" for c, term in self._parts)
