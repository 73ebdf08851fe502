"""The kernels of a posterior: what a test, or anything else that is linear in the kernel, averages over."""

from __future__ import annotations

from typing import NamedTuple

from gpytorch.kernels import Kernel
from torch import Tensor


class KernelDraws(NamedTuple):
    """Kernels drawn from a posterior, with their weights.

    Attributes:
        kernels: each one draw, or several as its leading batch dimension.
        weights: for each kernel the weights of its draws, ``(S,)``; all of them together sum to 1.
    """

    kernels: tuple[Kernel, ...]
    weights: tuple[Tensor, ...]
