"""Comparisons that explain a failure, and derivatives by autograd and by differences."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.nn.utils import parameters_to_vector, vector_to_parameters

STEP = 1e-5
"""The step of central differences, whose error is about STEP² and, by rounding, 1e-16 / STEP."""


def check_close(what: str, actual: Tensor, expected: Tensor, tolerance: float = 1e-8) -> None:
    """Raise ``AssertionError`` unless shapes and values agree, up to ``tolerance`` times the largest expected value.

    Example:
        >>> check_close("the sum", torch.tensor([2.0]), torch.tensor([3.0]))
        Traceback (most recent call last):
        ...
        AssertionError: Expected the sum to agree up to 1e-08, got a largest difference of 1 at index (0,): 2 for 3.
    """
    assert actual.shape == expected.shape, (
        f"Expected {what} of shape {tuple(expected.shape)}, got {tuple(actual.shape)}."
    )
    is_finite = torch.isfinite(actual)
    assert bool(is_finite.all()), f"Expected {what} to be finite, got {int((~is_finite).sum())} values not."
    if actual.numel() == 0:
        return
    difference = (actual - expected).detach().abs()
    place = tuple(int(i) for i in torch.unravel_index(difference.argmax(), difference.shape))
    assert float(difference[place]) <= tolerance * max(float(expected.detach().abs().max()), 1.0), (
        f"Expected {what} to agree up to {tolerance:g}, got a largest difference of {float(difference[place]):.3g} at "
        f"index {place}: {actual[place].item():.6g} for {expected[place].item():.6g}."
    )


def named_parameters(module: torch.nn.Module) -> dict[str, Parameter]:
    """The parameters that require a gradient, by name."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


@contextlib.contextmanager
def unchanged(what: str, module: torch.nn.Module) -> Iterator[None]:
    """Raise ``AssertionError`` if the block, in which ``what`` is evaluated, changes a parameter or a buffer."""
    before = copy.deepcopy(module.state_dict())
    yield
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), f"Expected {what} not to change {name}."


def check_gradients(what: str, named: Mapping[str, Parameter], ours: Tensor, others: Tensor, tolerance: float) -> None:
    """:func:`check_close` for one parameter after the other."""
    sizes = [parameter.numel() for parameter in named.values()]
    for name, one, other in zip(named, ours.split(sizes), others.split(sizes), strict=True):
        check_close(f"{what} in {name}", one, other, tolerance)


def gradients(value: Tensor, parameters: Sequence[Parameter], create_graph: bool = False) -> Tensor:
    """∂value/∂p of all parameters as one vector, zero for those it does not depend on."""
    if not parameters or not value.requires_grad:
        return value.new_zeros(sum(p.numel() for p in parameters))
    slopes = torch.autograd.grad(value, parameters, allow_unused=True, create_graph=create_graph)
    return torch.cat(
        [(torch.zeros_like(p) if g is None else g).flatten() for g, p in zip(slopes, parameters, strict=True)]
    )


def differences(
    function: Callable[[], Tensor], parameters: Sequence[Parameter], directions: Tensor | None = None
) -> Tensor:
    """Central differences of ``function``, which reads the current parameters, along each row of ``directions``."""
    theta = parameters_to_vector(parameters).detach()
    slopes = []
    for direction in torch.diag(torch.ones_like(theta)) if directions is None else directions:
        sides = []
        for step in (STEP, -STEP):
            vector_to_parameters(theta + step * direction, parameters)
            sides.append(function().detach())
        slopes.append((sides[0] - sides[1]) / (2.0 * STEP))
    vector_to_parameters(theta, parameters)
    return torch.stack(slopes)


def second_derivatives(
    function: Callable[[], Tensor], parameters: Sequence[Parameter], seed: int = 0
) -> tuple[Tensor, Tensor]:
    """The Hessian of ``function`` times a random direction: by autograd, and by central differences of the gradient."""
    size = sum(p.numel() for p in parameters)
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(1, size, generator=generator, dtype=parameters[0].dtype, device="cpu").to(parameters[0])
    ours = gradients((direction[0] * gradients(function(), parameters, create_graph=True)).sum(), parameters)
    return ours, differences(lambda: gradients(function(), parameters), parameters, direction)[0]
