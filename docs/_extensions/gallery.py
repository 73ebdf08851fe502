"""The tutorial index: a card for each notebook, with its title, first sentences, one of its own pictures, and
downloads as notebook and script.

A notebook names its picture by number in its metadata (``"picture": 2`` is the third); the first is the default.
"""

from __future__ import annotations

import base64
import json
import pathlib
import re
from typing import Any


def write_gallery(notebooks: list[pathlib.Path], folder: pathlib.Path) -> None:
    """Write ``gallery.md`` and ``pictures/*.png`` into ``folder``."""
    pictures = folder / "pictures"
    pictures.mkdir(exist_ok=True)
    cards = []
    for path in notebooks:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        title, words = _title_and_words(notebook)
        card = [f"### [{title}]({path.name})", "", words]
        found = _pictures(notebook)
        if found:
            number = min(notebook["metadata"].get("picture", 0), len(found) - 1)
            (pictures / f"{path.stem}.png").write_bytes(base64.b64decode(found[number]))
            card[1:1] = ["", f"[![{title}](pictures/{path.stem}.png)]({path.name})"]
        (pictures / f"{path.stem}.py").write_text(_script(notebook), encoding="utf-8")
        card += [
            "",
            f"Download as {{download}}`notebook <{path.name}>` or {{download}}`script <pictures/{path.stem}.py>`.",
        ]
        cards.append("\n".join(["::::{container} tutorial", *card, "", "::::"]))
    (folder / "gallery.md").write_text("\n\n".join(cards) + "\n", encoding="utf-8")


def _title_and_words(notebook: dict[str, Any]) -> tuple[str, str]:
    text = "".join(next(cell["source"] for cell in notebook["cells"] if cell["cell_type"] == "markdown"))
    heading, _, rest = text.strip().partition("\n")
    paragraph = re.split(r"\n\s*\n", rest.strip())[0].replace("\n", " ")
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z*`])", paragraph)
    return heading.lstrip("# ").strip(), " ".join(sentences[:3])


def _script(notebook: dict[str, Any]) -> str:
    """The notebook as a program in percent format, which editors open as cells; magics become comments."""
    parts = []
    for cell in notebook["cells"]:
        if "remove-cell" in cell["metadata"].get("tags", ()):
            continue  # assertions, for the tests
        lines = "".join(cell["source"]).splitlines()
        if cell["cell_type"] == "markdown":
            parts.append("\n".join(["# %% [markdown]", *(f"# {line}".rstrip() for line in lines)]))
        else:
            parts.append("\n".join(["# %%", *(f"# {line}" if line.startswith("%") else line for line in lines)]))
    return "\n\n".join(parts) + "\n"


def _pictures(notebook: dict[str, Any]) -> list[str]:
    outputs = (o for cell in notebook["cells"] if cell["cell_type"] == "code" for o in cell["outputs"])
    return ["".join(o["data"]["image/png"]) for o in outputs if "image/png" in o.get("data", {})]


def setup(app: Any) -> dict[str, Any]:
    """Nothing to register: ``conf.py`` calls :func:`write_gallery` before Sphinx reads the pages."""
    return {"parallel_read_safe": True}
