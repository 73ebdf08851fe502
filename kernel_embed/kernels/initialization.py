"""Kernels that need data before they can be evaluated.

GPyTorch's ``RFFKernel`` without ``num_dims`` draws its frequencies when it first sees points. Here that is a separate
step, :func:`kernel_embed.kernels.initialize_from_data`, so that no evaluation ever changes a kernel.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import torch
from gpytorch.kernels import Kernel, RFFKernel
from torch import Tensor

from ..validation import check_dense, check_features
from .structure import Node, Registry, check_columns, check_kernel, nodes_of


@dataclasses.dataclass(frozen=True)
class Initialization:
    """How kernels of a class complete themselves.

    Args:
        is_complete: whether a kernel can be evaluated as it is.
        complete: changes a kernel that is not, given the points ``(n, d)`` that reach its ``forward``.
        expected: a complete kernel, in words, for the message.
        otherwise: what else completes it, in words.

    Example:
        >>> from kernel_embed.kernels import Initialization
        >>> rule = Initialization(
        ...     is_complete=lambda kernel: hasattr(kernel, "center"),
        ...     complete=lambda kernel, x: setattr(kernel, "center", x.mean(0)),
        ... )
        >>> rule.expected
        'a kernel that has taken from data what it needs'
    """

    is_complete: Callable[[Kernel], bool]
    complete: Callable[[Kernel, Tensor], None]
    expected: str = "a kernel that has taken from data what it needs"
    otherwise: str = ""


INITIALIZATIONS: Registry[Initialization] = Registry("initialization")
INITIALIZATIONS.register(
    RFFKernel,
    Initialization(
        is_complete=lambda kernel: hasattr(kernel, "randn_weights"),
        complete=lambda kernel, x: kernel._init_weights(x.shape[-1], kernel.num_samples),
        expected="an RFFKernel with its weights drawn",
        otherwise="give num_dims",
    ),
)


def initialize_from_data(kernel: Kernel, x: Tensor) -> Kernel:
    """Complete every part of ``kernel`` that takes something from data ``x`` (``(n, d)``); returns ``kernel``.

    Parts that are complete stay as they are, so that a second call changes nothing.

    Args:
        kernel: any GPyTorch kernel; it is changed in place.
        x: the data.

    Returns:
        The same ``kernel``.

    Raises:
        TypeError: if ``kernel`` is not a kernel, or ``x`` not a tensor of real numbers.
        ValueError: if ``x`` is empty, not finite, or has other columns than the kernel takes.

    Example:
        >>> from gpytorch.kernels import RFFKernel, ScaleKernel
        >>> kernel = ScaleKernel(RFFKernel(num_samples=5))
        >>> initialize_from_data(kernel, torch.rand(10, 3)).base_kernel.randn_weights.shape
        torch.Size([3, 5])
    """
    check_kernel(kernel)
    if not is_initialized(kernel):
        x = check_features(x)
        check_columns(kernel, x.shape[-1])
        with torch.no_grad():
            for node in nodes_of(kernel):
                _initialize(node, node.select(x))
    return kernel


def _initialize(node: Node, x: Tensor) -> None:
    """Complete the kernel of a node, and the kernels that a leaf holds."""
    rule = INITIALIZATIONS.find(node.kernel)
    if rule is not None and not rule.is_complete(node.kernel):
        rule.complete(node.kernel, x)
    if node.composite is None:
        for child in node.kernel.children():
            if isinstance(child, Kernel):
                initialize_from_data(child, x)


def initialize_parts(module: torch.nn.Module, x: Tensor, y: Tensor | None = None) -> None:
    """:func:`initialize_from_data` for the ``kernel`` of an embedding at ``x``, and its ``target_kernel`` at ``y``."""
    kernel, target_kernel = getattr(module, "kernel", None), getattr(module, "target_kernel", None)
    if isinstance(kernel, Kernel):
        initialize_from_data(kernel, x)
    if isinstance(target_kernel, Kernel) and isinstance(y, Tensor) and y.dim() > 0 and y.numel() > 0:
        check_dense(y, "y")
        initialize_from_data(target_kernel, y.to(x).reshape(y.shape[0], -1))


def is_initialized(kernel: Kernel) -> bool:
    """Whether every part of ``kernel`` can be evaluated as it is."""
    return next(_incomplete(kernel), None) is None


def check_initialized(kernel: Kernel) -> None:
    """Raise where a part of ``kernel`` still has to take something from data."""
    for part, rule in reversed(list(_incomplete(kernel))):  # the innermost first, which is what is missing
        other = f", or {rule.otherwise}" if rule.otherwise else ""
        raise ValueError(
            f"Expected {rule.expected}, got {type(part).__name__} without. Call "
            f"kernel_embed.kernels.initialize_from_data(kernel, x) first{other}; fit does this itself for tensors."
        )


def _incomplete(kernel: Kernel) -> Iterator[tuple[Kernel, Initialization]]:
    for module in kernel.modules():
        rule = INITIALIZATIONS.find(module)
        if rule is not None and not rule.is_complete(module):
            yield module, rule
