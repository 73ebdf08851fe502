"""One measurement: a part, a name, a size, and what to run."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable
from multiprocessing import get_context
from typing import NamedTuple

from ...results import Record

OURS = "ours"
"""The name of our own row in every part; ratios are taken against it."""

Call = Callable[[], object]
"""What is timed; it may return figures for the record."""


class Scope(NamedTuple):
    """How large a benchmark is: ``quick`` for small sizes, ``data``, where the data sets are, and which ``tables``.

    ``repetition`` is the seed of cases that draw: Stan, asked the same again, would hand out what it found before.
    """

    quick: bool = False
    data: pathlib.Path | None = None
    tables: tuple[str, ...] = ()
    repetition: int = 0


class Case(NamedTuple):
    """What is measured.

    Attributes:
        part: the section of the table.
        name: whose; :data:`OURS` and names that start with it are ours.
        n: the size of the problem.
        prepare: builds the problem and imports what it needs, outside the clock; returns what is timed, which may
            return figures for the record.
        package: what must be installed; empty for what comes with us.
        against: the name of the row that the ratio is taken against.
        repeats: how often it is run; the least time counts.
    """

    part: str
    name: str
    n: int
    prepare: Callable[[], Call]
    package: str = ""
    against: str = OURS
    repeats: int = 1


def in_own_process(function: Callable[..., Record], *arguments: object) -> Call:
    """A call that runs ``function`` in a process of its own, so that its memory is that of this call alone."""

    def call() -> Record:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(function, arguments)

    return call


def children_time() -> float:
    """CPU seconds of the children of this process, such as those in which Stan runs its chains.

    They are seen where the system has ``/proc``; elsewhere only those that have ended are counted.
    """
    ended, own = os.times(), str(os.getpid())
    total = ended.children_user + ended.children_system
    for file in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = file.read_text().rpartition(")")[2].split()
        except OSError:  # ended in between
            continue
        if fields[1] == own:
            total += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return total


def run_case(case: Case) -> Record:
    """Wall-clock seconds, CPU seconds, and the figures that the call returns."""
    call = case.prepare()
    seconds, processor, figures = float("inf"), float("inf"), None
    for _ in range(case.repeats):
        children, clock, used = children_time(), time.perf_counter(), time.process_time()
        figures = call()
        seconds, used = min(seconds, time.perf_counter() - clock), time.process_time() - used
        processor = min(processor, used + children_time() - children)
    record: Record = {"seconds": seconds, "processor_seconds": processor}
    if isinstance(figures, dict):
        record.update(figures)
        if "n_eff" in figures and processor > 0.0:
            record["effective_per_processor_second"] = figures["n_eff"] / processor
    return record
