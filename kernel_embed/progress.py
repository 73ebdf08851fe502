"""Progress bars: on a terminal or in a notebook, never in a pipe."""

from __future__ import annotations

import importlib.util
import sys
from types import TracebackType
from typing import Protocol


class ProgressBar(Protocol):
    """The part of a tqdm bar that is used here.

    Example:
        >>> from kernel_embed.progress import progress_bar
        >>> with progress_bar(10, "sampling", show=False) as bar:
        ...     _ = bar.update(3)
    """

    n: int
    """Steps so far."""

    total: int | None
    """Steps in all."""

    def __enter__(self) -> ProgressBar:
        """Show it."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Remove it."""

    def update(self, n: int = 1) -> object:
        """Advance by ``n`` steps."""

    def reset(self, total: int | None = None) -> None:
        """Start again, with ``total`` steps."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Set the text after the bar."""


def progress_bar(total: int | None, description: str, show: bool | None = None) -> ProgressBar:
    """A tqdm bar; ``show=None`` shows it on a terminal or in a notebook."""
    if show is None:
        show = _in_notebook() or sys.stderr.isatty()
    if show and _in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as bar
    else:
        from tqdm import tqdm as bar
    shown: ProgressBar = bar(total=total, desc=description, disable=not show, leave=False, dynamic_ncols=True)
    return shown


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and running.__class__.__name__ == "ZMQInteractiveShell"
