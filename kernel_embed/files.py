"""Files that are written whole or not at all, by one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import math
import os
import pathlib
import platform
import re
import stat
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]  # Windows has no such locks: there the last writer wins


ARRAY_KINDS = "biufcUSmM"
"""Kinds of dtypes that files may hold: numbers, text and dates."""
MAX_ARRAY_BYTES = 2**30
"""Larger arrays are not read: a compressed file can expand to a thousand times its size."""
UNREADABLE = (
    *(ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError, EOFError, SyntaxError),
    *(NotImplementedError, RuntimeError, zipfile.BadZipFile, zlib.error),
)
"""Errors of damaged or hostile files."""


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[Any]], object], mode: str = "wb") -> None:
    """Write a file atomically: neither a reader nor a run after an interruption gets an incomplete file.

    A symbolic link is followed, and an existing file keeps its permissions.

    Args:
        path: the file.
        write: writes to an open file.
        mode: of that file, as for ``open``.

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
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise OSError(
                error.errno,
                f"No space left to write {path} ({error.strerror}). Free some; an existing file is unchanged",
            ) from error
        if isinstance(error, OSError) and error.filename in (str(temporary), str(target), *map(str, target.parents)):
            raise type(error)(
                error.errno, f"Cannot write {path}: {error.strerror}. Choose another path or change its permissions"
            ) from error
        raise


def read_arrays(path: str | os.PathLike[str], max_bytes: int = MAX_ARRAY_BYTES) -> dict[str, NDArray[Any]]:
    """The arrays of a NumPy archive by name, compressed or not; objects, which are pickles, are rejected.

    Raises:
        ValueError: if the file is damaged or its arrays have more than ``max_bytes``.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members, arrays = archive.infolist(), {}
            if sum(member.file_size for member in members) > max_bytes:
                raise ValueError(f"Its arrays have more than {max_bytes:,} bytes.")
            for member in members:
                with archive.open(member) as stream:
                    name = member.filename.removesuffix(".npy")
                    arrays[name] = read_npy(stream, member.file_size, name)
            return arrays
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a NumPy file, likewise."""
    try:
        with open(path, "rb") as stream:
            return read_npy(stream, os.fstat(stream.fileno()).st_size, "of the file")
    except UNREADABLE as error:
        raise _unreadable(path, error) from error


def read_npy(stream: IO[bytes], size: int, name: str) -> NDArray[Any]:
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


def _unreadable(path: str | os.PathLike[str], error: Exception) -> ValueError:
    return ValueError(
        f"{path} cannot be read as arrays of numbers or text: {str(error).rstrip('.')}. It is damaged or from another "
        "program. Delete it, and it is created again."
    )


_HOST = re.sub(r"\W", "_", platform.node())[:40]


def _prefix(target: pathlib.Path) -> str:
    """The start of the names of its temporary files; a name as long as the system allows leaves no room for more."""
    name = target.name if len(os.fsencode(target.name)) < 100 else hashlib.sha256(os.fsencode(target.name)).hexdigest()
    return f".{name}.{_HOST}-"


def _remove_left_over(target: pathlib.Path) -> None:
    """Remove temporary files of writers of this machine that were killed."""
    for part in target.parent.glob(f"{glob.escape(_prefix(target))}*.part"):
        number = part.name.removeprefix(_prefix(target)).split("-")[0]
        if number.isdigit() and not _is_alive(int(number)):
            part.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 would end the process on Windows
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


@contextlib.contextmanager
def locked(path: str | os.PathLike[str]) -> Iterator[None]:
    """Wait until no other process or thread is inside a block for a file of the same directory.

    The lock is on the directory, because the file itself is replaced when it is written; it ends with the process.
    """
    directory = pathlib.Path(path).parent
    directory.mkdir(parents=True, exist_ok=True)
    if fcntl is None:  # pragma: no cover
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
