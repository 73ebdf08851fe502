"""Comparisons with informative errors, and derivatives by differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

STEP = 1e-5
"""Of central differences: their error is about STEP² and, by rounding, 1e-16 / STEP."""


def check_close(what: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-8) -> None:
    """Raise ``AssertionError`` unless ``actual`` has the shape of ``expected`` and its values, up to ``tolerance``.

    The tolerance is relative to the largest expected value.

    Example:
        >>> check_close("the sum", torch.tensor([2.0]), torch.tensor([3.0]))
        Traceback (most recent call last):
        ...
        AssertionError: Expected the sum to agree up to 1e-08, got a largest difference of 1 at index (0,): 2 for 3.
    """
    if actual.shape != expected.shape:
        raise AssertionError(f"Expected {what} of shape {tuple(expected.shape)}, got {tuple(actual.shape)}.")
    if not bool(torch.isfinite(actual).all()):
        raise AssertionError(f"Expected {what} to be finite, got {int((~torch.isfinite(actual)).sum())} values not.")
    if actual.numel() == 0:
        return
    difference = (actual - expected).detach().abs()
    scale = max(float(expected.detach().abs().max()), 1.0)
    if float(difference.max()) <= tolerance * scale:
        return
    place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
    raise AssertionError(
        f"Expected {what} to agree up to {tolerance:g}, got a largest difference of {float(difference.max()):.3g} at "
        f"index {place}: {actual[place].item():.6g} for {expected[place].item():.6g}."
    )


def gradients(value: Tensor, parameters: Sequence[Tensor]) -> list[Tensor]:
    """∂value/∂p for every parameter, zero for those it does not depend on."""
    if not parameters:
        return []
    slopes = torch.autograd.grad(value, parameters, allow_unused=True)
    return [torch.zeros_like(p) if g is None else g for g, p in zip(slopes, parameters, strict=True)]


@torch.no_grad()
def differences(function: Callable[[], Tensor], parameters: Sequence[Tensor]) -> list[Tensor]:
    """The same by central differences of ``function``, which reads the parameters as they are."""
    slopes = []
    for parameter in parameters:
        slope = torch.zeros_like(parameter)
        for i in range(parameter.numel()):
            place = torch.unravel_index(torch.tensor(i), parameter.shape) if parameter.dim() else ()
            before = parameter[place].clone()
            parameter[place] = before + STEP
            ahead = function()
            parameter[place] = before - STEP
            behind = function()
            parameter[place] = before
            slope[place] = (ahead - behind) / (2.0 * STEP)
        slopes.append(slope)
    return slopes


def named_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """The parameters that require a gradient, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}
