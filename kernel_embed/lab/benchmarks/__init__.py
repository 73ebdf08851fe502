"""``kernel-embed benchmark``: speed compared with other libraries, as ratios measured in one run.

To add a measurement, write a function that yields it under :func:`part`.
"""

from __future__ import annotations

import importlib.util
import math
import os
import pathlib
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch

from ...results import Record, Results, group, number, table
from ...validation import check_count, check_setting
from ..experiment import Settings
from ..runner import FAILURES, Case, Outcome, Skip, run_cases

KEY = ("experiment", "part", "name", "n", "threads", "repetition")
DEFAULT = ("objective", "small", "classifier", "latency", "hypothesis", "posterior")
"""Run unless others are named; the rest need data or take longer."""
STEEPEST = 3.3
"""The assumed exponent of growth for a case that was only run at a smaller size."""

OURS = "ours"
"""The name of our own row in every section; ratios are taken against it."""

Call = Callable[[], object]
"""The timed function; it may return figures for the record."""


class Measurement(NamedTuple):
    """A row of the section ``part`` of the report, for a library, or ours, at size ``n``.

    ``prepare`` builds the problem and imports packages, untimed, and returns the function that is timed; of ``repeats``
    runs the least time counts. The ratio is taken ``against`` the row of that name. ``package`` must be installed.
    """

    part: str
    name: str
    n: int
    prepare: Callable[[], Call]
    package: str = ""
    against: str = OURS
    repeats: int = 1


Part = Callable[[Settings], Iterator[Measurement]]
PARTS: dict[str, Part] = {}
"""By the name that ``--parts`` takes; the first line of the docstring is the help text. The seed of the settings is the
repetition: Stan would return cached draws for the same seed."""
NOTES: dict[str, Callable[[Sequence[Record]], str]] = {}
"""By the start of a section's title: a function that writes the text below its table."""


def part(name: str) -> Callable[[Part], Part]:
    """Register a function that yields the measurements of a part."""
    return lambda function: PARTS.setdefault(name, function)


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
        if "n_eff" in figures:
            record["effective_per_second"] = figures["n_eff"] / seconds
            record["effective_per_processor_second"] = figures["n_eff"] / processor if processor > 0.0 else None
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


def run(
    results: Results,
    *,
    parts: Sequence[str] = DEFAULT,
    settings: Settings | None = None,
    sizes: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    limit: float = 300.0,
    repeats: int = 1,
    progress: bool | None = None,
) -> Outcome:
    """Fill ``results`` with one record for each measurement of these sizes and names that can be run here.

    Cases that are expected to take more than ``limit`` seconds are skipped; with ``repeats``, all are run in turn.
    Cases that were skipped and those that failed run again next time.
    """
    for size in sizes or ():
        check_count("--sizes", size)
    check_setting("--limit", limit, limit > 0, "above 0")
    threads, failed, settings, cases = torch.get_num_threads(), list[str](), settings or Settings(), []
    for repetition in range(check_count("repeats", repeats)):
        for case in (case for part in parts for case in PARTS[part](replace(settings, seed=repetition))):
            if (sizes is None or case.n in sizes) and (names is None or case.name in names):
                key: Record = {"experiment": "benchmark", "part": case.part, "name": case.name, "n": case.n}
                key |= {"threads": threads, "repetition": repetition} if repetition else {"threads": threads}
                call = partial(_measure, case, results, limit, threads, failed)
                cases.append(Case(key, call, f"{case.name} (n = {case.n})"))
    if not cases:
        raise ValueError(f"No measurement of {', '.join(parts)} has these --sizes and --names. Leave them out.")
    outcome = run_cases(cases, results, name="benchmark", failures=(), progress=progress)
    return Outcome([line for line in outcome.skipped if line not in failed], failed)


def _measure(case: Measurement, results: Results, limit: float, threads: int, failed: list[str]) -> Record:
    torch.set_num_threads(threads)  # another library may have changed it
    if case.package and importlib.util.find_spec(case.package) is None:
        raise Skip(f"{case.package} is not installed (extra bench)")
    same = [r for r in results.records if (r.get("part"), r.get("name")) == (case.part, case.name)]
    times = [(number(r, "n"), number(r, "seconds")) for r in same if number(r, "n") < case.n]
    n, seconds = max(times, default=(1.0, 0.0))  # of the largest smaller size
    if (expected := seconds * (case.n / n) ** STEEPEST) > limit:
        raise Skip(f"would take about {expected:.0f} s; raise --limit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"against": case.against, **measure(case)}
    except ModuleNotFoundError as error:
        # An optional package may be absent; one that is installed but does not work is a failure.
        text, broken = str(error), bool(case.package)
    except (*FAILURES, AttributeError, TypeError) as error:
        text, broken = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", True
    if broken:
        failed.append(f"{case.name} (n = {case.n}): {text}")
    raise Skip(text)


def ratio(record: Record, records: Sequence[Record], field: str = "seconds") -> float:
    """Time relative to the reference row; NaN if one of them is missing."""
    for other in records:
        if (other["part"], other["name"], other["n"]) == (record["part"], record["against"], record["n"]):
            if record.get(field) is None or other.get(field) is None:
                return math.nan
            return number(record, field) / max(number(other, field), 1e-12)
    return math.nan


def summary(records: Sequence[Record], outcome: Outcome) -> str:
    """One table for each section, and the skipped cases."""
    sections, records = [], medians(records)
    for title, own in group(records, lambda record: str(record["part"])).items():
        sections.append(f"{title} (ratio to: {own[0]['against']})\n\n{_ratios(own)}")
        sections += [text for start, note in NOTES.items() if str(title).startswith(start) and (text := note(own))]
    for name, lines in (("skipped", outcome.skipped), ("failed", outcome.failed)):
        if lines:
            sections.append("\n".join([f"{name}:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(sections)


def medians(records: Sequence[Record]) -> list[Record]:
    """One record for each case; if it was run several times, the median of every number."""
    merged_records = []
    for own in group(records, lambda r: (r["part"], r["name"], r["n"], r.get("threads"))).values():
        merged = dict(own[0])
        for field, value in own[0].items():
            if isinstance(value, float):
                merged[field] = statistics.median(number(r, field) for r in own if r.get(field) is not None)
        merged_records.append({**merged, "runs": len(own)} if len(own) > 1 else merged)
    return merged_records


def _ratios(records: Sequence[Record]) -> str:
    """Times, their ratios, and the other numbers of each record but those of single folds, which end in a digit."""
    rows = []
    for r in records:
        seconds = number(r, "seconds")
        time = f"{1e3 * seconds:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"
        ratios = [ratio(r, records, field) for field in ("seconds", "processor_seconds")]
        hidden = (*KEY, "against", "seconds")
        numbers = {k: v for k, v in r.items() if isinstance(v, int | float) and k not in hidden}
        others = ", ".join(f"{k.replace('_', ' ')} {v:.4g}" for k, v in numbers.items() if not k[-1].isdigit())
        texts = ["–" if math.isnan(value) else f"{value:.2f}" for value in ratios]
        rows.append([str(r["name"]), f"{r['n']}", time, *texts, others])
    return table(["", "n", "time", "ratio", "ratio of CPU time", ""], rows)


from . import inference, objectives, tables  # noqa: E402, F401 — which register their parts
