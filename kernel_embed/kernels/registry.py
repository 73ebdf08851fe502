"""What is known about kernels, by their exact type."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from gpytorch.kernels import Kernel

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
