"""Files that are written whole or not at all."""

from __future__ import annotations

import os
import pathlib
import uuid
from collections.abc import Callable
from typing import IO, Any


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[Any]], object], mode: str = "wb") -> None:
    """Write a file so that a reader, and a run after an interruption, never sees half of it."""
    target = pathlib.Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside the target, because a rename is only atomic within one file system.
    # A name of its own for each writer: threads share a process number.
    temporary = target.with_name(f".{target.name}.{uuid.uuid4().hex}.part")
    try:
        with temporary.open(mode) as file:
            write(file)
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
