"""Which versions wrote a file: of the libraries, and of the source of the saved classes."""

from __future__ import annotations

import importlib.metadata
import sys
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

PACKAGE = __name__.partition(".")[0]
LIBRARIES = ("torch", "gpytorch", "linear_operator", "scikit-learn", "numpy")


def versions() -> dict[str, str]:
    """The versions of the libraries below this package.

    Example:
        >>> sorted(versions())[:2]
        ['gpytorch', 'linear_operator']
    """
    return {name: importlib.metadata.version(name).partition("+")[0] for name in LIBRARIES}


def checksums(kinds: Iterable[type]) -> dict[str, int]:
    """A checksum of the source of every module of this package that ``kinds`` and their bases are defined in.

    Between two releases the version alone does not tell whether a class has changed.

    Example:
        >>> from kernel_embed import EmpiricalRisk
        >>> sorted(checksums([EmpiricalRisk, dict]))
        ['kernel_embed.objectives.base', 'kernel_embed.objectives.risk']
    """
    names = {base.__module__ for kind in kinds for base in kind.__mro__}
    return {name: found for name in sorted(names) if (found := _checksum(name)) is not None}


def changed(saved: Mapping[str, object]) -> list[str]:
    """The modules of ``saved``, a result of :func:`checksums`, whose source is different now, or that are gone.

    Example:
        >>> from kernel_embed import EmpiricalRisk
        >>> changed(checksums([EmpiricalRisk])), changed({"kernel_embed.objectives.risk": 0})
        ([], ['kernel_embed.objectives.risk'])
    """
    return [name for name, checksum in saved.items() if _checksum(name) != checksum]


def _checksum(name: str) -> int | None:
    if not name.startswith(f"{PACKAGE}."):
        return None
    loader: Any = getattr(getattr(sys.modules.get(name), "__spec__", None), "loader", None)
    source = loader.get_source(name) if hasattr(loader, "get_source") else None
    return None if source is None else zlib.crc32(source.encode())
