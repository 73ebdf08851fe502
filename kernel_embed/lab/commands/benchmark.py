"""``kernel-embed benchmark``: where we stand in speed, as ratios measured side by side in one run."""

from __future__ import annotations

import argparse
import pathlib
import textwrap

from ..benchmarks import run as benchmark
from ..benchmarks.measurement import Scope
from ..benchmarks.summary import draw, summary
from ..compare.data import ENVIRONMENT_VARIABLE
from .options import Unfinished, common, ended, results_of

EXAMPLES = """examples:
  kernel-embed benchmark --quick
  kernel-embed benchmark --parts classifier --sizes 500 1000 --out results
  kernel-embed benchmark --parts distributions --data DIR --tables mine --names ours NGBoost"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "Speed beside other libraries, as ratios measured in one run."
    command.epilog = f"{_catalogue()}\n\n{EXAMPLES}"
    what = command.add_argument_group("what to measure")
    what.add_argument(
        "--parts",
        nargs="+",
        choices=list(benchmark.PARTS),
        metavar="PART",
        default=benchmark.DEFAULT,
        help="of the lists below (default: the first list)",
    )
    what.add_argument("--names", nargs="+", metavar="NAME", help="only rows of these names, such as ours")
    what.add_argument("--sizes", nargs="+", type=int, metavar="ROWS", help="of classifiers and posteriors")
    what.add_argument(
        "--tables",
        nargs="+",
        metavar="TABLE",
        default=(),
        help="of distributions: only these files TABLE.csv of --data, with numbers in a column target",
    )
    what.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="DIR",
        help=f"directory of the data sets (default: {ENVIRONMENT_VARIABLE})",
    )
    what.add_argument(
        "--limit",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="skip a case that is expected to take longer (default: 300)",
    )
    what.add_argument(
        "--repeats",
        type=int,
        default=1,
        metavar="N",
        help="run every case so often, all in turn, and show medians (default: 1)",
    )
    common(command)


def _catalogue() -> str:
    """Every part with what its cases are, once."""
    lists = {
        "parts that run by default": benchmark.DEFAULT,
        "parts that run when they are named": [part for part in benchmark.PARTS if part not in benchmark.DEFAULT],
    }
    lines: list[str] = []
    for title, parts in lists.items():
        lines += [f"\n{title}:" if lines else f"{title}:"]
        for part in parts:
            words = (benchmark.PARTS[part].__doc__ or "").split("\n")[0].rstrip(".")
            first, *more = textwrap.wrap(words, 62)
            lines += [f"  {part:<15}{first}", *(" " * 17 + line for line in more)]
    return "\n".join(lines)


def run(options: argparse.Namespace) -> str:
    """Measure, draw, and return the tables; peers that are there and do not work make the exit code 2."""
    results = results_of(options, benchmark.KEY)
    results.check_writable()
    outcome = benchmark.run(
        results,
        parts=options.parts,
        scope=Scope(options.quick, options.data, tuple(options.tables)),
        sizes=options.sizes,
        names=options.names,
        limit=options.limit,
        repeats=options.repeats,
    )
    text = f"{summary(results.records, outcome)}\n\nResults are in {options.out / 'results.json'}"
    try:
        text = ended(f"{text}.", draw(results.records, options.out), quick=options.quick)
    except ImportError:
        text = ended(f"{text}; the pictures need matplotlib, the extra plots.", [], quick=options.quick)
    if outcome.failed:
        raise Unfinished(text, f"{len(outcome.failed)} did not work: {'; '.join(outcome.failed)}")
    return text
