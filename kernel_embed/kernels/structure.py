"""The structure of a kernel: rules by exact type, and a fold over scales, sums, products and columns.

A subclass may compute something else than its parent, so every closed form is looked up by the exact type of a kernel.
:func:`kernel_embed.register` adds rules for a class.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from ..validation import broadcast_shapes

T = TypeVar("T")


class Registry(Generic[T]):
    """Rules by the exact type of a kernel."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules: dict[type[Kernel], tuple[T, Callable[[Kernel], bool] | None]] = {}

    def register(self, kind: type[Kernel], rule: T, *, when: Callable[[Kernel], bool] | None = None) -> None:
        """Use ``rule`` for kernels of exactly the class ``kind``; only for those that satisfy ``when``."""
        self.rules[kind] = (rule, when)

    def find(self, kernel: Kernel) -> T | None:
        """The rule of ``kernel``, or ``None``."""
        rule, when = self.rules.get(type(kernel), (None, None))
        return rule if when is None or when(kernel) else None


COMPOSITES: Registry[type[Kernel]] = Registry("structure")
"""Which of GPyTorch's three composite classes a class has the attributes of."""
for _kind in (ScaleKernel, AdditiveKernel, ProductKernel):
    COMPOSITES.register(_kind, _kind)


class Node:
    """A kernel inside a larger one. Its parts are inspected once, so that it can be cached and folded again.

    It is called with the columns ``inputs`` of the original input and selects ``active_dims`` of them itself, so that
    ``columns`` reach its ``forward``; ``None`` stands for all. ``positions`` are its numbers in the sums and products
    above it; ``composite`` is ``ScaleKernel``, ``AdditiveKernel``, ``ProductKernel``, or ``None`` for a leaf.
    """

    def __init__(
        self, kernel: Kernel, inputs: Tensor | None, active_dims: Tensor | None, positions: tuple[int, ...] = ()
    ) -> None:
        self.kernel, self.inputs, self.active_dims, self.positions = kernel, inputs, active_dims, positions
        self.composite = COMPOSITES.find(kernel)
        if inputs is None or active_dims is None:
            self.columns = active_dims if inputs is None else inputs
        else:
            self.columns = inputs.index_select(0, active_dims)

    @functools.cached_property
    def parts(self) -> list[Node]:
        """The node below a scale, or the nodes below a sum or a product."""
        if self.composite is ScaleKernel:
            return [self.base()]
        parts = () if self.composite is None else enumerate(self.kernel.kernels)
        return [Node(part, self.columns, part.active_dims, (*self.positions, i)) for i, part in parts]

    def base(self) -> Node:
        """The node of ``kernel.base_kernel`` under a scale."""
        base = self.kernel.base_kernel
        if base.active_dims is None:
            return Node(base, self.columns, None, self.positions)
        return Node(base, self.inputs, self.active_dims, self.positions)  # its scale already selected its columns

    @property
    def factor(self) -> Tensor:
        """The factor of a scale, of shape ``batch``."""
        outputscale: Tensor = self.kernel.outputscale
        return outputscale

    def width(self, total: int) -> int:
        """How many columns reach ``kernel.forward``, of an input with ``total``."""
        own = self.inputs if self.active_dims is None else self.active_dims
        return total if own is None else len(own)

    def select(self, x: Tensor) -> Tensor:
        """The columns of the original input ``x`` that reach ``kernel.forward``."""
        return x if self.columns is None else x.index_select(-1, self.columns)

    def on_columns(self, function: Callable[[Tensor], T]) -> Callable[[Tensor], T]:
        """``function`` of the columns that reach ``kernel.forward``, as a function of the original input."""
        columns = self.columns
        return function if columns is None else lambda x: function(x.index_select(-1, columns))

    def select_inputs(self, x: Tensor) -> Tensor:
        """The columns of the original input ``x`` to call the kernel with."""
        return x if self.inputs is None else x.index_select(-1, self.inputs)


class Algebra(Generic[T]):
    """The computation at each kind of node; ``None`` means "unknown", the default."""

    def leaf(self, node: Node) -> T | None:
        """The value of a kernel that is not composed."""
        return None

    def unknown(self, node: Node) -> T | None:
        """A value for an unknown part of a sum or product; if it is ``None`` too, the whole is unknown."""
        return None

    def scale(self, node: Node, part: T) -> T | None:
        """The value of ``node.factor`` times a kernel with value ``part``."""
        return None

    def add(self, node: Node, parts: Sequence[T]) -> T | None:
        """The value of a sum."""
        return None

    def multiply(self, node: Node, parts: Sequence[T]) -> T | None:
        """The value of a product."""
        return None


def add(parts: Iterable[Tensor]) -> Tensor:
    """The sum of tensors."""
    return functools.reduce(operator.add, parts)


def multiply(parts: Iterable[Tensor]) -> Tensor:
    """The product of tensors."""
    return functools.reduce(operator.mul, parts)


def fold(kernel: Kernel, algebra: Algebra[T]) -> T | None:
    """The value of ``algebra`` for ``kernel``, computed from its parts upwards; ``None`` if it is unknown.

    Example:
        >>> class Names(Algebra[str]):
        ...     def leaf(self, node):
        ...         return type(node.kernel).__name__
        ...     def add(self, node, parts):
        ...         return " + ".join(parts)
        >>> from gpytorch.kernels import LinearKernel, RBFKernel
        >>> fold(RBFKernel() + LinearKernel(), Names())
        'RBFKernel + LinearKernel'
    """
    return visit(root_of(kernel), algebra)


def root_of(kernel: Kernel) -> Node:
    """The root node of ``kernel``."""
    check_kernel(kernel)
    return Node(kernel, None, kernel.active_dims)


def visit(node: Node, algebra: Algebra[T]) -> T | None:
    """As :func:`fold`, from a node downwards."""
    if node.composite is None:
        return algebra.leaf(node)
    parts = []
    for part in node.parts:
        value = visit(part, algebra)
        if value is None and node.composite is not ScaleKernel:
            value = algebra.unknown(part)
        if value is None:
            return None
        parts.append(value)
    if node.composite is ScaleKernel:
        return algebra.scale(node, parts[0])
    return algebra.add(node, parts) if node.composite is AdditiveKernel else algebra.multiply(node, parts)


def nodes_of(kernel: Kernel) -> Iterator[Node]:
    """Every node of ``kernel``, parents before children."""
    pending = [root_of(kernel)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(reversed(node.parts))


def leaves(kernel: Kernel) -> list[Kernel]:
    """The kernels that ``kernel`` is composed of."""
    return [node.kernel for node in nodes_of(kernel) if node.composite is None]


FeatureRule = Callable[[Kernel, Tensor, int], "Tensor | None"]
"""From a kernel, the points that reach its ``forward`` and a limit, to Z with K = ZZᵀ; ``None`` beyond the limit."""
FEATURES: Registry[FeatureRule] = Registry("feature map")


def has_explicit_features(kernel: Kernel) -> bool:
    """Whether ``kernel`` has :func:`~kernel_embed.kernels.explicit_features`, by its structure alone."""
    return all(FEATURES.find(leaf) is not None for leaf in leaves(kernel))


def check_kernel(kernel: object) -> None:
    """Raise unless ``kernel`` is one of GPyTorch's."""
    if not isinstance(kernel, Kernel):
        got = f"the class {kernel.__name__}" if isinstance(kernel, type) else type(kernel).__name__
        raise TypeError(f"Expected a gpytorch.kernels.Kernel, got {got}. Give the kernel first, such as RBFKernel().")


def check_columns(kernel: Kernel, width: int) -> None:
    """Raise if a part of ``kernel`` expects another number of features than it gets from ``width`` columns."""
    for node in nodes_of(kernel):
        name, available = type(node.kernel).__name__, width if node.inputs is None else len(node.inputs)
        needed = 0 if node.active_dims is None else int(node.active_dims.max()) + 1
        if needed > available:
            raise ValueError(f"active_dims of {name} needs x with at least {needed} features, got {available}.")
        columns, expected = node.width(width), node.kernel.ard_num_dims
        if expected is not None and expected != columns:
            raise ValueError(f"Expected {expected} features (ard_num_dims of {name}), got x with {columns}.")


def batch_shape_of(kernel: Kernel) -> torch.Size:
    """``kernel.batch_shape``, without ``torch.broadcast_shapes``, which imports SymPy on its first call."""
    if type(kernel).batch_shape is not Kernel.batch_shape:
        return torch.Size(kernel.batch_shape)
    return broadcast_shapes(kernel._batch_shape, *(batch_shape_of(part) for part in kernel.sub_kernels()))
