"""Progress bars: on a terminal or in a notebook, never in a pipe."""

from __future__ import annotations

import sys
from typing import Any


def progress_bar(total: int | None, description: str, show: bool | None = None) -> Any:
    """A tqdm bar; ``show=None`` shows it where somebody is looking: a terminal or a notebook."""
    if show is None:
        show = _in_notebook() or sys.stderr.isatty()
    if show and _in_notebook() and _has_widgets():
        from tqdm.notebook import tqdm as bar
    else:
        from tqdm import tqdm as bar
    return bar(total=total, desc=description, disable=not show, leave=False, dynamic_ncols=True)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and running.__class__.__name__ == "ZMQInteractiveShell"


def _has_widgets() -> bool:
    import importlib.util

    return importlib.util.find_spec("ipywidgets") is not None
