"""The number of processors and of threads: one thread for small matrices."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import torch
from threadpoolctl import threadpool_limits

SMALL = 500
"""Rows below which one thread is faster than several, which wait for each other."""


def num_cpus() -> int:
    """The processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def few_threads(num_rows: int) -> Iterator[None]:
    """One thread for torch, NumPy and scikit-learn while matrices are small; restored on exit.

    Example:
        >>> before = torch.get_num_threads()
        >>> with few_threads(100):
        ...     torch.get_num_threads()
        1
        >>> torch.get_num_threads() == before
        True
    """
    before, few = torch.get_num_threads(), num_rows < SMALL
    with threadpool_limits(limits=1 if few else None):
        if few:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)
