"""``kernel-embed benchmark``: where we stand in speed, as ratios measured side by side in one run."""

from __future__ import annotations

import argparse
import pathlib

from ..benchmarks import run as benchmark
from ..benchmarks.cases import Scope
from ..benchmarks.summary import draw, summary
from ..comparison.data import ENVIRONMENT_VARIABLE
from .options import Unfinished, common, results_of

EXAMPLES = """examples:
  kernel-embed benchmark --quick
  kernel-embed benchmark --parts classifier --sizes 500 1000 --out results
  kernel-embed benchmark --parts distributions --data DIR --tables mine --names ours NGBoost"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = "Speed beside other libraries, as ratios measured in one run."
    command.epilog = EXAMPLES
    default = ", ".join(benchmark.DEFAULT)
    command.add_argument(
        "--parts", nargs="+", choices=list(benchmark.PARTS), metavar="PART", default=benchmark.DEFAULT,
        help=f"of {', '.join(benchmark.PARTS)} (default: {default})",
    )  # fmt: skip
    command.add_argument("--sizes", nargs="+", type=int, help="of the classifiers: only these numbers of rows")
    command.add_argument("--names", nargs="+", metavar="NAME", help="only rows of these names, such as ours")
    command.add_argument(
        "--tables", nargs="+", metavar="TABLE", default=(),
        help="of distributions: only these files TABLE.csv of --data, with numbers in a column target",
    )  # fmt: skip
    command.add_argument("--limit", type=float, default=300.0, help="seconds that one case may be expected to take")
    command.add_argument(
        "--data", type=pathlib.Path, help=f"directory of the data sets (default: {ENVIRONMENT_VARIABLE})"
    )
    common(command)


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
    )
    text = f"{summary(results.records, outcome)}\n\nResults are in {options.out / 'results.json'}"
    try:
        pictures = draw(results.records, options.out)
        text += f", pictures in {', '.join(map(str, pictures))}."
    except ImportError:
        text += "; the pictures need matplotlib, the extra plots."
    if options.quick:
        text += "\n--quick is too short to judge by."
    if outcome.failed:
        raise Unfinished(text, f"{len(outcome.failed)} did not work: {'; '.join(outcome.failed)}")
    return text
