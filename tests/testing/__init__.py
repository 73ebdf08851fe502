"""The suites that the library ships, run on its own classes."""


def checks(contract: type) -> list[str]:
    """The names of the tests of a suite."""
    return sorted(name for name in dir(contract) if name.startswith("test_"))
