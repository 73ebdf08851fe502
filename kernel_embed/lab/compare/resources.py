"""Time and memory of a learner: how many rows it can take within its budget, and how much memory a fit needs.

Time is CPU time, so that a busy machine does not cut learners short, and two runs cut them alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from numpy.typing import NDArray

from ...splits import proportional_sample
from .learners import Features, fit_model

STATUS, RESET = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")
SMALLEST = 125
"""Rows of the first trial; tables up to twice this size are never cut."""
STEEPEST, FLATTEST, FIRST_STEP = 3.3, 2.5, 1.5
"""Exponents of time in rows: limits for extrapolation, and the one expected of the first doubling, where much of the
time does not depend on the rows."""
SAFETY = 1.3
"""Learning on more rows may take more steps."""


def affordable_rows(make: Callable[[], Any], x: Features, y: NDArray[Any], budget: float, seed: int = 0) -> int:
    """How many rows of ``x, y`` a new learner can be fitted to in about ``budget`` seconds; 0 if not even 125.

    Trials on 125, 250, 500, … rows give time and its growth, t ∝ rows^p; they go on while the next one is affordable.
    """
    n = len(y)
    if n <= 2 * SMALLEST:
        return n
    size, seconds, exponent = SMALLEST, _trial(make, x, y, SMALLEST, seed), FIRST_STEP
    if seconds > 2.0 * budget:
        return 0
    while True:
        steep = min(max(exponent, FLATTEST), STEEPEST)
        expected = SAFETY * seconds * (n / size) ** steep
        if expected <= budget:
            return n
        if 2 * size >= n or seconds * 2 ** min(exponent, STEEPEST) > 0.7 * budget:
            break
        try:
            longer = _trial(make, x, y, 2 * size, seed)
        except MemoryError:
            break
        exponent = math.log2(max(longer, 1e-9) / max(seconds, 1e-9))
        size, seconds = 2 * size, longer
    rows = int(size * (budget / (SAFETY * max(seconds, 1e-9))) ** (1.0 / steep))
    return min(max(rows, SMALLEST), n)


def take(x: Features, rows: NDArray[Any]) -> Features:
    """Rows of a matrix or a data frame, by position."""
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


def _trial(make: Callable[[], Any], x: Features, y: NDArray[Any], rows: int, seed: int) -> float:
    part = proportional_sample(y, rows, seed)
    started = time.process_time()
    fit_model(make(), take(x, part), y[part])
    return time.process_time() - started


class Peak:
    """``megabytes``, filled when the block ends; ``None`` where the system does not say."""

    megabytes: float | None = None


@contextlib.contextmanager
def peak_memory() -> Iterator[Peak]:
    """The largest resident memory inside the block, less that before it.

    Linux keeps a high-water mark for each process that can be reset; other systems do not, and get ``None``. Free
    memory that the allocator holds from earlier work is returned first, if the C library can (glibc).

    Example:
        >>> with peak_memory() as peak:
        ...     block = b"x" * 50_000_000
        >>> peak.megabytes is None or peak.megabytes >= 0.0
        True
    """
    peak = Peak()
    gc.collect(1)  # the oldest generation is mostly modules, and takes longer to scan than many a fit
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
    raise ValueError(f"{STATUS} has no line {field}.")
