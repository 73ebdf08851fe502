"""``kernel-embed benchmark``: where we stand in speed, as ratios measured side by side in one run."""

from __future__ import annotations

import argparse

from ..benchmarks import run as benchmark
from .options import Unfinished, common, results_of


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("--parts", nargs="+", choices=list(benchmark.PARTS), help="only these parts")
    command.add_argument("--sizes", nargs="+", type=int, help="of the classifiers: only these numbers of rows")
    command.add_argument("--limit", type=float, default=300.0, help="seconds that one case may be expected to take")
    common(command)


def run(options: argparse.Namespace) -> str:
    """Measure, draw, and return the tables; peers that are there and do not work make the exit code 2."""
    results = results_of(options, benchmark.KEY)
    results.check_writable()
    outcome = benchmark.run(
        results,
        parts=options.parts or tuple(benchmark.PARTS),
        quick=options.quick,
        sizes=options.sizes,
        limit=options.limit,
    )
    text = f"{benchmark.summary(results.records, outcome)}\n\nResults are in {options.out / 'results.json'}"
    try:
        benchmark.draw(results.records, options.out / "benchmark.png")
        text += f", a picture in {options.out / 'benchmark.png'}."
    except ImportError:
        text += "; the picture needs matplotlib, the extra plots."
    if outcome.failed:
        raise Unfinished(text, f"{len(outcome.failed)} did not work: {'; '.join(outcome.failed)}")
    return text
