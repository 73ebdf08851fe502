"""``frozen(module)``: a copy of a kernel or an embedding that no later learning changes."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TypeVar

import gpytorch
import torch
from gpytorch.kernels import InducingPointKernel, Kernel
from torch import Tensor

M = TypeVar("M", bound=gpytorch.Module)


def frozen(module: M) -> M:
    """A copy of a kernel or an embedding without gradients: its parameters, buffers and modes as they are now.

    Works for every GPyTorch kernel, also for one that keeps tensors of an earlier evaluation, which PyTorch does not
    copy with their history, and for one whose parameters are not leaves, as inside ``torch.func.functional_call``.

    Args:
        module: a kernel, an embedding, or any GPyTorch module.

    Returns:
        The copy.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> kernel = RBFKernel()
        >>> copied = frozen(kernel)
        >>> kernel.lengthscale = 5.0
        >>> round(copied.lengthscale.item(), 4), copied.raw_lengthscale.requires_grad
        (0.6931, False)
    """
    memo: dict[int, object] = {}
    for part in module.modules():
        # An added loss term belongs to the likelihood of a model in training, not to the kernel.
        for term in getattr(part, "_added_loss_terms", {}).values():
            memo[id(term)] = None
        for tensor in _tensors(vars(part)):
            if not tensor.is_leaf:
                memo[id(tensor)] = _like(tensor)
    # GPyTorch's own copy of this class shares the likelihood, so that freezing the copy would freeze the original.
    inducing = [part for part in module.modules() if isinstance(part, InducingPointKernel)]
    for part in reversed(inducing):
        _copy_as_object(part, memo)
    copied: M = copy.deepcopy(module, memo).requires_grad_(False)
    return copied


def _like(tensor: Tensor) -> Tensor:
    value = tensor.detach().clone()
    return torch.nn.Parameter(value, requires_grad=False) if isinstance(tensor, torch.nn.Parameter) else value


def _copy_as_object(module: InducingPointKernel, memo: dict[int, object]) -> None:
    """What ``copy.deepcopy`` does by default, without cached tensors."""
    copied: Kernel = object.__new__(type(module))
    memo[id(module)] = copied
    state = {name: value for name, value in vars(module).items() if not name.startswith("_cached_kernel")}
    copied.__dict__.update(copy.deepcopy(state, memo))


def _tensors(value: object) -> Iterator[Tensor]:
    """Every tensor in containers; modules inside are visited on their own."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple):
        for inside in value.values() if isinstance(value, dict) else value:
            yield from _tensors(inside)
