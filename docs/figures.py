"""Figures that stand on more than one page, from one file, ``figures.json``, that a command writes.

In a page such a figure is followed by its name in a comment, which no reader sees: ``1.44<!-- evidence-maximum -->``.

    kernel-embed reproduce two-sample --out DIR    # and witness
    python docs/figures.py DIR/results.json        # takes the figures it knows from the records, and sets the pages
"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections.abc import Callable, Iterator

from words import pages

ROOT = pathlib.Path(__file__).parent
STORE = ROOT / "figures.json"
MARKED = re.compile(r"([\d.,]+)<!-- ([a-z-]+) -->")

Records = list[dict[str, object]]


def of_grid(kind: str, place: int) -> Callable[[Records], str]:
    """A lengthscale of the records of ``kernel-embed reproduce two-sample``, in three digits."""

    def figure(records: Records) -> str:
        chosen = [float(str(r["lengthscale"])) for r in records if r.get("experiment") == "grid" and r["kind"] == kind]
        return f"{chosen[place]:#.3g}"

    return figure


def between_modes(records: Records) -> str:
    """Nats between the two maxima of the records of ``kernel-embed reproduce witness``."""
    values = [
        float(str(r["log_evidence"])) for r in records if r["experiment"] == "mixtures" and r["kind"] == "maximum"
    ]
    return f"{values[0] - values[1]:.0f}"


FIGURES: dict[str, Callable[[Records], str]] = {
    "evidence-maximum": of_grid("maximum", 0),
    "evidence-local-maximum": of_grid("maximum", 1),
    "evidence-median": of_grid("median", 0),
    "mode-difference": between_modes,
}
"""What each figure is in the records of its command."""


def stored() -> dict[str, str]:
    """The figures by name."""
    values: dict[str, str] = json.loads(STORE.read_text(encoding="utf-8"))
    return values


def marked() -> Iterator[tuple[pathlib.Path, str, str]]:
    """Page, name and value of every marked figure."""
    for page in pages():
        for value, name in MARKED.findall(page.read_text(encoding="utf-8")):
            yield page, name, value


def set_in_pages(values: dict[str, str]) -> None:
    """Write the figures where their names stand."""
    for page in pages():
        text = page.read_text(encoding="utf-8")
        new = MARKED.sub(lambda match: f"{values[match[2]]}<!-- {match[2]} -->", text)
        if new != text:
            page.write_text(new, encoding="utf-8")


def main(paths: list[str]) -> None:
    """Take the figures that the records of ``paths`` have, and set all in the pages."""
    values = stored() if STORE.exists() else {}
    for path in paths:
        records = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        for name, figure in FIGURES.items():
            try:
                values[name] = figure(records)
            except (IndexError, KeyError):
                continue  # of another command
    STORE.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    set_in_pages(values)


if __name__ == "__main__":
    main(sys.argv[1:])
