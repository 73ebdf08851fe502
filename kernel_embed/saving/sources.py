"""Which state of this package wrote a file: between two releases the version alone does not tell."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

PACKAGE = __name__.partition(".")[0]


def modules_of(kinds: Iterable[type]) -> set[str]:
    """The modules of this package that ``kinds`` and their bases are defined in.

    Example:
        >>> from kernel_embed import EmpiricalRisk
        >>> sorted(modules_of([EmpiricalRisk, dict]))
        ['kernel_embed.objectives.base', 'kernel_embed.objectives.risk']
    """
    defined = {base.__module__ for kind in kinds for base in kind.__mro__}
    return {name for name in defined if name.startswith(f"{PACKAGE}.")}


def checksums(names: Iterable[str]) -> dict[str, int]:
    """A checksum of the source of every module that is loaded and has one.

    Example:
        >>> list(checksums(["kernel_embed.saving.sources", "kernel_embed.no_such_module"]))
        ['kernel_embed.saving.sources']
    """
    found = {}
    for name in sorted(names):
        loader: Any = getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None)
        source = loader.get_source(name) if hasattr(loader, "get_source") else None
        if source is not None:
            found[name] = zlib.crc32(source.encode())
    return found


def changed(saved: Mapping[str, int]) -> list[str]:
    """The modules whose source is another than when ``saved`` was taken, or that are gone.

    Example:
        >>> changed(checksums(["kernel_embed.saving.sources"])), changed({"kernel_embed.saving.sources": 0})
        ([], ['kernel_embed.saving.sources'])
    """
    ours = checksums(saved)
    return [name for name, checksum in saved.items() if ours.get(name) != checksum]
