"""Progress: a bar on a terminal, lines in the log of a long command, and one numerical warning for a search."""

from __future__ import annotations

import contextlib
import contextvars
import importlib.util
import re
import sys
import time
import warnings
from collections.abc import Iterator
from types import TracebackType
from typing import Protocol

from linear_operator.utils.warnings import NumericalWarning

_COLLECTED: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("collected", default=None)


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


class ProgressLog:
    """Progress as plain lines on the error stream: one after ten seconds, later ones a twentieth of the time apart."""

    FIRST, SHARE = 10.0, 0.05

    def __init__(self, total: int | None, description: str) -> None:
        self.n, self.total, self._description, self._text = 0, total, description, ""
        self._start = self._last = time.monotonic()

    def __enter__(self) -> ProgressLog:
        """Nothing to show yet."""
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to remove."""

    def update(self, n: int = 1) -> None:
        """Count ``n`` steps, and print a line if it is time."""
        self.n += n
        now = time.monotonic()
        if now - self._last >= max(self.FIRST, self.SHARE * (now - self._start)):
            self._last = now
            count = self.n if self.total is None else f"{self.n} of {self.total}"
            text = f" ({self._text})" if self._text else ""
            line = f"{self._description}: {count}{text}, {now - self._start:.0f} s"
            print(printable(line), file=sys.stderr, flush=True)

    def reset(self, total: int | None = None) -> None:
        """Start again, with ``total`` steps."""
        self.n, self.total = 0, total

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        """Set the text of the next line."""
        self._text = s


def progress_bar(total: int | None, description: str, show: bool | None = None, log: bool = False) -> ProgressBar:
    """A tqdm bar; ``show=None`` shows it on a terminal or in a notebook, and with ``log`` prints lines elsewhere."""
    if show is None:
        show = _in_notebook() or sys.stderr.isatty()
        if log and not show:
            return ProgressLog(total, description)
    if show and _in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm as bar
    else:
        from tqdm import tqdm as bar
    shown: ProgressBar = bar(total=total, desc=description, disable=not show, leave=False, dynamic_ncols=True)
    return shown


def printable(text: str) -> str:
    """``text`` without control characters: names in a table must not move the cursor or set the title of a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)


def _in_notebook() -> bool:
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return running is not None and running.__class__.__name__ == "ZMQInteractiveShell"


def warn_numerical(message: str, stacklevel: int = 2) -> None:
    """A ``NumericalWarning``, or an entry in the list of :func:`collected_warnings`."""
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(message, NumericalWarning, stacklevel=stacklevel + 1)
    else:
        collected.append(message)


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect numerical warnings instead of showing them: a search visits points that it leaves again."""
    messages: list[str] = []
    token = _COLLECTED.set(messages)
    try:
        yield messages
    finally:
        _COLLECTED.reset(token)
