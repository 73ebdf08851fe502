"""What the README, the CI script and the pages promise is what is there."""

import ast
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from .pages import run_page

ROOT = pathlib.Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = sorted(path for path in (ROOT / "docs").rglob("*.md") if "_build" not in path.parts)
TUTORIALS = sorted((ROOT / "tutorials").glob("*.ipynb"))
sys.path.append(str(ROOT / "docs"))

import figures  # noqa: E402 — it is beside the pages, which the line above makes known


def test_readme_has_two_commands_and_ci_runs_both_word_for_word():
    commands = re.findall(r"```sh\n(.*?)\n```", README, flags=re.DOTALL)
    assert len(commands) == 2
    for command in commands:
        assert "-c constraints.txt" in command
        assert "\n" not in command
    script = [line.strip() for line in (ROOT / ".ci" / "run").read_text().splitlines()]
    assert set(commands) <= set(script)


def test_readme_example_runs():
    names = run_page(README, "README.md")
    assert names["conditioned"].probabilities(names["x"]).shape == (178, 3)


def test_constraints_pin_torch():
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().splitlines()


ERRORS = ("ValueError", "TypeError", "RuntimeError", "ImportError", "FileNotFoundError", "MemoryError", "OSError")


def error_messages(path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Lines and texts of the errors that a file raises; … stands for a value that is known at run time."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args):
            continue
        message, kind = node.exc.args[0], node.exc.func
        if not (isinstance(kind, ast.Name) and kind.id in ERRORS):
            continue
        if isinstance(message, ast.JoinedStr | ast.Constant):
            parts = message.values if isinstance(message, ast.JoinedStr) else [message]
            yield node.lineno, "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts)


def test_every_error_is_a_whole_sentence():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / "kernel_embed").rglob("*.py"))
        for line, text in error_messages(path)
        if len(text) < 15 or text.rstrip()[-1] not in ".?!…)'`"
    ]
    assert wrong == [], "say what is wrong and how to fix it, in sentences"


MODULES = [
    "version", "files", "runtime", "archive", "results", "validation", "splits", "bounds", "softmax",
    "linalg", "kernels", "tabular", "embeddings", "objectives", "learning", "scale", "posteriors", "plots",
    "hypothesis", "voting", "estimators", "testing", "lab", "cli",
]  # fmt: skip
"""Every part of the package, in the order in which they may import: each only the ones before it."""


def imported_modules(path: pathlib.Path) -> Iterator[str]:
    """The modules that a file imports, relatively or absolutely, anywhere in its text."""
    package = path.relative_to(ROOT).with_suffix("").parts
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) - node.level]) if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            names = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "kernel_embed" and len(parts) > 1 and parts[1] in MODULES:
                yield parts[1]


@pytest.mark.parametrize("module", MODULES)
def test_imports_only_go_one_way(module):
    package = ROOT / "kernel_embed"
    paths = [path for path in package.rglob("*.py") if path.relative_to(package).parts[0].removesuffix(".py") == module]
    for path in paths:
        later = {name for name in imported_modules(path) if MODULES.index(name) > MODULES.index(module)}
        assert not later, f"{path.relative_to(ROOT)} imports {later}, which come after {module}"


def test_every_file_belongs_to_a_listed_module():
    package = ROOT / "kernel_embed"
    modules = {path.relative_to(package).parts[0].removesuffix(".py") for path in package.rglob("*.py")}
    assert modules - {"__init__", "__main__"} <= set(MODULES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT / "docs")))
def test_the_code_of_a_page_runs_from_an_empty_interpreter(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    run_page(page.read_text(), str(page))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_is_committed_with_outputs_and_runs(path, monkeypatch):
    assert path.stat().st_size < 1_000_000
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert all(cell.execution_count for cell in code), "committed without its outputs"
    pictures = sum("image/png" in output.get("data", {}) for cell in code for output in cell.outputs)
    assert pictures >= 1
    monkeypatch.setenv("KERNEL_EMBED_SHORT", "1")
    for cell in code:
        for line, less in cell.metadata.get("short", {}).items():  # a run of seconds
            assert line in cell.source
            cell.source = cell.source.replace(line, less)
    NotebookClient(notebook, timeout=300, kernel_name="python3").execute(cwd=str(path.parent))


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda p: p.stem)
def test_a_tutorial_fits_the_page_shows_every_figure_and_asserts_its_claims_where_readers_do_not_see_it(path):
    """96 columns stand beside both menus; a cell that makes a figure was committed with its picture."""
    cells = nbformat.read(path, as_version=4).cells
    hidden = [cell for cell in cells if "assertion" in cell.metadata.get("tags", [])]
    assert len(hidden) >= 2
    assert all("remove-cell" in cell.metadata.tags and not cell.outputs for cell in hidden)
    shown = [cell for cell in cells if "remove-cell" not in cell.metadata.get("tags", [])]
    assert not [c.source for c in shown if re.search(r"SHORT\b|kernel_embed\.lab|^assert ", c.source, re.MULTILINE)]
    for cell in cells:
        outputs = cell.get("outputs", [])
        lines = [line for output in outputs for line in output.get("text", "").splitlines()]
        assert max(map(len, lines), default=0) <= 98, max(lines, key=len)
        assert not [output for output in outputs if output.get("name") == "stderr"], "a warning on the page"
        shown = any("image/png" in output.get("data", {}) for output in outputs)
        if cell.cell_type == "code" and "plt.subplots(" in cell.source:
            assert shown, cell.source
        assert max((len(line) for line in cell.source.splitlines() if cell.cell_type == "code"), default=0) <= 100


def test_the_tutorial_index_has_a_picture_and_words_for_each(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs" / "_extensions")
    from gallery import write_gallery

    write_gallery(TUTORIALS, tmp_path)
    page = (tmp_path / "gallery.md").read_text()
    for path in TUTORIALS:
        assert page.count(f"({path.name})") == 2, "the title and the picture link to it"
        assert (tmp_path / "pictures" / f"{path.stem}.png").stat().st_size > 1_000


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "explanation").glob("*.md")), ids=lambda page: page.stem)
def test_no_page_of_explanation_is_long(page, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    from words import MOST, words

    assert words(page) <= MOST


@pytest.mark.parametrize("path", sorted((ROOT / "docs" / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_example_runs(path, tmp_path):
    if path.stem == "parquet":
        pytest.importorskip("pyarrow")
    launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if path.stem == "several_processes" else []
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", *launch, str(path)],
        cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"accuracy\D*([01]\.\d+)", done.stdout)[1]) > 0.8
    assert path.stem != "your_own" or "checks passed" in done.stdout


def test_numbers_on_a_page_may_differ_in_their_last_digits_only():
    page = "```python\nprint('λ = 8.4e-06: 0.94, n = 5')\n```\n\n```output\nλ = 8.3e-06: 0.92, n = {}\n```\n"
    run_page(page.format(5), "page")
    for wrong in (page.format(6), page.format(5).replace("8.3e-06", "8.3e-05"), page.format(5).replace("0.92", "0.98")):
        with pytest.raises(AssertionError, match="where the page says"):
            run_page(wrong, "page")


# --- figures on several pages -----------------------------------------------------------------------------------------


THREE_DIGITS = re.compile(r"(?<![\w.,/:])(?:[1-9]\d*\.\d{2,}|[1-9]\d+\.\d|0\.0*[1-9]\d{2,})(?![\w.]?\d|<!--)")
"""A number of three digits and more, which does not stand on two pages by chance, unless it is one of these:"""
BY_CHANCE = {"2.24", "18.4"}


def numbers(text: str) -> set[str]:
    """Unmarked numbers of three digits and more outside of code."""
    text = re.sub(r"^(`{3,}).*?^\1", " ", text, flags=re.DOTALL | re.MULTILINE)
    return set(THREE_DIGITS.findall(text))


def test_marked_figures_are_those_of_the_file():
    values, found = figures.stored(), list(figures.marked())
    assert set(values) == set(figures.FIGURES) == {name for _, name, _ in found}
    assert [(page, name, value) for page, name, value in found if values[name] != value] == []
    for name in values:
        assert len({page for page, other, _ in found if other == name}) > 1, f"{name} needs no name: one page has it"


def test_no_page_copies_a_measured_figure_by_hand():
    """The section ``replication`` has the measurements; a number of it on another page is marked in both."""
    measured, elsewhere = set(), {}
    for page in [ROOT / "README.md", *figures.pages()]:
        found = numbers(page.read_text(encoding="utf-8"))
        if "replication" in page.parts:
            measured |= found
        else:
            elsewhere[page.name] = found
    copied = {name: found & measured - BY_CHANCE for name, found in elsewhere.items() if found & measured - BY_CHANCE}
    assert copied == {}, "give it a name in docs/figures.py, or a link in place of the number"
