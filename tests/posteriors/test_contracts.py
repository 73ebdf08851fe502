"""The room itself: its files import one way, and at the top nothing that is slow to load."""

from __future__ import annotations

import ast
import graphlib
import pathlib

import kernel_embed.posteriors

ROOM = pathlib.Path(kernel_embed.posteriors.__file__).parent
FILES = {path: ast.parse(path.read_text()) for path in ROOM.rglob("*.py")}
SLOW = ("scipy", "joblib", "arviz", "matplotlib", "sklearn")


def imported(path, tree):
    """The files of the room that a file imports, at its top or anywhere inside."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            folder = path.parents[node.level - 1]
            base = folder.joinpath(*(node.module or "").split(".")) if node.module else folder
            for candidate in (base.with_suffix(".py"), base / "__init__.py"):
                if candidate in FILES and candidate.name != "__init__.py":
                    yield candidate
            yield from (base / f"{alias.name}.py" for alias in node.names if base / f"{alias.name}.py" in FILES)


def test_no_file_is_imported_by_one_it_imports():
    graph = {path: set(imported(path, tree)) for path, tree in FILES.items() if path.name != "__init__.py"}
    order = list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the files
    assert order.index(ROOM / "sampler.py") < order.index(ROOM / "posterior.py") < order.index(ROOM / "sample.py")


def test_files_of_the_package_are_imported_at_the_top_and_slow_libraries_are_not():
    for path, tree in FILES.items():
        top = set(tree.body)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.level:
                assert node in top, f"{path.name} imports {node.module} inside a function"
        names = {alias.name for node in top if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module for node in top if isinstance(node, ast.ImportFrom) and not node.level}
        assert not [name for name in names if name.split(".")[0] in SLOW], path.name
