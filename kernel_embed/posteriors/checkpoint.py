"""Chains on disk while they run: what an interruption leaves, and what goes on from there."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from ..learning.checkpoint import load_checkpoint, save_checkpoint

SECONDS_BETWEEN = 10.0
"""Between two writings of a chain."""


class Checkpoint(NamedTuple):
    """Where chains are written, a file for each, and for which posterior.

    Attributes:
        path: of the files, which have the number of their chain behind it.
        identity: what a file must agree on to belong to this posterior.

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
        """What was written; ``None`` where there is no file."""
        return load_checkpoint(self.path, **self.identity)

    def is_due(self) -> bool:
        """Whether the last writing was long enough ago."""
        return time.monotonic() - self.written >= SECONDS_BETWEEN

    def write(self, content: Mapping[str, object]) -> None:
        """Write it whole or not at all."""
        self.written = time.monotonic()
        save_checkpoint(self.path, {**self.identity, **content})
