"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Callable
from typing import IO, Any


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[Any]], object], mode: str = "wb") -> None:
    """Write a file so that a reader, and a run after an interruption, never sees half of it."""
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=target.name, suffix=".part")
    try:
        with os.fdopen(handle, mode) as file:
            write(file)
        os.replace(temporary, target)
    except BaseException:
        pathlib.Path(temporary).unlink(missing_ok=True)
        raise
