"""The suites that the library ships, run on its own classes."""

from typing import TypeVar

C = TypeVar("C")


def checks(contract: type) -> list[str]:
    """The names of the tests of a suite."""
    return sorted(name for name in dir(contract) if name.startswith("test_"))


def suite(contract: type[C], **members: object) -> C:
    """A suite with these attributes and, under the names of its methods, functions without arguments."""
    methods = {name: (lambda self, make=make: make()) if callable(make) else make for name, make in members.items()}
    return type("Suite", (contract,), methods)()
