"""What a user may say of the kernel of a test, and the kernels that follow from it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Protocol, TypeAlias, cast, get_args, runtime_checkable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..posteriors.draws import KernelDraws
from .averaged import AverageKernel, average_of_batch
from .checks import check_choice, check_real
from .rules import Kernels, Rule, kernels_by_rule


@runtime_checkable
class HasKernelDraws(Protocol):
    """Whatever knows kernels and how likely they are: a posterior, or a user's own class."""

    def kernel_draws(self) -> KernelDraws:
        """The kernels and their weights."""
        ...


KernelChoice: TypeAlias = Rule | Kernel | Sequence[Kernel] | HasKernelDraws | None
"""``None``, a rule by name, a kernel (a batch of kernels: draws, averaged), several kernels, or a posterior."""


def pairs_of(x: Kernels, y: Kernels) -> list[tuple[int, int]]:
    """Which kernel of x goes with which of y: every maximum (or given one) with every other, medians with their like.

    All pairs would be many, and most of them between scales that nobody has asked for.

    Example:
        >>> x, y = Kernels((), "", (None, 1.0, 4.0)), Kernels((), "", (None, None, 1.0, 4.0))
        >>> pairs_of(x, y)
        [(0, 0), (0, 1), (1, 2), (2, 3)]
    """

    def free(kernels: Kernels) -> list[int]:
        maxima = [i for i, multiple in enumerate(kernels.multiples) if multiple is None]
        return maxima or [kernels.multiples.index(1.0)]  # without a maximum the median stands for it

    found = [(i, j) for i in free(x) for j in free(y)]
    like = [(i, j) for i, a in enumerate(x.multiples) for j, b in enumerate(y.multiples) if a is not None and a == b]
    return found + [pair for pair in like if pair not in found]


def choose_kernels(
    x: Tensor, kernel: KernelChoice, categorical: tuple[int, ...], generator: torch.Generator, name: str = "x"
) -> Kernels:
    """The kernels for the pooled sample ``x`` (``(N, d)``, float64)."""
    if kernel is None or isinstance(kernel, str):
        rule = kernel or "evidence+median"
        check_choice(rule, get_args(Rule), "kernel, where it is a word,")
        return kernels_by_rule(x, cast(Rule, rule), categorical, generator)
    given = given_kernels(kernel)
    for one in given:
        check_real(one, categorical, name)
    # A copy in float64, so that the caller's kernel stays what it is.
    kernels = tuple(copy.deepcopy(one).to(dtype=torch.float64, device=x.device).requires_grad_(False) for one in given)
    how = "given" if len(kernels) == 1 else f"{len(kernels)} given"
    if isinstance(kernels[0], AverageKernel) and len(kernels) == 1:
        how = f"average of {len(kernels[0].weights)} draws"
    return Kernels(kernels, how, (None,) * len(kernels))


def given_kernels(kernel: Kernel | Sequence[Kernel] | HasKernelDraws) -> list[Kernel]:
    """The kernels a user gave, none with a batch dimension: batches and posteriors are averages."""
    if isinstance(kernel, Kernel):
        return [average_of_batch(kernel)]
    if isinstance(kernel, HasKernelDraws):
        return [AverageKernel(kernel.kernel_draws())]
    if isinstance(kernel, Sequence) and kernel and all(isinstance(one, Kernel) for one in kernel):
        return [average_of_batch(one) for one in kernel]
    raise TypeError(
        "Expected a gpytorch.kernels.Kernel, several, a posterior (anything with kernel_draws()), None, or one of "
        f"{get_args(Rule)}; got {type(kernel).__name__}."
    )
