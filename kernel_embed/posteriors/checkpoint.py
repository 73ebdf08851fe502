"""Files of running chains, from which an interrupted call resumes."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..learning.checkpoint import load_checkpoint, save_checkpoint

SECONDS_BETWEEN = 10.0
"""Between two writes of a chain."""


class Checkpoint(NamedTuple):
    """The files of the chains of one posterior.

    Attributes:
        path: of the files; the number of the chain is appended.
        identity: settings that a file must have to belong to this posterior.

    Example:
        >>> Checkpoint("chains.pt", {"objective": "EmbeddingEvidence()"}).file(2).path
        'chains.pt.2'
    """

    path: str
    identity: Mapping[str, object]

    def file(self, chain: int) -> ChainFile:
        """The file of one chain."""
        return ChainFile(f"{os.fspath(self.path)}.{chain}", {**self.identity, "chain": chain})


class ChainFile:
    """The file of one chain; see :class:`Checkpoint`."""

    def __init__(self, path: str, identity: Mapping[str, object]) -> None:
        self.path, self.identity, self.written = path, identity, time.monotonic()

    def read(self) -> dict[str, Any] | None:
        """The content; ``None`` if there is no file."""
        return load_checkpoint(self.path, **self.identity)

    def is_due(self) -> bool:
        """Whether the last write was long enough ago."""
        return time.monotonic() - self.written >= SECONDS_BETWEEN

    def write(self, content: Mapping[str, object]) -> None:
        """Replace the file as a whole."""
        self.written = time.monotonic()
        save_checkpoint(self.path, {**self.identity, **content})
