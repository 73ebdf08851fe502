"""Formulas as MathML, written when the pages are built: they show in any browser without a script or a network.

``latex2mathml`` converts; what browsers dropped from MathML since (``mathvariant``, ``columnalign``) and what it gets
wrong (space around names of functions, limits below ``sup``, bars that grow) is put right here.
"""

from __future__ import annotations

import html
import re
import xml.etree.ElementTree as ET
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
TAG = re.compile(r"\\tag\{([^}]*)\}")
EXCEPTIONS = {
    "double-struck": {"C": "ℂ", "H": "ℍ", "N": "ℕ", "P": "ℙ", "Q": "ℚ", "R": "ℝ", "Z": "ℤ"},
    "script": {"B": "ℬ", "E": "ℰ", "F": "ℱ", "H": "ℋ", "I": "ℐ", "L": "ℒ", "M": "ℳ", "R": "ℛ"},
}
"""Letters that Unicode had before it had the alphabets."""
CAPITAL = {"bold": 0x1D400, "script": 0x1D49C, "double-struck": 0x1D538, "bold-italic": 0x1D468}
SMALL = {"bold": 0x1D41A, "bold-italic": 0x1D482}
DIGIT = {"bold": 0x1D7CE, "double-struck": 0x1D7D8}
GREEK = {"bold": 0x1D6C2, "bold-italic": 0x1D736}
LIMITS = {"sup", "inf", "max", "min", "argmax", "argmin", "lim", "median"}
BEFORE_SIGN = set("=<>≤≥≈≠([{,:|→∈") | {"\u2264", "\u2265"}
"""After one of these a minus is a sign, not a difference."""


def to_mathml(latex: str, display: str) -> str:
    """The formula as a ``<math>`` element."""
    latex = re.sub(r"\\(begin|end)\{aligned\}", r"\\\1{split}", latex)
    if display == "block" and "\\\\" in latex and r"\begin{" not in latex:
        latex = rf"\begin{{align*}} {latex} \end{{align*}}"
    root = ET.fromstring(_escaped(convert(latex, display=display)))
    for element in list(root.iter()):
        element.tag = element.tag.removeprefix(NAMESPACE)
        _letters(element)
        _columns(element)
        if display == "block":
            _limits(element)
    for element in list(root.iter()):
        _functions(element)
        _signs(element)
        _bars(element)
    root.tail = None
    return ET.tostring(root, encoding="unicode", short_empty_elements=False)


def _escaped(text: str) -> str:
    return re.sub(r"&(?!#?\w+;)", "&amp;", text)


def _letters(element: ET.Element) -> None:
    """A letter of another alphabet, for the attribute that asks for it."""
    variant, text = element.attrib.get("mathvariant"), element.text or ""
    if variant is None or variant == "normal":
        return
    del element.attrib["mathvariant"]
    element.text = "".join(_letter(character, variant) for character in text)


def _letter(character: str, variant: str) -> str:
    known = EXCEPTIONS.get(variant, {}).get(character)
    if known:
        return known
    for alphabet, first, last in ((CAPITAL, "A", "Z"), (SMALL, "a", "z"), (DIGIT, "0", "9"), (GREEK, "α", "ω")):
        if first <= character <= last and variant in alphabet:
            return chr(alphabet[variant] + ord(character) - ord(first))
    return character


def _columns(element: ET.Element) -> None:
    """Alignment of table cells as style."""
    if element.tag == "mtd" and "columnalign" in element.attrib:
        side = element.attrib.pop("columnalign")
        element.attrib["style"] = f"text-align: {side}; padding-{side}: 0" if side != "center" else "text-align: center"
    if element.tag == "mtable":
        for name in ("rowspacing", "columnspacing"):
            element.attrib.pop(name, None)


def _limits(element: ET.Element) -> None:
    """sup, max and the like carry their subscript below."""
    base = element[0] if element.tag == "msub" and len(element) else None
    if base is not None and (base.text or "") in LIMITS:
        element.tag = "munder"


def _functions(parent: ET.Element) -> None:
    """Names of functions: upright, thin space around, none before a bracket or a script."""
    children = list(parent)
    for position, child in enumerate(children):
        name = child.text or ""
        if child.tag not in ("mi", "mo") or len(name) < 2 or not name.isalpha():
            continue
        after = children[position + 1] if position + 1 < len(children) else None
        bracket = after is not None and (after.text or "") in tuple("([{|‖")
        child.tag = "mo"
        child.attrib = {"form": "prefix", "lspace": "0.16em", "rspace": "0" if bracket else "0.16em"}


def _signs(parent: ET.Element) -> None:
    """A minus that is a sign stands close to its number."""
    children = list(parent)
    for before, child in zip([None, *children], children, strict=False):
        first = before is None or (before.tag == "mo" and (before.text or "") in BEFORE_SIGN)
        if child.tag == "mo" and child.text in ("-", "−") and first:
            child.attrib["form"] = "prefix"


def _bars(element: ET.Element) -> None:
    """Norms and absolute values keep their size, unless a larger one was asked for; a slash stands close."""
    text = element.text or ""
    if element.tag == "mo" and text in ("|", "‖"):
        element.attrib["stretchy"] = "true" if "minsize" in element.attrib else "false"
        element.attrib["lspace"] = element.attrib["rspace"] = "0.05em"
    if element.tag == "mo" and text == "/":
        element.attrib["lspace"] = element.attrib["rspace"] = "0.05em"


def visit_math(self: Any, node: nodes.math) -> None:
    """A formula in a line of text."""
    self.body.append(f'<span class="math">{_converted(node, "inline", node.astext())}</span>')
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.math_block) -> None:
    r"""A displayed formula; ``\tag{5}`` puts the paper's equation number at its right."""
    latex = node.astext()
    tag = TAG.search(latex)
    number = tag.group(1) if tag else node.get("number")
    anchor = f' id="{node["ids"][0]}"' if node.get("ids") else ""
    self.body.append(f'<div class="math-display"{anchor}>{_converted(node, "block", TAG.sub("", latex))}')
    if number:
        self.body.append(f'<span class="math-number">({number})</span>')
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _converted(node: nodes.Node, display: str, latex: str) -> str:
    try:
        answer = to_mathml(latex, display)
    except Exception as error:  # the converter has no common base class for what it raises
        logger.warning("formula %r could not be converted: %r", latex, error, location=node)
        return f"<code>{html.escape(latex)}</code>"
    unknown = re.findall(r"\\[A-Za-z]+", answer) or ("&amp;" in answer and ["&"])
    if unknown:
        logger.warning("formula %r has what the converter does not know: %s", latex, unknown, location=node)
    return answer


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
