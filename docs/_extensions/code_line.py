"""The role ``{line}``, which names one line of code by its text, so that it cannot go stale.

``{line}`kernel_embed.linalg: V = torch.cholesky_solve(Y, factor)` `` becomes a small link, *in code*, to that line
of the source; place and text are its tooltip. The text must occur on exactly one line of the module: otherwise the
build warns, and a build with warnings as errors fails.
"""

from __future__ import annotations

import importlib.util
import pathlib
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxRole


def find_line(module: str, text: str) -> int:
    """The number of the only line of ``module`` that contains ``text``."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(f"there is no module {module}")
    lines = pathlib.Path(spec.origin).read_text(encoding="utf-8").splitlines()
    found = [number for number, line in enumerate(lines, start=1) if text in line]
    if len(found) != 1:
        raise LookupError(f"expected one line with {text!r} in {module}, found {len(found)}: {found}")
    return found[0]


class LineRole(SphinxRole):
    """``{line}`module: text` ``."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """A literal of place and text."""
        module, _, text = self.text.partition(":")
        module, text = module.strip(), text.strip()
        try:
            number = find_line(module, text)
        except LookupError as error:
            message = self.inliner.reporter.warning(f"stale reference to code: {error}", line=self.lineno)
            return [nodes.literal(text, text)], [message]
        place = f"{module.replace('.', '/')}.py:{number}"
        reference = pending_xref(
            "", refdomain="", reftype="code_line", reftarget=place, refdoc=self.env.docname, refexplicit=True
        )
        reference["module"], reference["number"] = module, number
        reference += nodes.inline("in code", "in code", classes=["code-place"])
        shown = nodes.inline("", "", reference, classes=["code-line"])
        shown["code_title"] = f"{place}: {text}"
        return [shown], []


def resolve(app: Sphinx, env: Any, node: pending_xref, contnode: nodes.TextElement) -> nodes.Element | None:
    """A link into the page that viewcode makes of the module, to the innermost documented object around the line."""
    if node["reftype"] != "code_line":
        return None
    entry = getattr(env, "_viewcode_modules", {}).get(node["module"])
    if not entry or app.builder.format != "html":
        return contnode
    _, tags, used, _ = entry
    around = [name for name in used if tags[name][1] <= node["number"] <= tags[name][2]]
    anchor = "#" + min(around, key=lambda name: tags[name][2] - tags[name][1]) if around else ""
    page = "_modules/" + node["module"].replace(".", "/")
    uri = app.builder.get_relative_uri(node["refdoc"], page) + anchor
    title = node.parent.get("code_title", "")
    return nodes.reference("", "", contnode, internal=True, refuri=uri, reftitle=title)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the role."""
    app.add_role("line", LineRole())
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
