"""Objectives as values: they can be called, added and scaled, and each implements its derivatives once.

An objective is a function of a few quantities of an embedding with its data, such as P = KV, which it lists in
:attr:`Objective.inputs`. :meth:`Objective.value_and_gradient` has the value and its derivatives with respect to them,
for NumPy arrays (:mod:`kernel_embed.learning.direct`) and tensors alike, where it is one node of autograd.
"""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, Generic, TypeAlias, TypeVar, cast

import gpytorch
import numpy as np
import torch
from torch import Tensor

from ..linalg import Groups
from ..linalg.regression import QUANTITIES
from ..validation import check_number

Array: TypeAlias = Any
"""A NumPy array or a tensor."""
B = TypeVar("B")
B_contra = TypeVar("B_contra", contravariant=True)
"""An embedding with its data, as returned by ``attach`` and ``condition``."""


class Targets:
    """The constants of an objective: Y, n and the weights of the rows, arrays of the namespace ``xp``."""

    def __init__(
        self, xp: ModuleType, Y: Array | Callable[[], Array], num_data: float, weights: Array | None = None
    ) -> None:
        self.xp, self._Y, self.num_data, self.weights = xp, Y, num_data, weights
        self.cache: dict[str, Any] = {}
        """For values that make the next evaluation faster, such as the starting point of an inner solver."""

    @functools.cached_property
    def Y(self) -> Array:
        """The targets, ``(n, m)``."""
        return self._Y() if callable(self._Y) else self._Y

    @functools.cached_property
    def share(self) -> Array:
        """w_i / n, the share of each row in a mean: a number where all rows count the same."""
        return 1.0 / self.num_data if self.weights is None else self.weights / self.num_data

    @functools.cached_property
    def shared_Y(self) -> Array:
        """w_i Y_i / n."""
        return self.share * self.Y if self.weights is None else self.share[:, None] * self.Y

    def inner(self, A: Array, B: Array) -> Array:
        """⟨A, B⟩ over the last two dimensions."""
        return np.vdot(A, B) if self.xp is np else (A * B).sum((-2, -1))


def attach(embedding: Any, x: Tensor, y: Tensor | None, weights: Tensor | None = None, groups: Groups = None) -> Any:
    """``embedding.attach`` with the arguments that this embedding accepts."""
    takes_targets: bool | None = getattr(embedding, "takes_targets", None)
    name, given = type(embedding).__name__, y is not None
    if takes_targets and not given:
        raise TypeError(f"{name} is a conditional embedding and needs targets y. Pass x and y.")
    if takes_targets is False and given:
        raise TypeError(f"{name} embeds a sample and takes no targets y. Pass x alone.")
    options = {name: value for name, value in (("weights", weights), ("groups", groups)) if value is not None}
    if options and not given:
        raise TypeError("Embeddings of a sample take no weights or groups; only conditional embeddings do.")
    return embedding.attach(x, y, **options) if given else embedding.attach(x)


class Objective(abc.ABC, Generic[B_contra]):
    """A scalar loss of an embedding and data; lower is better.

    It is differentiable in the parameters of the embedding. ``a + b``, ``a - b``, ``c * a`` and ``a / c`` are
    objectives, and all terms of a sum share one factorization. A subclass implements :meth:`evaluate`, or lists
    ``inputs`` and implements :meth:`value_and_gradient`, which is faster for a few hundred rows.

    Raises:
        TypeError: when called, if ``evaluate`` returns no tensor.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> class Brier(ke.Objective):
        ...     inputs = ("leave_one_out",)
        ...     def value_and_gradient(self, data, F):
        ...         residuals = F - data.Y
        ...         return data.inner(residuals, residuals) / data.num_data, (2.0 / data.num_data * residuals,)
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> round((2 * Brier())(embedding, torch.tensor([[0.0], [1.0]]), torch.tensor([0, 1])).item(), 2)
        2.24
    """

    per_datum: bool = True
    """Whether the value is a mean over data, so that n times the value replaces a negative log likelihood."""

    identifies_scale: bool = False
    """Whether the value depends on λ and the kernel's outputscale separately, not only on their ratio."""

    is_log_likelihood: bool = False
    """Whether exp(−value) is the likelihood of a model, so that a prior times it is a true posterior."""

    inputs: tuple[str, ...] = ()
    """The quantities that :meth:`value_and_gradient` takes, by their names in ``QUANTITIES``."""

    _settings: tuple[str, ...] = ()  # attributes that the repr shows

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        names = cls.inputs
        if isinstance(names, property | functools.cached_property):
            return
        if unknown := [names] if isinstance(names, str) else [name for name in names if name not in QUANTITIES]:
            known, wrong = ", ".join(sorted(QUANTITIES)), ", ".join(map(repr, unknown))
            raise ValueError(f"{cls.__name__}.inputs has {wrong}, but must be a tuple of names among {known}.")

    def __call__(
        self,
        embedding: gpytorch.Module,
        x: Tensor,
        y: Tensor | None = None,
        weights: Tensor | None = None,
        groups: Tensor | None = None,
    ) -> Tensor:
        """The loss: a scalar, or one value for each element of the batch shape, for the data of ``embedding.attach``.

        Raises:
            ValueError: if a user's ``evaluate`` returns one value for each row instead of one for all.
        """
        return check_value(self, self.evaluate(attach(embedding, x, y, weights, groups)), embedding)

    def evaluate(self, attached: B_contra) -> Tensor:
        """The loss of an embedding with its data, differentiable in its parameters."""
        return self.differentiable(attached, [QUANTITIES[name].value(attached) for name in self.inputs])

    def differentiable(self, attached: Any, inputs: Sequence[Tensor]) -> Tensor:
        """The value as one node of autograd, with the derivatives of :meth:`value_and_gradient`."""
        data = Targets(torch, lambda: attached.Y, attached.total_weight, attached.row_weights)
        value: Tensor = _Value.apply(self, data, *inputs)
        return value

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """The value, and its derivatives with respect to each of ``inputs``, arrays or (batches of) tensors."""
        raise NotImplementedError(f"{type(self).__name__} needs the method evaluate or value_and_gradient.")

    def is_direct(self, embedding: Any) -> bool:
        """Whether :meth:`value_and_gradient` applies to this embedding; elsewhere autograd differentiates."""
        return bool(self.inputs)

    @property
    def has_derivatives(self) -> bool:
        """Whether :meth:`value_and_gradient` belongs to :meth:`evaluate`, which a subclass may have replaced."""
        owners = {name: kind for kind in reversed(type(self).__mro__) for name in vars(kind)}
        return issubclass(owners["value_and_gradient"], owners["evaluate"])

    def terms(self) -> Iterator[tuple[float, Objective[B_contra]]]:
        """The summands, each with its coefficient."""
        yield 1.0, self

    def __repr__(self) -> str:
        # The settings identify the objective of a checkpoint.
        shown = (_shown(name, getattr(self, name)) for name in self._settings)
        return f"{type(self).__name__}({', '.join(filter(None, shown))})"

    def __add__(self: Objective[B], other: Objective[B]) -> Objective[B]:
        if not isinstance(other, Objective):
            return NotImplemented
        return Sum((*self.terms(), *other.terms()))

    def __radd__(self, other: int) -> Objective[B_contra]:
        return self if other == 0 else NotImplemented  # the start of sum([...])

    def __mul__(self, factor: float) -> Objective[B_contra]:
        if isinstance(factor, Objective | str):
            return NotImplemented
        factor = check_number("a factor", factor)
        if not math.isfinite(factor):
            raise ValueError(f"The factor of an objective must be a finite number, got {factor}.")
        return Sum(tuple((factor * coefficient, term) for coefficient, term in self.terms()))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Objective[B_contra]:
        if check_number("a divisor", divisor) == 0.0:
            raise ZeroDivisionError("An objective cannot be divided by 0.")
        return self * (1.0 / divisor)

    def __neg__(self) -> Objective[B_contra]:
        return self * -1.0

    def __sub__(self: Objective[B], other: Objective[B]) -> Objective[B]:
        return self + (-other) if isinstance(other, Objective) else NotImplemented


def _shown(name: str, value: object) -> str:
    """A setting of an objective as it is in its constructor; nothing where it is the usual one, or an array."""
    if isinstance(value, gpytorch.kernels.Kernel):
        return type(value).__name__
    if isinstance(value, float):
        return f"{name}={value:g}"
    return f"{name}={value!r}" if isinstance(value, int | str | Objective) and value != "flat" else ""


def check_value(objective: Objective[Any], value: Any, embedding: object = None) -> Tensor:
    """``value``, which must be one number, or one for each element of the batch shape of ``embedding``."""
    if not isinstance(value, Tensor | np.ndarray):
        raise TypeError(
            f"{objective!r} must return a tensor with one number, not {type(value).__name__}. Compute it with torch "
            "operations from the embedding with its data, without float() or item(), so that it has a gradient."
        )
    if value.ndim and value.shape != getattr(embedding, "batch_shape", ()):
        raise ValueError(
            f"{objective!r} must return one number, not a tensor of shape {tuple(value.shape)}. Return its mean(), or "
            "its sum() with per_datum = False."
        )
    return cast(Tensor, value)


class Sum(Objective[B_contra]):
    """A weighted sum of objectives, made by ``a + b`` and ``c * a``."""

    def __init__(self, parts: tuple[tuple[float, Objective[B_contra]], ...]) -> None:
        self._parts = parts
        if len({term.per_datum for _, term in parts}) > 1:
            raise ValueError(
                f"{self!r} adds means over data to sums over data, so its balance would change with n. "
                "Use objectives of one kind."
            )
        self.per_datum = parts[0][1].per_datum
        self.identifies_scale = any(term.identifies_scale for _, term in parts)
        # With another exponent, or a second factor for the same data, it is no longer a likelihood.
        self.is_log_likelihood = len(parts) == 1 and parts[0][0] == 1.0 and parts[0][1].is_log_likelihood

    def evaluate(self, attached: B_contra) -> Tensor:
        """Σ c_j q_j, every q_j from the same factorization."""
        return cast(Tensor, sum(c * term.evaluate(attached) for c, term in self._parts))

    def terms(self) -> Iterator[tuple[float, Objective[B_contra]]]:
        """The summands, each with its coefficient."""
        yield from self._parts

    def __repr__(self) -> str:
        return " + ".join(repr(term) if c == 1.0 else f"{c:.6g} * {term!r}" for c, term in self._parts)


class _Value(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, objective: Any, data: Targets, *inputs: Tensor) -> Tensor:
        """The value; its derivatives with respect to the inputs are computed with it and kept."""
        value, gradients = objective.value_and_gradient(data, *(value.detach() for value in inputs))
        ctx.objective, ctx.data = objective, data
        ctx.save_for_backward(*gradients, *inputs)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """g times the derivatives, as functions of the inputs where they are differentiated again."""
        half = len(ctx.saved_tensors) // 2
        gradients, inputs = ctx.saved_tensors[:half], ctx.saved_tensors[half:]
        if torch.is_grad_enabled():
            # The derivatives are functions of the inputs, which autograd differentiates.
            gradients = ctx.objective.value_and_gradient(ctx.data, *inputs)[1]
        scaled = (
            (g.reshape(g.shape + (1,) * (gradient.dim() - g.dim())) * gradient).sum_to_size(value.shape)
            for gradient, value in zip(gradients, inputs, strict=True)
        )
        return None, None, *scaled
