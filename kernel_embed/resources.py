"""Memory, processors and threads that this process may use, and its gradient mode."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
from collections.abc import Iterator
from typing import TypeVar, cast

import torch
from threadpoolctl import threadpool_limits

M = TypeVar("M")

GROUP_FILES = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")
"""The files with the limit of a container, for the two versions of control groups."""
SMALL = 500
"""Rows below which one thread is faster than several, which wait for each other."""


def available_memory(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """The smallest limit of machine, container and process in bytes; ``None`` if the system gives none."""
    return min((*_of_machine(), *_of_container(root), *_of_process(root)), default=None)


def _of_machine() -> Iterator[int]:
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        yield os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _of_container(root: pathlib.Path) -> Iterator[int]:
    for name in GROUP_FILES:
        text = _text(root / name)
        if text.isdigit():  # "max" where there is no limit
            yield int(text)


def _of_process(root: pathlib.Path) -> Iterator[int]:
    """The rest of ``ulimit -v``, which also counts the addresses of libraries."""
    if importlib.util.find_spec("resource") is None:  # Windows
        return
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        pages = _text(root / "proc/self/statm").split()[:1]
        yield max(0, limit - sum(map(int, pages)) * resource.getpagesize())


def _text(path: pathlib.Path) -> str:
    """The text of a file; empty if this process cannot read it."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


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
    import scipy.linalg  # noqa: F401  # its BLAS must be loaded to be limited; else the first result rounds differently

    before, few = torch.get_num_threads(), num_rows < SMALL
    with threadpool_limits(limits=1 if few else None):
        if few:
            torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(before)


@contextlib.contextmanager
def enabled_gradients() -> Iterator[None]:
    """Gradients inside, also under ``torch.no_grad()`` and ``torch.inference_mode()``; works as a decorator, too.

    Example:
        >>> with torch.inference_mode(), enabled_gradients():
        ...     torch.ones(1, requires_grad=True).exp().requires_grad
        True
    """
    with torch.inference_mode(False), torch.enable_grad():
        yield


def usable_for_gradients(value: M) -> M:
    """A tensor, or a module changed in place, without tensors of ``torch.inference_mode()``: those have no gradient."""
    if isinstance(value, torch.Tensor):
        return cast(M, value.clone()) if value.is_inference() else value
    if isinstance(value, torch.nn.Module):
        for part in value.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None and parameter.is_inference():
                    learned = parameter.requires_grad
                    part._parameters[name] = torch.nn.Parameter(parameter.detach().clone(), requires_grad=learned)
            for name, buffer in part._buffers.items():
                part._buffers[name] = usable_for_gradients(buffer)
    return value
