"""Files that are written whole or not at all, by one writer at a time."""

from __future__ import annotations

import contextlib
import errno
import glob
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


def write_whole(path: str | os.PathLike[str], write: Callable[[IO[Any]], object], mode: str = "wb") -> None:
    """Write a file so that a reader, and a run after an interruption, never sees half of it.

    A symbolic link is followed, and a file that is there keeps its permissions.

    Args:
        path: the file.
        write: writes to the open file it is given.
        mode: of that file, as for ``open``.

    Raises:
        ValueError: if ``path`` is a device, a pipe or a socket.
        OSError: if it is a directory or cannot be written.
    """
    if not isinstance(path, str | os.PathLike) or not os.fspath(path):
        raise TypeError(f"Expected the path of a file to write, got {path!r}. Give a str or a pathlib.Path.")
    target = pathlib.Path(os.path.realpath(path))
    if target.is_dir():
        raise IsADirectoryError(f"Expected the path of a file to write, got the directory {path}. Add a file name.")
    if target.exists() and not target.is_file():
        raise ValueError(f"{path} is a device, a pipe or a socket, and cannot be replaced. Give the path of a file.")
    permissions = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    # Beside the target, because a rename is only atomic within one file system.
    # A name of its own for each writer: threads share a process number.
    temporary = target.with_name(f".{target.name}.{_HOST}-{os.getpid()}-{uuid.uuid4().hex}.part")
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
                f"Expected room to write {path}, got none ({error.strerror}). Free some; what was there is as it was",
            ) from error
        if isinstance(error, OSError) and error.filename in (str(temporary), str(target), *map(str, target.parents)):
            raise type(error)(
                error.errno, f"Cannot write {path}: {error.strerror}. Choose another path or change its permissions"
            ) from error
        raise


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a NumPy archive by name; objects, which are pickles, are refused."""
    content = _read(path)
    if not isinstance(content, dict) or not all(isinstance(value, np.ndarray) for value in content.values()):
        raise _foreign(path, "something else")
    return content


def read_array(path: str | os.PathLike[str]) -> NDArray[Any]:
    """The array of a NumPy file, likewise."""
    content = _read(path)
    if isinstance(content, dict):
        raise _foreign(path, "several")
    return content


def _read(path: str | os.PathLike[str]) -> NDArray[Any] | dict[str, NDArray[Any]]:
    try:
        content = np.load(path, allow_pickle=False)
        if isinstance(content, np.ndarray):
            return content
        with content:
            return dict(content)
    except (ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error) as error:
        raise _foreign(path, str(error)) from error


def _foreign(path: str | os.PathLike[str], got: str) -> ValueError:
    return ValueError(
        f"Expected arrays of numbers or text in {path}, got a file that cannot be read as that: {got}. It is damaged "
        "or of another program. Delete it, and it is made again."
    )


_HOST = re.sub(r"\W", "_", platform.node())


def _remove_left_over(target: pathlib.Path) -> None:
    """Remove what writers of this file left that were killed: parts of processes of this machine that are gone."""
    for part in target.parent.glob(f"{glob.escape(f'.{target.name}.{_HOST}-')}*.part"):
        number = part.name.removeprefix(f".{target.name}.{_HOST}-").split("-")[0]
        if number.isdigit() and not _is_alive(int(number)):
            part.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    if os.name != "posix":
        return True  # signal 0 is no question there
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
