r"""Second derivatives of functions whose first derivatives are written by hand.

Fast backward passes use factors, inverses and buffers that autograd would silently treat as constants. With
``create_graph=True`` a function therefore differentiates its formula in plain torch operations (:func:`through`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def through(
    formula: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients for ``inputs``, themselves differentiable, by autograd through the ``formula`` of the outputs.

    Example:
        >>> x = torch.tensor(3.0, requires_grad=True)
        >>> (slope,) = through(lambda x: x**3, [x], [torch.tensor(1.0)])
        >>> torch.autograd.grad(slope, x)[0]
        tensor(18.)
    """
    with torch.enable_grad():
        # Derivatives stop at these copies, even if one input depends on another.
        copies = [value.view_as(value) for value in inputs]
        outputs = formula(*copies)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [
            (output, cotangent)
            for output, cotangent in zip(outputs, cotangents, strict=True)
            if cotangent is not None and output.requires_grad
        ]
        needed = [copy for copy in copies if copy.requires_grad]
        if not pairs or not needed:
            return [None] * len(inputs)
        values, weights = zip(*pairs, strict=True)
        gradients = iter(torch.autograd.grad(values, needed, weights, create_graph=True, allow_unused=True))
    return [next(gradients) if copy.requires_grad else None for copy in copies]


def with_gradient(
    at: Tensor, value: float, gradient: Tensor, formula: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """``value`` as a function of ``at`` with this gradient; ``formula`` is differentiated for second derivatives."""
    output: Tensor = _WithGradient.apply(at, at.new_tensor(value), gradient.to(at), formula)
    return output


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, at: Tensor, value: Tensor, gradient: Tensor, formula: Any) -> Tensor:
        """``value``; the gradient and the formula are kept."""
        ctx.save_for_backward(at, gradient)
        ctx.formula = formula
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """g times the gradient, or the derivative of ``formula`` where it is differentiated again."""
        at, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            if ctx.formula is None:
                raise NotImplementedError("This density has no second derivatives. Use its gradient only.")
            return *through(ctx.formula, (at,), (g,)), None, None, None
        return g * gradient, None, None, None
