"""One measurement: the section of the report, a name, a size, and what to run; and the registry of parts."""

from __future__ import annotations

import os
import pathlib
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import NamedTuple

import numpy as np

from ...results import Record, group, number

OURS = "ours"
"""The name of our own row in every section; ratios are taken against it."""

Call = Callable[[], object]
"""What is timed; it may return figures for the record."""


class Scope(NamedTuple):
    """How large a benchmark is.

    Attributes:
        quick: small sizes.
        data: directory of the data sets.
        tables: only these tables of ``data``.
        repetition: the seed of cases that draw; Stan would return cached draws for the same seed.
    """

    quick: bool = False
    data: pathlib.Path | None = None
    tables: tuple[str, ...] = ()
    repetition: int = 0


class Measurement(NamedTuple):
    """What is measured.

    Attributes:
        part: the section of the report.
        name: whose; :data:`OURS` and names that start with it are ours.
        n: the size of the problem.
        prepare: builds the problem and imports what it needs, outside the clock; returns what is timed.
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


Part = Callable[[Scope], Iterator[Measurement]]
Note = Callable[[Sequence[Record]], str]
PARTS: dict[str, Part] = {}
"""By the name that ``--parts`` takes; the first line of the docstring is the help text."""
NOTES: dict[str, Note] = {}
"""By the start of a section's title: the text below its table."""


def part(name: str) -> Callable[[Part], Part]:
    """Register a function that yields the measurements of a part."""
    return lambda function: PARTS.setdefault(name, function)


def note(title: str) -> Callable[[Note], Note]:
    """Register a function that writes the text below the tables whose title starts so."""
    return lambda function: NOTES.setdefault(title, function)


def in_own_process(function: Callable[..., Record], *arguments: object) -> Call:
    """A call that runs ``function`` in a process of its own, so that its memory is that of this call alone."""

    def call() -> Record:
        with get_context("spawn").Pool(1) as pool:
            return pool.apply(function, arguments)

    return call


def measure(case: Measurement) -> Record:
    """Wall-clock seconds, CPU seconds, and the figures that the call returns."""
    call = case.prepare()
    seconds, processor, figures = float("inf"), float("inf"), None
    for _ in range(case.repeats):
        children, clock, used = _children_time(), time.perf_counter(), time.process_time()
        figures = call()
        seconds, used = min(seconds, time.perf_counter() - clock), time.process_time() - used
        processor = min(processor, used + _children_time() - children)
    record: Record = {"seconds": seconds, "processor_seconds": processor}
    if isinstance(figures, dict):
        record.update(figures)
        if "n_eff" in figures and processor > 0.0:
            record["effective_per_processor_second"] = figures["n_eff"] / processor
    return record


def _children_time() -> float:
    """CPU seconds of child processes, such as Stan's chains; without ``/proc`` only of those that have ended."""
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


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """p of values ∝ sizes^p, by least squares on the logarithms of the upper half of the sizes, two at least.

    Example:
        >>> round(exponent([100, 200, 400], [1.0, 3.0, 24.0]), 6)
        3.0
    """
    largest = np.argsort(sizes)[-max(2, (len(sizes) + 1) // 2) :]
    positive = [i for i in largest if values[i] > 0]
    if len(positive) < 2:
        return float("nan")
    return float(np.polyfit(np.log([sizes[i] for i in positive]), np.log([values[i] for i in positive]), 1)[0])


def growth_by_name(records: Sequence[Record]) -> Iterator[tuple[str, dict[int, Record], float, float]]:
    """For each name: its records by size, and the exponents of CPU time and memory.

    CPU time, because on a busy machine the clock measures other processes too.
    """
    for name, own in group(records, lambda record: record["name"]).items():
        by_size = {int(number(r, "n")): r for r in sorted(own, key=lambda r: number(r, "n"))}
        times = [number(r, "processor_seconds") for r in by_size.values()]
        memory = [float(r.get("peak_megabytes") or 0.0) for r in by_size.values()]
        yield str(name), by_size, exponent(list(by_size), times), exponent(list(by_size), memory)
