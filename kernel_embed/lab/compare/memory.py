"""By how much the memory of this process grows at most during a block of work."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import pathlib
from collections.abc import Iterator

STATUS = pathlib.Path("/proc/self/status")
RESET = pathlib.Path("/proc/self/clear_refs")


class Peak:
    """Filled when the block ends: ``megabytes``, or ``None`` where the system does not tell."""

    megabytes: float | None = None


@contextlib.contextmanager
def peak_memory() -> Iterator[Peak]:
    """The largest resident memory inside the block, less that before it.

    Linux keeps a high-water mark for each process that can be set back; other systems do not, and get ``None``. Free
    memory that the allocator holds from earlier work is given back first, where the C library can (glibc); else what is
    used of it again is not counted.

    Example:
        >>> with peak_memory() as peak:
        ...     block = b"x" * 50_000_000
        >>> peak.megabytes is None or peak.megabytes >= 0.0
        True
    """
    peak = Peak()
    gc.collect(1)  # the oldest generation is mostly modules, and takes longer to walk than many a fit
    before = _reset()
    try:
        yield peak
    finally:
        if before is not None:
            peak.megabytes = max(0.0, _megabytes("VmHWM") - before)


def _reset() -> float | None:
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        RESET.write_text("5")
        return _megabytes("VmRSS")
    except (OSError, ValueError):
        return None


def _megabytes(field: str) -> float:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"Expected a line {field} in {STATUS}, got none. This system does not tell its memory.")
