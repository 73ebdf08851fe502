"""Nothing written goes unrun: every example in a docstring of the package."""

import doctest
import importlib
import pkgutil
import types

import pytest
import torch

import kernel_embed

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(kernel_embed.__path__, "kernel_embed.")
    if not module.name.endswith("__main__")
)


def examples(name: str) -> list[doctest.DocTest]:
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module, extraglobs={"torch": torch}) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_module_imports_and_its_examples_run(name):
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in examples(name):
        torch.manual_seed(0)
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


def test_there_are_examples():
    assert sum(len(examples(name)) for name in MODULES) >= 10


def test_every_public_name_is_documented():
    for name in kernel_embed.__all__:
        assert (getattr(kernel_embed, name).__doc__ or "").strip(), f"{name} has no docstring"


def test_the_top_level_is_small_and_each_name_is_one_object():
    names = [name for name in kernel_embed.__all__ if not isinstance(getattr(kernel_embed, name), types.ModuleType)]
    assert len(names) <= 50
    for name in names:
        parts = getattr(kernel_embed, name).__module__.split(".")
        module = ".".join(parts[: 3 if parts[1] == "lab" else 2])
        assert getattr(importlib.import_module(module), name) is getattr(kernel_embed, name)
