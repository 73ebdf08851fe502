"""What a kernel is made of: registries by exact type, and the one walk through scales, sums, products and columns.

A subclass may compute something else than its parent, so nothing is taken for granted of it: every closed form is found
by the exact type of a kernel, and :func:`kernel_embed.register` is where a class says what it is.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, TypeVar

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from ..validation import broadcast_shapes

T = TypeVar("T")


class Registry(Generic[T]):
    """Rules by the exact type of a kernel.

    Args:
        what: what a rule gives, in words, for messages.

    Example:
        >>> from gpytorch.kernels import RBFKernel, RQKernel
        >>> degrees = Registry[int]("degree")
        >>> degrees.register(RBFKernel, 2)
        >>> degrees.find(RBFKernel()), degrees.find(RQKernel())
        (2, None)
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self._rules: dict[type[Kernel], tuple[T, Callable[[Kernel], bool] | None]] = {}

    def register(
        self, kind: type[Kernel], rule: T, *, when: Callable[[Kernel], bool] | None = None, replace: bool = False
    ) -> None:
        """Use ``rule`` for kernels of exactly the class ``kind``; only for those that satisfy ``when``."""
        self.check(kind, rule, replace=replace)
        self._rules[kind] = (rule, when)

    def check(self, kind: type[Kernel], rule: T, *, replace: bool = False) -> None:
        """Raise where :meth:`register` would."""
        check_kind(kind)
        if not replace and kind in self._rules and self._rules[kind][0] != rule:
            raise ValueError(
                f"Expected a class without a registered {self.what}, got {kind.__name__}, which has one. "
                "Give replace=True to put the new one in its place."
            )

    def find(self, kernel: Kernel) -> T | None:
        """The rule of ``kernel``, or ``None``."""
        rule, when = self._rules.get(type(kernel), (None, None))
        return rule if when is None or when(kernel) else None

    def plan(
        self, kind: type[Kernel], rule: T, *, when: Callable[[Kernel], bool] | None = None, replace: bool = False
    ) -> Plan:
        """What :meth:`register` would do, in two steps."""
        check = functools.partial(self.check, kind, rule, replace=replace)
        return Plan(self.what, check, functools.partial(self.register, kind, rule, when=when, replace=True))

    def plan_like(self, kind: type[Kernel], like: type[Kernel], *, replace: bool = False) -> Plan | None:
        """The same with the rule of another class, where it has one."""
        if like not in self._rules:
            return None
        rule, when = self._rules[like]
        return self.plan(kind, rule, when=when, replace=replace)


class Plan(NamedTuple):
    """A registration that is not made yet."""

    what: str
    check: Callable[[], None]
    """Raises where the registration contradicts one that stands."""
    write: Callable[[], None]


def check_kind(kind: type[Kernel]) -> None:
    """Raise unless ``kind`` is a class of kernels."""
    if not (isinstance(kind, type) and issubclass(kind, Kernel)):
        got = kind.__name__ if isinstance(kind, type) else f"an object of type {type(kind).__name__}"
        raise TypeError(f"Expected a subclass of gpytorch.kernels.Kernel, got {got}. Give the class itself.")


class Composite(enum.Enum):
    """How a kernel is made of others; the attributes are those of GPyTorch's own three classes."""

    SCALE = "scale"
    """``outputscale`` times ``base_kernel``, which takes the columns that its scale has chosen."""
    SUM = "sum"
    """The sum of ``kernels``, each of which chooses its own columns."""
    PRODUCT = "product"
    """The product of ``kernels``, each of which chooses its own columns."""


COMPOSITES: Registry[Composite] = Registry("structure")
COMPOSITES.register(ScaleKernel, Composite.SCALE)
COMPOSITES.register(AdditiveKernel, Composite.SUM)
COMPOSITES.register(ProductKernel, Composite.PRODUCT)


@dataclasses.dataclass(frozen=True)
class Node:
    """A kernel at its place in a larger one.

    Attributes:
        kernel: the kernel.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from kernel_embed.kernels import Algebra, fold
        >>> class Columns(Algebra[str]):
        ...     def leaf(self, node):
        ...         return str(node.kernel.active_dims.tolist())
        >>> fold(RBFKernel(active_dims=(2,)), Columns())
        '[2]'
    """

    kernel: Kernel
    inputs: Tensor | None
    """The columns of the original input to call the kernel with; ``None`` for all."""
    chosen: Tensor | None
    """Which of ``inputs`` the kernel chooses itself, its ``active_dims``; ``None`` for all."""
    positions: tuple[int, ...] = ()
    """The number of the part taken in each sum and product on the way from the root."""

    @property
    def columns(self) -> Tensor | None:
        """The columns of the original input that reach ``kernel.forward``; ``None`` for all."""
        if self.inputs is None or self.chosen is None:
            return self.chosen if self.inputs is None else self.inputs
        return self.inputs.index_select(0, self.chosen)

    @property
    def factor(self) -> Tensor:
        """The factor of a scale, of shape ``batch``."""
        outputscale: Tensor = self.kernel.outputscale
        return outputscale

    def width(self, total: int) -> int:
        """How many columns reach ``kernel.forward``, of an input with ``total``."""
        own = self.inputs if self.chosen is None else self.chosen
        return total if own is None else len(own)

    def select(self, x: Tensor) -> Tensor:
        """What ``kernel.forward`` sees of the original input ``x``."""
        return x if self.columns is None else x.index_select(-1, self.columns)

    def select_inputs(self, x: Tensor) -> Tensor:
        """What to call the kernel with, given the original input ``x``."""
        return x if self.inputs is None else x.index_select(-1, self.inputs)

    def base(self) -> Node:
        """The node below a scale."""
        base = self.kernel.base_kernel
        if base.active_dims is None:
            return Node(base, self.columns, None, self.positions)
        return Node(base, self.inputs, self.chosen, self.positions)  # its scale has taken over its columns

    def parts(self) -> list[Node]:
        """The nodes below a sum or a product."""
        return [
            Node(part, self.columns, part.active_dims, (*self.positions, i))
            for i, part in enumerate(self.kernel.kernels)
        ]


class Algebra(Generic[T]):
    """What to compute at each kind of node; ``None`` everywhere means "unknown", which is the default.

    Example:
        >>> from gpytorch.kernels import RBFKernel
        >>> from kernel_embed.kernels import Algebra, fold
        >>> class CountLeaves(Algebra[int]):
        ...     def leaf(self, node):
        ...         return 1
        ...     def add(self, node, parts):
        ...         return sum(parts)
        >>> fold(RBFKernel() + RBFKernel() + RBFKernel(), CountLeaves())
        3
    """

    def enter(self, node: Node) -> T | None:
        """Called on the way down; an answer other than ``None`` is final, and nothing below is visited."""
        return None

    def leaf(self, node: Node) -> T | None:
        """The answer for a kernel that is not composed."""
        return None

    def scale(self, node: Node, part: T | None) -> T | None:
        """The answer for ``node.factor`` times a kernel whose answer is ``part``."""
        return None

    def add(self, node: Node, parts: Sequence[T | None]) -> T | None:
        """The answer for a sum."""
        return None

    def multiply(self, node: Node, parts: Sequence[T | None]) -> T | None:
        """The answer for a product."""
        return None


def fold(kernel: Kernel, algebra: Algebra[T]) -> T | None:
    """The answer of ``algebra`` for ``kernel``, from its parts upwards.

    Args:
        kernel: any GPyTorch kernel.
        algebra: what to compute at each node.

    Returns:
        The answer at the root; ``None`` where some part has none.

    Raises:
        TypeError: if ``kernel`` is not a kernel.

    Example:
        >>> from gpytorch.kernels import LinearKernel, RBFKernel
        >>> class Names(Algebra[str]):
        ...     def leaf(self, node):
        ...         return type(node.kernel).__name__
        ...     def add(self, node, parts):
        ...         return " + ".join(parts)
        >>> fold(RBFKernel() + LinearKernel(), Names())
        'RBFKernel + LinearKernel'
    """
    check_kernel(kernel)
    return visit(Node(kernel, None, kernel.active_dims), algebra)


def visit(node: Node, algebra: Algebra[T]) -> T | None:
    """As :func:`fold`, from a node downwards."""
    answer = algebra.enter(node)
    if answer is not None:
        return answer
    composite = COMPOSITES.find(node.kernel)
    if composite is None:
        return algebra.leaf(node)
    if composite is Composite.SCALE:
        return algebra.scale(node, visit(node.base(), algebra))
    parts = [visit(part, algebra) for part in node.parts()]
    return algebra.add(node, parts) if composite is Composite.SUM else algebra.multiply(node, parts)


def all_known(parts: Sequence[T | None]) -> list[T] | None:
    """The answers of all parts, or ``None`` where one is unknown."""
    known = [part for part in parts if part is not None]
    return known if len(known) == len(parts) else None


def all_leaves(kernel: Kernel, predicate: Callable[[Kernel], bool]) -> bool:
    """Whether ``predicate`` holds for every kernel that ``kernel`` is composed of."""
    answer: bool | None = fold(kernel, _AllLeaves(predicate))
    return bool(answer)


class _AllLeaves(Algebra[bool]):
    def __init__(self, predicate: Callable[[Kernel], bool]) -> None:
        self.predicate = predicate

    def leaf(self, node: Node) -> bool:
        """The predicate itself."""
        return self.predicate(node.kernel)

    def scale(self, node: Node, part: bool | None) -> bool:
        """That of the base."""
        return bool(part)

    def add(self, node: Node, parts: Sequence[bool | None]) -> bool:
        """That of all parts."""
        return all(parts)

    multiply = add


def check_kernel(kernel: object) -> None:
    """Raise unless ``kernel`` is one of GPyTorch's."""
    if not isinstance(kernel, Kernel):
        got = f"the class {kernel.__name__}" if isinstance(kernel, type) else type(kernel).__name__
        raise TypeError(f"Expected a gpytorch.kernels.Kernel, got {got}. Give the kernel first, such as RBFKernel().")


def check_columns(kernel: Kernel, width: int) -> None:
    """Raise where a part of ``kernel`` expects another number of features than it gets from ``width`` columns."""
    fold(kernel, _Columns(width))


class _Columns(Algebra[None]):
    def __init__(self, width: int) -> None:
        self.width = width

    def enter(self, node: Node) -> None:
        """Raise where a kernel gets other columns than it expects."""
        kernel = node.kernel
        given = self.width if node.inputs is None else len(node.inputs)
        if node.chosen is not None and int(node.chosen.max()) >= given:
            raise ValueError(
                f"Expected x with at least {int(node.chosen.max()) + 1} features for active_dims of "
                f"{type(kernel).__name__}, got {given}. Choose columns that exist."
            )
        width = node.width(self.width)
        if kernel.ard_num_dims is not None and kernel.ard_num_dims != width:
            raise ValueError(
                f"Expected {kernel.ard_num_dims} features (ard_num_dims of {type(kernel).__name__}), got x with "
                f"{width}. Build the kernel with ard_num_dims={width}, or choose columns with active_dims."
            )


def batch_shape_of(kernel: Kernel) -> torch.Size:
    """``kernel.batch_shape``, without what PyTorch loads to put shapes together.

    Args:
        kernel: any kernel.

    Returns:
        The shape of the batch.

    Example:
        >>> from gpytorch.kernels import LinearKernel, RBFKernel
        >>> batch_shape_of(RBFKernel(batch_shape=torch.Size([2])) + LinearKernel())
        torch.Size([2])
    """
    if type(kernel).batch_shape is not Kernel.batch_shape:
        return torch.Size(kernel.batch_shape)
    return broadcast_shapes(kernel._batch_shape, *(batch_shape_of(part) for part in kernel.sub_kernels()))
