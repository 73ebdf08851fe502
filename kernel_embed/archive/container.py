"""The file itself: a zip of one manifest and plain arrays, checked as a whole before any of it is used.

A file starts with ``manifest.json``, followed by one ``.npy`` member for each array. Members are stored without
compression, so that no file can expand to more than its own size. The zip comment holds the SHA-256 of all bytes before
it: one changed bit anywhere is an error. NumPy opens the arrays with ``numpy.load``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pathlib
import re
import stat
import zipfile
from collections.abc import Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from ..files import UNREADABLE, read_npy, write_whole

FORMAT = 3
MANIFEST = "manifest.json"
MARK = b"sha256:"
DIGEST = 64
MAX_BYTES = 2**32
"""The default size limit of files: 4 GiB."""
MAX_MEMBERS = 100_000
MAX_ELEMENTS = 4_000_000
"""The largest number of values in a manifest, because files may be untrusted."""
ARRAY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
OLD_MEMBERS = (b"description.json", b"settings.npy", b"/data.pkl")
"""Members of earlier formats."""


def write(path: str | os.PathLike[str], kind: str, content: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write a manifest and its arrays to ``path``, whole or not at all.

    Args:
        path: the file.
        kind: what the file holds, such as ``"model"``; a reader asks for one kind.
        content: JSON.
        arrays: by name.
    """
    text = json.dumps({"format": FORMAT, "kind": kind, **content}, allow_nan=False, separators=(",", ":")).encode()

    def save(file: IO[Any]) -> None:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.comment = MARK + bytes(DIGEST)
            archive.writestr(zipfile.ZipInfo(MANIFEST), text)
            for name, array in arrays.items():
                buffer = io.BytesIO()
                np.save(buffer, array, allow_pickle=False)
                archive.writestr(zipfile.ZipInfo(f"{name}.npy"), buffer.getbuffer())
        size = file.tell()
        digest = _digest(file, size - DIGEST)
        file.seek(size - DIGEST)
        file.write(digest)

    write_whole(path, save, "w+b")


def read(
    path: str | os.PathLike[str], kind: str, max_bytes: int | None = MAX_BYTES, max_elements: int | None = MAX_ELEMENTS
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest and the arrays that :func:`write` wrote.

    Args:
        path: the file.
        kind: what it must hold.
        max_bytes: the largest file that is read; ``None`` for any.
        max_elements: the most values in its manifest; ``None`` for any.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, too large, or not such a file.
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"A path must be a str or a pathlib.Path, not {path!r}.")
    place = pathlib.Path(path)
    try:
        status = place.stat()
    except FileNotFoundError:
        raise FileNotFoundError(f"File not found: {place}. Check the path.") from None
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{place} is not a regular file. Give the path of a file that kernel_embed wrote.")
    if max_bytes is not None and status.st_size > max_bytes:
        raise ValueError(
            f"{place} has {status.st_size:,} bytes, more than max_bytes={max_bytes:,}. If you trust it, give more."
        )
    with place.open("rb") as file:
        _check_whole(file, status.st_size, place, kind)
        try:
            return _members(file, status.st_size, kind, max_elements)
        except (*UNREADABLE, OSError) as error:
            raise ValueError(f"{place} is not a valid {kind} file. {error}") from error


def _digest(file: IO[bytes], size: int) -> bytes:
    """The SHA-256 of the first ``size`` bytes, in hexadecimal."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0 and (piece := file.read(min(size, 2**20))):
        digest.update(piece)
        size -= len(piece)
    return digest.hexdigest().encode()


def _check_whole(file: IO[bytes], size: int, place: pathlib.Path, kind: str) -> None:
    if file.read(30 + len(MANIFEST))[30:] != MANIFEST.encode():
        file.seek(max(0, size - 2**16))
        tail = file.read()
        if any(name in tail for name in OLD_MEMBERS):
            raise ValueError(
                f"{place} was written by an earlier development version of kernel_embed, or is not a {kind} file. "
                "Fit and save again."
            )
        raise ValueError(f"{place} is not a {kind} file of kernel_embed, or it is damaged. Check the path.")
    file.seek(max(0, size - DIGEST - len(MARK)))
    mark, written = file.read(len(MARK)), file.read()
    if mark != MARK or _digest(file, size - DIGEST) != written:
        raise ValueError(f"{place} is damaged or incomplete: its checksum does not match. Copy or write it again.")


def _members(
    file: IO[bytes], size: int, kind: str, max_elements: int | None
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    with zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        names = [member.filename for member in members]
        if len(members) > MAX_MEMBERS or len(set(names)) != len(names) or names[0] != MANIFEST:
            raise ValueError("Its list of members is wrong.")
        if any(m.compress_type != zipfile.ZIP_STORED or m.file_size != m.compress_size for m in members):
            raise ValueError("A member is compressed.")
        if sum(member.file_size for member in members) > size:
            raise ValueError("Its members are larger than the file.")
        content = _manifest(archive.read(members[0]), kind, max_elements)
        arrays = {}
        for member in members[1:]:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or not ARRAY_NAME.fullmatch(name):
                raise ValueError(f"The member {member.filename[:80]!r} does not belong there.")
            with archive.open(member) as stream:
                arrays[name] = read_npy(stream, member.file_size, name)
        return content, arrays


def _manifest(text: bytes, kind: str, max_elements: int | None) -> dict[str, Any]:
    if max_elements is not None and sum(map(text.count, (b",", b"[", b"{"))) > max_elements:
        raise ValueError(f"Its manifest has more than {max_elements:,} values.")
    content = json.loads(text, parse_int=_integer, parse_constant=_no_constant)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("It was written in the format of another version of kernel_embed.")
    if content.get("kind") != kind:
        raise ValueError(f"It is a {content.get('kind')!s:.40} file{READERS.get(str(content.get('kind')), '')}.")
    return content


READERS = {
    "model": ", which ke.load reads",
    "posterior": ", which is read by load_posterior",
    "checkpoint": ", which fit(checkpoint=…) and sample_posterior(checkpoint=…) read",
}


def _integer(text: str) -> int:
    if len(text) > 40:
        raise ValueError("A number has too many digits.")
    return int(text)


def _no_constant(text: str) -> None:
    raise ValueError(f"The manifest holds {text}, which is not JSON.")
