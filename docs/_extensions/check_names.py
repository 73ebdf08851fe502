"""A check when the pages are built: every public name of the package is on the API page."""

from __future__ import annotations

import types
from typing import Any

from sphinx.application import Sphinx
from sphinx.util import logging

import kernel_embed

logger = logging.getLogger(__name__)


def check(app: Sphinx, env: Any) -> None:
    """Warn of names in ``kernel_embed.__all__`` that no page describes."""
    described = env.domains["py"].objects
    for name in kernel_embed.__all__:
        if not isinstance(getattr(kernel_embed, name), types.ModuleType) and f"kernel_embed.{name}" not in described:
            logger.warning("kernel_embed.%s is public but not on the API page", name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Check when all pages are read."""
    app.connect("env-check-consistency", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
