"""Files made by an attacker: valid checksums around any content."""

from __future__ import annotations

import hashlib
import io
import pathlib
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

import kernel_embed as ke
from kernel_embed import files
from kernel_embed.archive import versions

HEADERS = {
    "too large": "{'descr': '<f8', 'fortran_order': False, 'shape': (1000000000000,), }",
    "too small": "{'descr': '<f8', 'fortran_order': False, 'shape': (1,), }",
    "negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-2,), }",
    "twice negative": "{'descr': '<f8', 'fortran_order': False, 'shape': (-1, -2), }",
    "beyond integers": "{'descr': '<f8', 'fortran_order': False, 'shape': (0, 10000000000000000000000), }",
    "of text": "{'descr': '<f8', 'fortran_order': False, 'shape': ('a',), }",
    "of objects": "{'descr': '|O', 'fortran_order': False, 'shape': (2,), }",
    "of structures": "{'descr': [('a', '|O')], 'fortran_order': False, 'shape': (2,), }",
    "of nothing": "{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000000,), }",
    "a call": "__import__('os').system('touch sentinel')",
    "empty": "",
}
"""Headers of ``.npy`` files that do not fit 16 bytes of numbers."""


def forge(path: pathlib.Path, node: Any, arrays: Mapping[str, Any] | None = None, kind: str = "model") -> pathlib.Path:
    """A file whose manifest describes ``node``."""
    content = {"kernel_embed": ke.__version__, "libraries": versions(), "sources": {}, "content": node}
    files.write_sealed(path, kind, content, arrays or {})
    return path


def manifest(node: str = "1", kind: str = "model") -> bytes:
    """A manifest with the JSON text ``node``."""
    return f'{{"format":3,"kind":"{kind}","kernel_embed":"{ke.__version__}","content":{node}}}'.encode()


def sealed(members: Sequence[tuple[str, bytes]], compression: int = zipfile.ZIP_STORED) -> bytes:
    """The bytes of a zip of ``members`` with the checksum that a reader expects."""
    buffer = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", compression) as archive:
        warnings.simplefilter("ignore")  # a name that is there twice
        archive.comment = files.MARK + bytes(files.DIGEST)
        for name, data in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = compression
            archive.writestr(info, data)
    return seal(buffer.getvalue())


def seal(whole: bytes) -> bytes:
    """The same bytes with a checksum that fits."""
    whole = whole[: -files.DIGEST]
    return whole + hashlib.sha256(whole).hexdigest().encode()


def npy(header: str, payload: bytes = b"", version: tuple[int, int] = (1, 0)) -> bytes:
    """A ``.npy`` member with any header."""
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY" + bytes(version) + len(text).to_bytes(2, "little") + text + payload


def pickled() -> bytes:
    """A ``.npy`` member with a pickle."""
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    return buffer.getvalue()
