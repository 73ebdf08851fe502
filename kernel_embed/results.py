"""Results as a list of flat records in ``results.json``, and the figures and tables made of them."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import tempfile
import zlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from .files import write_whole
from .version import __version__

try:
    import fcntl
except ImportError:  # pragma: no cover
    fcntl = None  # type: ignore[assignment]  # Windows has no such locks: there the last writer wins

CHECKSUM = "checksum"
"""The field that detects a record whose bytes were changed; a record that someone added by hand has none."""
MAX_BYTES = 2**30
Record = dict[str, str | int | float | bool | None]
"""Flat, so that any tool reads the file as a table."""


class Results:
    """The records of a run, and of the runs before it that wrote to the same file.

    Args:
        path: the file; ``None`` keeps the records in memory.
        key: the fields that identify a record.

    Example:
        >>> results = Results(None, key=["learner", "fold"])
        >>> results.add({"learner": "default", "fold": 0, "accuracy": 0.9})
        >>> len(results.records)
        1
    """

    def __init__(self, path: str | os.PathLike[str] | None, key: Sequence[str]) -> None:
        self._path = None if path is None else pathlib.Path(path)
        self._key = tuple(key)
        self.records: list[Record] = []
        self._seen = self._stamp()
        if self._path is not None and self._seen is not None:
            self.records = read_records(self._path)

    def find(self, key: Record) -> list[Record]:
        """The records that agree with ``key`` in every field of the key: one or none, unless a file holds more."""
        return [record for record in self.records if self._key_of(record) == self._key_of(key)]

    def check_writable(self) -> None:
        """Raise an error now, before anything is computed, if the file cannot be written."""
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self._path.parent):
                pass

    def add(self, record: Record) -> None:
        """Append a record with the version of the library, and write the file."""
        self.extend([record])

    def extend(self, records: Iterable[Record], write: bool = True) -> None:
        """Append several records, and write the file once."""
        self.records.extend({**record, "version": __version__} for record in records)
        if write:
            self.write()

    def write(self) -> None:
        """Write the file, with the records that other runs wrote there meanwhile."""
        if self._path is None:
            return
        with locked(self._path):
            if self._stamp() not in (None, self._seen):  # two runs may share one file
                keys = {self._key_of(record) for record in self.records}
                self.records += [record for record in read_records(self._path) if self._key_of(record) not in keys]
            # JSON has no NaN and no infinity: they are null
            records = [
                {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
                for record in self.records
            ]
            content = [{**record, CHECKSUM: _checksum(record)} for record in records]
            write_whole(self._path, lambda file: json.dump(content, file, indent=1, allow_nan=False), "w")
            self._seen = self._stamp()

    def _stamp(self) -> tuple[int, int] | None:
        """Changes with every write of the file; ``None`` without a file."""
        if self._path is None or not self._path.exists():
            return None
        status = self._path.stat()
        return status.st_mtime_ns, status.st_ino

    def _key_of(self, record: Record) -> tuple[Hashable, ...]:
        return tuple(record.get(field) for field in self._key)


@contextlib.contextmanager
def locked(path: pathlib.Path) -> Iterator[None]:
    """Wait until no other process or thread is inside a block for a file of the same directory.

    The lock is on the directory, because the file itself is replaced when it is written; it ends with the process.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if fcntl is None:  # pragma: no cover
        yield
        return
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def read_records(path: pathlib.Path) -> list[Record]:
    """The records of a results file."""
    remedy = "Move it away, or name another --out directory."
    if not path.is_file() or path.stat().st_size > MAX_BYTES:
        raise ValueError(f"{path} is not a file, or has more than {MAX_BYTES:,} bytes. {remedy}")
    try:
        content = json.loads(path.read_text(), object_pairs_hook=_record)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON of flat records: {str(error).rstrip('.')}. {remedy}") from error
    if not (isinstance(content, list) and all(isinstance(record, dict) for record in content)):
        raise ValueError(f"{path} is not a list of records. {remedy}")
    for place, record in enumerate(content):
        if (version := record.get("version", __version__)) != __version__:
            words = f"has results of kernel_embed {version}; those of this version, {__version__}, may differ"
            raise ValueError(f"{path} {words}. Move it away, or name another --out directory.")
        if record.pop(CHECKSUM, "") not in ("", _checksum(record)):
            raise ValueError(f"Record {place} of {path} is damaged: its checksum does not match. {remedy}")
    return content


def _record(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A flat object of JSON; nested values and repeated names are errors."""
    record = dict(pairs)
    if len(record) < len(pairs):
        raise ValueError("A name is repeated in a record.")
    if any(isinstance(value, list | dict) for value in record.values()):
        raise ValueError("A record is nested.")
    return record


def _checksum(record: Record) -> str:
    return f"{zlib.crc32(json.dumps(record, sort_keys=True).encode()):08x}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of plain text: the first aligned left, the others right."""
    lines = [list(header), *map(list, rows)]
    first, *widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    lines.insert(1, ["-" * width for width in (first, *widths)])
    aligned = [[line[0].ljust(first), *map(str.rjust, line[1:], widths)] for line in lines]
    return "\n".join("  ".join(line).rstrip() for line in aligned)


def decimal(value: float, digits: int = 4) -> str:
    """A number for readers: significant digits, commas between thousands, an exponent only beyond nine places.

    Example:
        >>> decimal(54321.7), decimal(0.05), decimal(3.0), decimal(2.5e12)
        ('54,320', '0.05', '3', '2.5e+12')
    """
    if value == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    rounded = float(f"{value:.{digits}g}")
    if not 1e-4 <= abs(rounded) < 1e9:
        return f"{rounded:g}"
    places = max(digits - 1 - math.floor(math.log10(abs(rounded))), 0)
    text = f"{rounded:,.{places}f}"
    return text.rstrip("0").rstrip(".") if places else text


def group(records: Iterable[Record], key: Callable[[Record], Hashable]) -> dict[Hashable, list[Record]]:
    """Records by ``key``, in order of first appearance."""
    groups: dict[Hashable, list[Record]] = {}
    for record in records:
        groups.setdefault(key(record), []).append(record)
    return groups


def number(record: Record, name: str) -> float:
    """One field of a record as a number."""
    value = record[name]
    if value is None or isinstance(value, str):
        raise ValueError(f"The field {name!r} of a record is {value!r}, not a number.")
    return float(value)


def column(records: Sequence[Record], name: str) -> NDArray[np.float64]:
    """One field of all records, as numbers."""
    return np.array([record[name] for record in records], dtype=np.float64)


def standard_error(values: NDArray[np.float64]) -> float:
    """The standard error of the mean; zero for a single value."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0
