"""What objectives are functions of: quantities of an embedding with its data, and the constants of the data."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

Array: TypeAlias = Any
"""A NumPy array or a tensor."""


class Targets:
    """The constants of an objective: the targets Y, n and the weights of the rows.

    Args:
        xp: ``numpy`` or ``torch``, the namespace of the arrays.
        Y: targets ``(n, m)``, or a function that returns them.
        num_data: n, the sum of the weights.
        weights: of the rows, ``(n,)``, or ``None``.
    """

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


QUANTITIES: dict[str, Callable[[Any], Tensor]] = {
    "coefficients": lambda attached: attached.V,
    "fitted": lambda attached: attached.P,
    "leave_one_out": lambda attached: attached.leave_one_out(),
    "inverse_diagonal": lambda attached: attached.system.inverse_diagonal(),
    "squared_norm": lambda attached: attached.squared_norm,
    "sup_diagonal": lambda attached: attached.sup_diagonal.value,
    "negative_log_density": lambda attached: attached.system.negative_log_densities(attached.Y),
}
"""Possible inputs of objectives: V = A⁻¹Y, P = KV, the leave-one-out values Y − V/c, or Y_G − [A⁻¹]_GG⁻¹V_G of groups,
c = diag A⁻¹, tr VᵀKV, α² and −log N(Y; 0, A)."""


class Value(torch.autograd.Function):
    """The value of an objective, with its own derivatives."""

    @staticmethod
    def forward(ctx: Any, objective: Any, data: Targets, *inputs: Tensor) -> Tensor:
        """q."""
        value, gradients = objective.value_and_gradient(data, *(value.detach() for value in inputs))
        ctx.objective, ctx.data = objective, data
        ctx.save_for_backward(*gradients, *inputs)
        return value  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """g ∂q/∂input, for each input."""
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
