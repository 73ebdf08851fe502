"""The reference: a table of names on the page of each module, and a page for each name.

A page of ``docs/reference`` lists names of the package in blocks, with the members that get an entry::

    ```{objects}
    default_kernel
    kernels.SupDiagonal: alpha

    MulticlassEmbedding: attach, condition; bases
    ```

``*`` stands for all members, ``; bases`` shows the base classes. Names without an empty line between them belong
together, and each page links the others under *See also*, and every page and tutorial that uses the name.
"""

from __future__ import annotations

import importlib
import inspect
import pathlib
import re
from typing import Any, NamedTuple

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

BLOCK = re.compile(r"^```\{objects\}\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
FOLDER = "objects"
MOST_USES = 8


class Entry(NamedTuple):
    """A name of the package and how its page shows it."""

    name: str
    members: str
    bases: bool
    family: tuple[str, ...]

    @property
    def value(self) -> Any:
        """The object itself."""
        return find(self.name)

    @property
    def summary(self) -> str:
        """The first sentence of its docstring, as Markdown."""
        return first_sentence(inspect.getdoc(self.value) or "")


def find(name: str) -> Any:
    """The object with this dotted name."""
    parts = name.split(".")
    value: Any = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        value = getattr(value, part) if hasattr(value, part) else importlib.import_module(".".join(parts[:i]))
    return value


def parse(block: str) -> list[Entry]:
    """The entries of one block."""
    entries = []
    for group in re.split(r"\n\s*\n", block.strip()):
        lines = [line.partition(":") for line in group.splitlines()]
        names = tuple(f"kernel_embed.{name.partition(';')[0].strip()}" for name, _, _ in lines)
        for full, (head, _, tail) in zip(names, lines, strict=True):
            members, _, option = (tail if tail else f"{head.partition(';')[1]}{head.partition(';')[2]}").partition(";")
            others = tuple(other for other in names if other != full)
            entries.append(Entry(full, members.strip(), option.strip() == "bases", others))
    return entries


def entries_of(page: str) -> list[Entry]:
    """All entries of the text of a page."""
    return [entry for block in BLOCK.findall(page) for entry in parse(block)]


def first_sentence(doc: str) -> str:
    """The first sentence of a docstring, its roles and literals in Markdown."""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    sentence = re.split(r"(?<=[\w)`’|²])[.:;](?:\s|$)", paragraph)[0].rstrip(".:")
    sentence = re.sub(r":math:`([^`]*)`", r"$\1$", sentence)
    sentence = re.sub(r":\w+:`~?([^`]*)`", lambda m: f"`{m.group(1).split('.')[-1]}`", sentence)
    parts = sentence.replace("``", "`").replace("|", r"\|").split("`")
    parts[::2] = [part.replace("*", r"\*") for part in parts[::2]]  # between literals
    return "`".join(parts)


def write_pages(docs: pathlib.Path, tutorials: list[pathlib.Path]) -> None:
    """Write a page for every name that a page of ``docs/reference`` lists; those that are right are left alone."""
    folder = docs / "reference" / FOLDER
    folder.mkdir(exist_ok=True)
    uses = {
        page.relative_to(docs).with_suffix("").as_posix(): page.read_text(encoding="utf-8")
        for kind in ("start", "how_to", "explanation")
        for page in sorted((docs / kind).glob("*.md"))
    } | {f"tutorials/{path.stem}": path.read_text(encoding="utf-8") for path in tutorials}
    written = set()
    for page in sorted((docs / "reference").glob("*.md")):
        for entry in entries_of(page.read_text(encoding="utf-8")):
            path = folder / f"{entry.name}.rst"
            text = page_of(entry, page.stem, uses)
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                path.write_text(text, encoding="utf-8")
            written.add(path)
    for stale in set(folder.glob("*.rst")) - written:
        stale.unlink()


def page_of(entry: Entry, module: str, uses: dict[str, str]) -> str:
    """The page of one name."""
    short = entry.name.rpartition(".")[2]
    lines = [":orphan:", "", short, "=" * len(short), "", f":doc:`Reference </reference/api>` › :doc:`../{module}`", ""]
    lines += _directive(entry)
    if entry.family:
        lines += [".. rubric:: See also", "", ", ".join(f":py:obj:`~{name}`" for name in entry.family), ""]
    found = [place for place, text in uses.items() if re.search(rf"\b{short}\b", text)]
    if found:
        lines += [".. rubric:: Used in", "", *(f"- :doc:`/{place}`" for place in found[:MOST_USES]), ""]
    return "\n".join(lines)


def _directive(entry: Entry) -> list[str]:
    value = entry.value
    if not isinstance(value, type):
        return [f".. autofunction:: {entry.name}", ""]
    kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
    lines = [f".. {kind}:: {entry.name}"]
    if entry.members:
        lines.append("   :members:" + ("" if entry.members == "*" else f" {entry.members}"))
    if entry.bases:
        lines.append("   :show-inheritance:")
    return [*lines, ""]


class Objects(SphinxDirective):
    """The table of the names of a block, each a link to its page."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """A table of two columns."""
        rows = ["| name | summary |", "|---|---|"]
        rows += [f"| {{py:obj}}`~{entry.name}` | {entry.summary} |" for entry in parse("\n".join(self.content))]
        container = nodes.container(classes=["objects"])
        self.state.nested_parse(StringList(rows, source=self.env.docname), self.content_offset, container)
        return [container]


BACK = re.compile(r'(class="viewcode-back" href="[^"#]*/([\w.]+)\.html#)([\w.]+)"')


def mend_back_links(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.Node | None) -> None:
    """Let ``[docs]`` in a listing of source lead to the entry.

    Sphinx takes one module name for all names of a file, but those of one file may be documented under several.
    """
    if page.startswith("_modules/") and "body" in context:
        context["body"] = BACK.sub(lambda found: f'{found[1]}{anchor_on(found[2], found[3])}"', context["body"])


def anchor_on(page: str, anchor: str) -> str:
    """The anchor of a name, or of a member of it, on the page of that name.

    Example:
        >>> anchor_on("kernel_embed.kernels.Radial", "kernel_embed.kernels.radial.Radial.scaled")
        'kernel_embed.kernels.Radial.scaled'
    """
    short = page.rpartition(".")[2]
    _, name, member = f".{anchor}.".rpartition(f".{short}.")  # the last one: a function may be called as its module
    return f"{page}.{member}".rstrip(".") if name else anchor


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive; ``conf.py`` calls :func:`write_pages` before Sphinx reads the pages."""
    app.add_directive("objects", Objects)
    app.connect("html-page-context", mend_back_links)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
