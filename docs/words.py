"""The pages of the documentation with the words of each: ``python docs/words.py``.

Words are those a reader reads: code, formulas, targets of links and roles that tie a formula to a line do not count.
"""

from __future__ import annotations

import pathlib
import re

ROOT = pathlib.Path(__file__).parent
MOST = 1500
"""Words that a page of explanation may have."""


def prose(text: str) -> str:
    """The text of a page without code, formulas and roles."""
    text = re.sub(r"^(`{3,}|:{3,}).*?^\1", " ", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<!--.*?-->", " ", text, flags=re.DOTALL)
    text = re.sub(r"\$\$.*?\$\$", " ", text, flags=re.DOTALL)
    text = re.sub(r"\{line\}`[^`]*`", " ", text)
    text = re.sub(r"\{[\w:]+\}`([^`<]*)[^`]*`", r" \1 ", text)
    text = re.sub(r"\$[^$\n]*(?:\n[^$\n]*)?\$", " x ", text)
    return re.sub(r"\]\([^)]*\)", "]", text)


def words(path: pathlib.Path) -> int:
    """The number of words on a page."""
    return len(re.findall(r"[^\W_][\w'’.,-]*", prose(path.read_text(encoding="utf-8"))))


def pages() -> list[pathlib.Path]:
    """Every page that is written by hand, in the order of the sections."""
    skipped = {"_build", "jupyter_execute"}
    found = [path for path in ROOT.rglob("*.md") if not skipped & set(path.parts) and path.name != "gallery.md"]
    return sorted(found, key=lambda path: (len(path.relative_to(ROOT).parts) > 1, str(path)))


if __name__ == "__main__":
    for page in pages():
        print(f"{words(page):6d}  {page.relative_to(ROOT)}")
