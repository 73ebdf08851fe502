"""Links to the objects of the libraries below, made from their names alone, so that no build asks the network.

Each library lays its documentation out by a rule. A name that no rule covers stays text.
"""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx

GPYTORCH = "https://docs.gpytorch.ai/en/stable"
TORCH = "https://docs.pytorch.org/docs/stable"
PYRO = "https://docs.pyro.ai/en/stable"

RULES: tuple[tuple[str, str], ...] = (
    (r"gpytorch\.(?:(?P<page>kernels|priors|constraints|distributions)\.)(?:\w+\.)*(?P<name>\w+)",
     GPYTORCH + r"/\g<page>.html#gpytorch.\g<page>.\g<name>"),
    (r"gpytorch\.(?:module\.)?Module", GPYTORCH + "/module.html"),
    (r"torch\.Tensor", TORCH + "/tensors.html#torch.Tensor"),
    (r"torch\.nn\.(?:modules\.\w+\.)?(?P<name>\w+)", TORCH + r"/generated/torch.nn.\g<name>.html"),
    (r"torch\.optim\.(?P<name>[A-Z]\w+)", TORCH + r"/generated/torch.optim.\g<name>.html"),
    (r"torch\.utils\.data\.(?:\w+\.)*(?P<name>[A-Z]\w+)", TORCH + r"/data.html#torch.utils.data.\g<name>"),
    (r"pyro\.infer\.autoguide\.(?:\w+\.)*(?P<name>\w+)", PYRO + "/infer.autoguide.html"),
    (r"pyro\.infer\.mcmc\.(?:\w+\.)*(?P<name>\w+)", PYRO + "/mcmc.html"),
    (r"sklearn\.(?P<name>\w+(?:\.\w+)*\.[A-Z]\w+)",
     r"https://scikit-learn.org/stable/modules/generated/sklearn.\g<name>.html"),
    (r"numpy\.(?P<name>ndarray|random\.Generator)",
     r"https://numpy.org/doc/stable/reference/generated/numpy.\g<name>.html"),
    (r"pathlib\.(?P<name>Path)", r"https://docs.python.org/3/library/pathlib.html#pathlib.\g<name>"),
    (r"collections\.abc\.(?P<name>\w+)",
     r"https://docs.python.org/3/library/collections.abc.html#collections.abc.\g<name>"),
)  # fmt: skip
"""Patterns of whole names, and the addresses they lead to."""


def address(name: str) -> str | None:
    """Where the documentation of ``name`` is, or ``None``."""
    for pattern, target in RULES:
        found = re.fullmatch(pattern, name)
        if found:
            return found.expand(target)
    return None


def resolve(app: Sphinx, env: Any, node: pending_xref, contnode: nodes.TextElement) -> nodes.Element | None:
    """A link out of the pages, for names of Python that this package does not describe."""
    target = address(node.get("reftarget", "")) if node.get("refdomain") == "py" else None
    if target is None:
        return None
    return nodes.reference("", "", contnode, internal=False, refuri=target, reftitle=node["reftarget"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Answer for what nobody else resolves."""
    app.connect("missing-reference", resolve, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
