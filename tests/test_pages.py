"""Figures that stand on more than one page come from one file; see ``docs/figures.py``."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path.append(str(ROOT / "docs"))

import figures  # noqa: E402 — it is beside the pages, which the line above makes known

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
