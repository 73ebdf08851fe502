"""Files that are written whole or not at all, and sealed files of a manifest and arrays.

A sealed file is a zip. It starts with ``manifest.json``, followed by one ``.npy`` member for each array. Members are
stored without compression, so that no file can expand to more than its own size. The zip comment holds the SHA-256 of
all bytes before it: one changed bit anywhere is an error. NumPy opens the arrays with ``numpy.load``.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import io
import json
import math
import os
import pathlib
import platform
import re
import stat
import uuid
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

ARRAY_KINDS = "biufcUSmM"
"""Kinds of dtypes that files may hold: numbers, text and dates."""
UNREADABLE = (
    *(ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError, EOFError, SyntaxError),
    *(NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error),
)
"""Errors of damaged or hostile files."""

FORMAT = 3
MANIFEST = "manifest.json"
MARK = b"sha256:"
DIGEST = 64
MAX_BYTES = 2**32
"""The default size limit of sealed files: 4 GiB."""
MAX_MEMBERS = 100_000
MAX_ELEMENTS = 4_000_000
"""The largest number of values in a manifest, because files may be untrusted."""
ARRAY_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")
OLD_MEMBERS = (b"description.json", b"settings.npy", b"/data.pkl")
"""Members of earlier formats."""
READERS = {
    "model": ", which ke.load reads",
    "posterior": ", which is read by load_posterior",
    "checkpoint": ", which fit(checkpoint=…) and sample_posterior(checkpoint=…) read",
}
_HOST = re.sub(r"\W", "_", platform.node())[:40]


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[Any]], object], mode: str = "wb") -> None:
    """Write a file atomically: neither a reader nor a run after an interruption gets an incomplete file.

    A symbolic link is followed, and an existing file keeps its permissions. ``write`` gets a file open in ``mode``.

    Raises:
        ValueError: if ``path`` is a device, a pipe or a socket.
        OSError: if it is a directory or cannot be written.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"A path must be a str or a pathlib.Path, not {path!r}.")
    target = pathlib.Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"{path} is a directory. Add a file name.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is a device, a pipe or a socket, and cannot be replaced. Give the path of a file.")
    permissions = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    # Beside the target, because a rename is only atomic within one file system.
    # A name of its own for each writer: threads share a process number.
    temporary = target.with_name(f"{_prefix(target)}{os.getpid()}-{uuid.uuid4().hex}.part")
    try:
        if permissions is not None and not os.access(target, os.W_OK):
            raise PermissionError(errno.EACCES, "the file is read-only", str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_left_over(target)
        with open(temporary, mode, opener=lambda p, flags: os.open(p, flags, permissions or 0o666)) as file:
            write(file)
        if permissions is not None:
            temporary.chmod(permissions)
        os.replace(temporary, target)
    except BaseException as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        if not isinstance(error, OSError):
            raise
        if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            text = f"No space left to write {path} ({error.strerror}). Free some; an existing file is unchanged"
            raise OSError(error.errno, text) from error
        if error.filename in (str(temporary), str(target), *map(str, target.parents)):
            text = f"Cannot write {path}: {error.strerror}. Choose another path or change its permissions"
            raise type(error)(error.errno, text) from error
        raise


def _prefix(target: pathlib.Path) -> str:
    """The start of the names of its temporary files; a name as long as the system allows leaves no room for more."""
    name = target.name if len(os.fsencode(target.name)) < 100 else hashlib.sha256(os.fsencode(target.name)).hexdigest()
    return f".{name}.{_HOST}-"


def _remove_left_over(target: pathlib.Path) -> None:
    """Remove temporary files of writers of this machine that were killed."""
    if os.name != "posix":
        return  # signal 0 would end the process on Windows
    for part in target.parent.glob(f"{glob.escape(_prefix(target))}*.part"):
        number = part.name.removeprefix(_prefix(target)).split("-")[0]
        if number.isdigit():
            try:
                os.kill(int(number), 0)
            except ProcessLookupError:
                part.unlink(missing_ok=True)
            except OSError:
                pass  # it is alive, and of another user


def write_sealed(
    path: str | os.PathLike[str], kind: str, content: Mapping[str, Any], arrays: Mapping[str, Any]
) -> None:
    """Write a manifest of JSON and its arrays to ``path``, whole or not at all.

    ``kind`` is what the file holds, such as ``"model"``; a reader asks for one kind.
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


def read_sealed(
    path: str | os.PathLike[str], kind: str, max_bytes: int | None = MAX_BYTES, max_elements: int | None = MAX_ELEMENTS
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """The manifest and the arrays that :func:`write_sealed` wrote; ``None`` for no limit.

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
        words = f"{place} has {status.st_size:,} bytes, more than max_bytes={max_bytes:,}"
        raise ValueError(f"{words}. If you trust it, give more.")
    with place.open("rb") as file:
        _check_seal(file, status.st_size, place, kind)
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


def _check_seal(file: IO[bytes], size: int, place: pathlib.Path, kind: str) -> None:
    if file.read(30 + len(MANIFEST))[30:] != MANIFEST.encode():
        file.seek(max(0, size - 2**16))
        tail = file.read()
        if any(name in tail for name in OLD_MEMBERS):
            words = f"was written by an earlier development version of kernel_embed, or is not a {kind} file"
            raise ValueError(f"{place} {words}. Fit and save again.")
        raise ValueError(f"{place} is not a {kind} file of kernel_embed, or is damaged. Check the path, or delete it.")
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
        content, arrays = _manifest(archive.read(members[0]), kind, max_elements), {}
        for member in members[1:]:
            name = member.filename.removesuffix(".npy")
            if name == member.filename or not ARRAY_NAME.fullmatch(name):
                raise ValueError(f"The member {member.filename[:80]!r} does not belong there.")
            with archive.open(member) as stream:
                arrays[name] = _read_npy(stream, member.file_size, name)
        return content, arrays


def _read_npy(stream: IO[bytes], size: int, name: str) -> NDArray[Any]:
    """The array of a ``.npy`` stream of ``size`` bytes; nothing is allocated unless its header promises those bytes."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError(f"The array {name} is in an unknown format.")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    rest = size - stream.tell()
    if dtype.kind not in ARRAY_KINDS or dtype.hasobject or dtype.itemsize == 0:
        raise ValueError(f"The array {name} has the type {dtype}, which is not allowed.")
    if len(shape) > 32 or any(n < 0 for n in shape) or math.prod(shape) * dtype.itemsize != rest:
        raise ValueError(f"The array {name} has {rest} bytes, which do not fit its shape {str(shape)[:80]}.")
    buffer = np.empty(rest, dtype=np.uint8)
    buffer[:] = np.frombuffer(stream.read(), dtype=np.uint8)
    return np.asarray(buffer.view(dtype).reshape(shape, order="F" if is_fortran else "C"))


def _manifest(text: bytes, kind: str, max_elements: int | None) -> dict[str, Any]:
    if max_elements is not None and sum(map(text.count, (b",", b"[", b"{"))) > max_elements:
        raise ValueError(f"Its manifest has more than {max_elements:,} values.")

    def integer(digits: str) -> int:
        if len(digits) > 40:
            raise ValueError("A number has too many digits.")
        return int(digits)

    def constant(name: str) -> None:
        raise ValueError(f"The manifest holds {name}, which is not JSON.")

    content = json.loads(text, parse_int=integer, parse_constant=constant)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError("It was written in the format of another version of kernel_embed.")
    if content.get("kind") != kind:
        raise ValueError(f"It is a {content.get('kind')!s:.40} file{READERS.get(str(content.get('kind')), '')}.")
    return content
