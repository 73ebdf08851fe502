"""Every name on the pages of the reference has arguments, a type of its result and an example; every example runs."""

import ast
import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re
import sys
import textwrap
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import kernel_embed

DOCS = pathlib.Path(__file__).parents[1] / "docs"
sys.path.insert(0, str(DOCS / "_extensions"))
try:
    from libraries import address
    from reference import Entry, anchor_on, entries_of, first_sentence, page_of
finally:
    sys.path.remove(str(DOCS / "_extensions"))

PAGES = sorted((DOCS / "reference").glob("*.md"))
FIELD = re.compile(r'^( +\w+: .*)\n +"""', flags=re.MULTILINE)
"""A field with a docstring of its own below it."""
ENTRIES = [entry for page in PAGES for entry in entries_of(page.read_text())]


def documented(value: object) -> str:
    """The docstrings of a function, or of a class and its bases, and the text of its fields."""
    if not isinstance(value, type):
        return inspect.getdoc(value) or ""
    classes = [base for base in value.__mro__ if base.__module__.startswith("kernel_embed")]
    texts = [inspect.cleandoc(base.__doc__ or "") for base in classes]
    fields = [line for base in classes for line in FIELD.findall(inspect.getsource(base))]
    return "\n".join([*texts, *fields])


def arguments(value: object) -> list[str]:
    """Names that a caller gives; those of a protocol and of plain ``**kwargs`` are none."""
    if getattr(value, "_is_protocol", False) or (isinstance(value, type) and issubclass(value, BaseException)):
        return []
    return [name for name in inspect.signature(value).parameters if name not in ("args", "kwargs")]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_name_of_the_reference_is_documented_in_full(entry):
    value, text = entry.value, documented(entry.value)
    missing = [name for name in arguments(value) if not re.search(rf"^\s+\*{{0,2}}{name}: ", text, re.MULTILINE)]
    assert not missing, "arguments without a line"
    own = inspect.getdoc(value) or ""
    assert ">>> " in own, "no example"
    typed = isinstance(value, type) or inspect.signature(value).return_annotation is not inspect.Signature.empty
    assert typed, "nothing about what it returns"


def refuses(function: Callable[..., Any]) -> bool:
    """Whether its own body raises or calls a check; what inner functions do is theirs."""
    if function.__code__.co_filename.startswith("<"):
        return False  # written by a dataclass, which checks nothing
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    nodes: list[ast.AST] = list(definition.body)  # type: ignore[attr-defined]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            continue
        if isinstance(node, ast.Raise):
            return True
        if isinstance(node, ast.Call) and re.match(r"_?check_", ast.unparse(node.func).rpartition(".")[2]):
            return True
        nodes.extend(ast.iter_child_nodes(node))
    return False


def refusing(entry: Entry) -> Iterator[tuple[str, str]]:
    """Names and docstrings of what can refuse its arguments: the name itself, and its methods that have an entry."""
    value = entry.value
    if not isinstance(value, type):
        if refuses(inspect.unwrap(value)):
            yield entry.name, inspect.getdoc(value) or ""
        return
    if getattr(value, "_is_protocol", False):
        return
    own = [vars(value).get(name) for name in ("__init__", "__post_init__", "__call__")]
    if any(inspect.isfunction(function) and refuses(inspect.unwrap(function)) for function in own):
        yield entry.name, inspect.getdoc(value) or ""
    public = [name for name in vars(value) if not name.startswith("_")]
    for name in public if entry.members == "*" else [name.strip() for name in entry.members.split(",") if name]:
        found = inspect.getattr_static(value, name, None)
        function = getattr(found, "__func__", found)  # of a class method
        ours = inspect.isfunction(function) and function.__module__.startswith("kernel_embed")
        if ours and refuses(inspect.unwrap(function)):
            yield f"{entry.name}.{name}", inspect.getdoc(function) or ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_can_refuse_says_when(page):
    entries = entries_of(page.read_text())
    silent = [name for entry in entries for name, text in refusing(entry) if "Raises:" not in text]
    assert silent == [], "say which errors are raised, and when"


def test_no_name_has_two_pages_and_every_public_name_has_one():
    names = [entry.name for entry in ENTRIES]
    assert len(names) == len(set(names))
    public = [name for name in kernel_embed.__all__ if not isinstance(getattr(kernel_embed, name), types.ModuleType)]
    assert {f"kernel_embed.{name}" for name in public} <= set(names)


def test_a_page_links_its_module_its_family_and_where_it_is_used():
    entry = Entry("kernel_embed.gram", "", False, ("kernel_embed.kernels.sup_diagonal",))
    page = page_of(entry, "kernels", {"how_to/kernel": "K = ke.gram(kernel, x)", "how_to/save": "a program"})
    assert ".. autofunction:: kernel_embed.gram" in page
    assert ":doc:`../kernels`" in page
    assert ":py:obj:`~kernel_embed.kernels.sup_diagonal`" in page
    assert ":doc:`/how_to/kernel`" in page
    assert "how_to/save" not in page


def test_links_back_from_a_listing_of_source_and_out_to_other_libraries():
    page = "kernel_embed.kernels.Radial"
    assert anchor_on(page, "kernel_embed.kernels.radial.Radial") == page
    assert anchor_on(page, "kernel_embed.kernels.radial.Radial.scaled") == f"{page}.scaled"
    assert anchor_on("kernel_embed.gram", "kernel_embed.kernels.gram.gram") == "kernel_embed.gram"
    assert address("gpytorch.kernels.rbf_kernel.RBFKernel").endswith("kernels.html#gpytorch.kernels.RBFKernel")
    assert address("torch.Tensor").endswith("tensors.html#torch.Tensor")
    assert address("sklearn.preprocessing.MinMaxScaler").endswith("generated/sklearn.preprocessing.MinMaxScaler.html")
    assert address("kernel_embed.fit") is None
    assert first_sentence("α² of ``kernel``, see :class:`~a.B`.\n\nMore.") == "α² of `kernel`, see `B`"


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


def test_the_top_level_is_small_and_each_name_is_one_object():
    names = [name for name in kernel_embed.__all__ if not isinstance(getattr(kernel_embed, name), types.ModuleType)]
    assert len(names) <= 50
    for name in names:
        parts = getattr(kernel_embed, name).__module__.split(".")
        module = ".".join(parts[: 3 if parts[1] == "lab" else 2])
        assert getattr(importlib.import_module(module), name) is getattr(kernel_embed, name)
