r"""Second derivatives of functions whose first derivatives are written by hand.

Fast backward passes use factors, inverses and buffers that autograd knows nothing about; differentiating them again
would silently treat these as constants. With ``create_graph=True`` a function therefore leaves its fast backward pass
and either differentiates its formula in plain torch operations (:func:`through`), or, if it has none, marks its
gradients so that a second derivative is an error (:func:`once_differentiable`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

Backward = TypeVar("Backward", bound=Callable[..., Any])


def through(
    formula: Callable[..., Tensor | tuple[Tensor, ...]], inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients for ``inputs``, themselves differentiable, by autograd through the ``formula``.

    Args:
        formula: the outputs from the inputs, in differentiable operations.
        inputs: as saved by the forward pass, with their graph.
        cotangents: of the outputs; ``None`` for zero.

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


def once_differentiable(backward: Backward) -> Backward:
    """A backward pass whose result raises when it is differentiated again.

    ``torch.autograd.function.once_differentiable`` raises only if the incoming gradient requires one, and is silently
    wrong otherwise: as in ``torch.autograd.grad(q, x, create_graph=True)``.
    """

    @functools.wraps(backward)
    def marked(ctx: Any, *cotangents: Tensor) -> Any:
        create_graph = torch.is_grad_enabled()
        with torch.no_grad():
            gradients = backward(ctx, *cotangents)
        if not create_graph:
            return gradients
        gradients = gradients if isinstance(gradients, tuple) else (gradients,)
        graph = [value for value in (*ctx.saved_tensors, *cotangents) if value is not None and value.requires_grad]
        name = backward.__qualname__.rpartition(".")[0]
        return tuple(
            _Undifferentiable.apply(name, value, *graph) if isinstance(value, Tensor) else value for value in gradients
        )

    return marked  # type: ignore[return-value]


class _Undifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, name: str, value: Tensor, *graph: Tensor) -> Tensor:
        """``value``, as a function of everything that its derivatives would reach."""
        ctx.name = name
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> None:
        """An error."""
        raise NotImplementedError(f"{ctx.name} has no second derivatives.")


def regularized_inverse(K: Tensor, noise: Tensor) -> Tensor:
    """A⁻¹ = (K + diag(noise))⁻¹, differentiable any number of times."""
    A = 0.5 * (K + K.mT) + torch.diag_embed(noise.expand(K.shape[:-1]))
    return torch.cholesky_inverse(torch.linalg.cholesky(A))


def with_gradient(
    at: Tensor, value: float, gradient: Tensor, formula: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """``value`` as a function of ``at`` with this gradient; ``formula`` is differentiated for second derivatives."""
    output: Tensor = _WithGradient.apply(at, at.new_tensor(value), gradient.to(at), formula)
    return output


class _WithGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, at: Tensor, value: Tensor, gradient: Tensor, formula: Any) -> Tensor:
        ctx.save_for_backward(at, gradient)
        ctx.formula = formula
        return value.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        at, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():
            if ctx.formula is None:
                raise NotImplementedError("This density has first derivatives only.")
            return *through(ctx.formula, (at,), (g,)), None, None, None
        return g * gradient, None, None, None
