"""``kernel-embed benchmark``: every case in turn, in one run; ratios to our own row, and exponents of growth."""

from __future__ import annotations

import importlib.util
import math
import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import torch

from ..comparison.study import FAILURES
from ..progress import progress_bar
from ..results import Record, Results, group, table
from . import classifier, hypothesis, objective, posterior, votes
from .cases import Case, run_case

KEY = ("experiment", "part", "name", "n", "threads")
PARTS: dict[str, Callable[[bool], Iterator[Case]]] = {
    "objective": objective.cases,
    "classifier": classifier.cases,
    "hypothesis": hypothesis.cases,
    "posterior": posterior.cases,
    "votes": votes.cases,
    "growth": classifier.growth_cases,
}
STEEPEST = 3.3
"""The growth that is expected of a case that was only run at a smaller size."""


class Outcome(NamedTuple):
    """What a run did not measure: ``skipped`` says why in words, ``failed`` names peers that do not work."""

    skipped: list[str]
    failed: list[str]


def run(
    results: Results,
    *,
    parts: Sequence[str] = tuple(PARTS),
    quick: bool = False,
    sizes: Sequence[int] | None = None,
    limit: float = 300.0,
    progress: bool | None = None,
) -> Outcome:
    """Fill ``results`` with one record for each case that can be run here.

    Args:
        results: where records go; what an interrupted run finished is not run again.
        parts: names of :data:`PARTS`.
        quick: small sizes, to see that everything works.
        sizes: of the classifiers, to run only these.
        limit: seconds that one case may be expected to take, from its own smaller sizes.
        progress: show a progress bar.
    """
    outcome, threads = Outcome([], []), torch.get_num_threads()
    todo = [case for part in parts for case in PARTS[part](quick)]
    if sizes is not None:
        todo = [case for case in todo if case.part not in (classifier.PART, classifier.GROWTH) or case.n in sizes]
    with progress_bar(len(todo), "benchmark", progress) as bar:
        for case in todo:
            bar.set_postfix_str(f"{case.part}, {case.name}, n = {case.n}")
            name: Record = {"experiment": "benchmark", "part": case.part, "name": case.name, "n": case.n}
            name["threads"] = threads
            if name not in results:
                torch.set_num_threads(threads)  # as it was found: a peer may have changed it
                _measure(case, name, results, limit, outcome)
            bar.update()
    return outcome


def _measure(case: Case, name: Record, results: Results, limit: float, outcome: Outcome) -> None:
    label = f"{case.name} (n = {case.n})"
    if case.package and importlib.util.find_spec(case.package) is None:
        outcome.skipped.append(f"{label}: {case.package} is not installed (extra bench)")
        return
    expected = _expected(case, results)
    if expected > limit:
        outcome.skipped.append(f"{label}: would take about {expected:.0f} s; raise --limit")
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = run_case(case)
    except ModuleNotFoundError as error:
        # A part of ours or of a peer that is not there; a peer that is there and does not work is another matter.
        place = outcome.failed if case.package else outcome.skipped
        place.append(f"{label}: {error}")
        return
    except (*FAILURES, AttributeError, TypeError) as error:
        outcome.failed.append(f"{label}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return
    results.add({**name, "against": case.against, **record})


def _expected(case: Case, results: Results) -> float:
    """Seconds, from the largest smaller size of the same case."""
    smaller = [r for r in results.records if (r["part"], r["name"]) == (case.part, case.name) and _n(r) < case.n]
    if not smaller:
        return 0.0
    last = max(smaller, key=_n)
    growth: float = (case.n / _n(last)) ** STEEPEST
    return float(last["seconds"] or 0.0) * growth


def _n(record: Record) -> int:
    return int(record["n"] or 0)


def ratio(record: Record, records: Sequence[Record], field: str = "seconds") -> float:
    """Time over that of the row it is compared with; NaN where that one is missing."""
    for other in records:
        if (other["part"], other["name"], other["n"]) == (record["part"], record["against"], record["n"]):
            return float(record[field] or 0.0) / max(float(other[field] or 0.0), 1e-12)
    return math.nan


def summary(records: Sequence[Record], outcome: Outcome) -> str:
    """One table for each part, the exponents, and what was skipped."""
    parts = []
    for part, chosen in group(records, lambda record: record["part"]).items():
        if part == classifier.GROWTH:
            parts.append(f"{part}\n\n{growth(chosen)}")
            continue
        rows = [
            [str(r["name"]), f"{r['n']}", _milliseconds(r["seconds"]), f"{ratio(r, records):.2f}",
             f"{ratio(r, records, 'processor_seconds'):.2f}", _figures(r)]
            for r in chosen
        ]  # fmt: skip
        head = ["", "n", "time", "ratio", "ratio of processor time", ""]
        parts.append(f"{part} (ratio to: {chosen[0]['against']})\n\n{table(head, rows)}")
    for title, lines in (("skipped", outcome.skipped), ("failed", outcome.failed)):
        if lines:
            parts.append("\n".join([f"{title}:", *(f"  {line}" for line in lines)]))
    return "\n\n".join(parts)


def growth(records: Sequence[Record]) -> str:
    """Time and memory at every size, and the exponents of both."""
    sizes = sorted({_n(record) for record in records})
    rows = []
    for name, found in group(records, lambda record: record["name"]).items():
        by_size = {_n(record): record for record in found}
        times = [_milliseconds(by_size[n]["seconds"]) if n in by_size else "–" for n in sizes]
        known = [n for n in sizes if n in by_size]
        # Of the processor: on a busy machine the clock would say more about the neighbours.
        time_power = classifier.exponent(known, [float(by_size[n]["processor_seconds"] or 0.0) for n in known])
        memory = [float(by_size[n]["peak_megabytes"] or 0.0) for n in known]
        rows.append(
            [str(name), *times, _power(time_power), f"{memory[-1]:.0f} MB", _power(classifier.exponent(known, memory))]
        )
    head = ["", *(f"n = {n}" for n in sizes), "time ∝ n^", "memory at last", "memory ∝ n^"]
    return table(head, rows)


def draw(records: Sequence[Record], path: pathlib.Path) -> None:
    """Time to a learned classifier by size, and how many times as long as ours the others take."""
    from matplotlib.figure import Figure

    from ..plots.compare import speed

    figure = Figure(figsize=(10, 4), layout="constrained")
    times = [r for r in records if r["part"] == classifier.PART]
    lines = {
        str(name): ([_n(r) for r in found], [float(r["seconds"] or 0.0) for r in found])
        for name, found in group(times, lambda r: r["name"]).items()
    }
    bars = {
        f"{r['part']}: {r['name']}": ratio(r, records)
        for r in records
        if r["part"] not in (classifier.GROWTH, classifier.PART, objective.PART) and r["name"] != r["against"]
    }
    speed(figure.subplots(1, 2), lines, bars)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _figures(record: Record) -> str:
    shown = {"nll": "NLL", "pvalue": "p", "objective": "objective", "mean": "mean log ℓ", "sd": "sd"}
    return ", ".join(f"{word} {record[field]:.4g}" for field, word in shown.items() if record.get(field) is not None)


def _milliseconds(seconds: Any) -> str:
    return f"{1e3 * seconds:.1f} ms" if seconds < 1.0 else f"{seconds:.2f} s"


def _power(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1f}"
