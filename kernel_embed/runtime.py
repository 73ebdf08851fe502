"""The process: its memory, processors, threads and gradient mode, progress bars, and warnings of a search."""

from __future__ import annotations

import contextlib
import contextvars
import os
import pathlib
import re
import sys
import time
import warnings
from collections.abc import Iterator
from typing import TypeAlias, TypeVar, cast

import torch
from linear_operator.utils.warnings import NumericalWarning
from threadpoolctl import threadpool_limits
from tqdm.auto import tqdm

try:
    import resource
except ImportError:  # pragma: no cover
    resource = None  # type: ignore[assignment]  # Windows has no such limits

M = TypeVar("M")
ProgressBar: TypeAlias = tqdm  # or a ProgressLog
GROUP_FILES = ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory/memory.limit_in_bytes")  # limits of a container
SMALL = 500  # rows below which one thread is faster than several, which wait for each other
_COLLECTED: contextvars.ContextVar[list[str] | None] = contextvars.ContextVar("collected", default=None)


def available_memory(root: pathlib.Path = pathlib.Path("/")) -> int | None:
    """The smallest limit of machine, container and process in bytes; ``None`` if the system gives none."""
    limits = [int(text) for name in GROUP_FILES if (text := _text(root / name)).isdigit()]  # "max" is no limit
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    if resource is not None and (limit := resource.getrlimit(resource.RLIMIT_AS)[0]) != resource.RLIM_INFINITY:
        pages = _text(root / "proc/self/statm").split()[:1]  # the limit also counts the addresses of libraries
        limits.append(max(0, limit - sum(map(int, pages)) * resource.getpagesize()))
    return min(limits, default=None)


def device_memory(device: torch.device) -> int | None:
    """The free bytes of a GPU, with what PyTorch keeps for reuse; ``None`` for devices that do not tell."""
    if device.type != "cuda":
        return None
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


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
    """One thread for torch, NumPy and scikit-learn while matrices are small; restored on exit."""
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
def cpu_by_default() -> Iterator[None]:
    """New tensors on the CPU, not on the default device of the process: GPyTorch and Pyro do not say on which."""
    with contextlib.nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu"):
        yield


@contextlib.contextmanager
def enabled_gradients() -> Iterator[None]:
    """Gradients inside, also under ``torch.no_grad()`` and ``torch.inference_mode()``; works as a decorator, too."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


def usable_for_gradients(value: M) -> M:
    """A tensor, or a module changed in place, without tensors of ``torch.inference_mode()``: those have no gradient."""
    if isinstance(value, torch.Tensor):
        return cast(M, value.clone()) if value.is_inference() else value
    if isinstance(value, torch.nn.Module):
        for part in value.modules():
            for name, old in part._parameters.items():
                if old is not None and old.is_inference():
                    part._parameters[name] = torch.nn.Parameter(old.detach().clone(), requires_grad=old.requires_grad)
            for name, buffer in part._buffers.items():
                part._buffers[name] = usable_for_gradients(buffer)
    return value


class ProgressLog:
    """Progress as plain lines on the error stream: one after ten seconds, later ones a twentieth of the time apart."""

    FIRST, SHARE = 10.0, 0.05

    def __init__(self, total: int | None, description: str) -> None:
        self.n, self.total, self._description, self._text = 0, total, description, ""
        self._start = self._last = time.monotonic()

    def __enter__(self) -> ProgressLog:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def update(self, n: int = 1) -> None:
        """Count ``n`` steps, and print a line if it is time."""
        self.n += n
        now = time.monotonic()
        if now - self._last >= max(self.FIRST, self.SHARE * (now - self._start)):
            self._last = now
            count = self.n if self.total is None else f"{self.n} of {self.total}"
            text = f" ({self._text})" if self._text else ""
            line = f"{self._description}: {count}{text}, {now - self._start:.0f} s"
            print(printable(line), file=sys.stderr, flush=True)

    def set_postfix_str(self, s: str = "") -> None:
        """Set the text of the next line."""
        self._text = s


def progress_bar(total: int | None, description: str, show: bool | None = None, log: bool = False) -> ProgressBar:
    """A tqdm bar; ``show=None`` shows it on a terminal or in a notebook, and with ``log`` prints lines elsewhere."""
    if show is None:
        show = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel.")
        if log and not show:
            return ProgressLog(total, description)
    return tqdm(total=total, desc=description, disable=not show, leave=False, dynamic_ncols=True)


def printable(text: str) -> str:
    """``text`` without control characters: names in a table must not move the cursor or set the title of a terminal."""
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", "\ufffd", text)


def warn_numerical(message: str, stacklevel: int = 2) -> None:
    """A ``NumericalWarning``, or an entry in the list of :func:`collected_warnings`."""
    collected = _COLLECTED.get()
    if collected is None:
        warnings.warn(message, NumericalWarning, stacklevel=stacklevel + 1)
    else:
        collected.append(message)


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect numerical warnings instead of showing them: a search also tries points that it does not keep."""
    messages: list[str] = []
    token = _COLLECTED.set(messages)
    try:
        yield messages
    finally:
        _COLLECTED.reset(token)
