"""``kernel-embed reproduce NAME``: a table or figure of the papers, our figures beside the published ones."""

from __future__ import annotations

import argparse
import pathlib
import textwrap

from .. import papers, studies
from ..compare.data import ENVIRONMENT_VARIABLE
from ..experiment import Settings, option, reproduce
from .options import common, ended, results_of

EXPERIMENTS = {**papers.EXPERIMENTS, **studies.EXPERIMENTS}
"""The experiments of the papers, then the studies."""

EXAMPLES = """examples:
  kernel-embed reproduce iris --out results
  kernel-embed reproduce uci --data DIR --datasets wine ecoli"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = f"{EXAMPLES}\n\n{_catalogue()}"
    command.description = "Run a table or figure of the papers again, and show our figures beside the published ones."
    what = command.add_argument_group("what to run")
    what.add_argument("name", nargs="?", choices=list(EXPERIMENTS), metavar="NAME", help="one of the list below")
    what.add_argument("--list", action="store_true", help="show the list: what each shows and how long it takes")
    what.add_argument("--datasets", nargs="+", metavar="NAME", help="only these data sets")
    what.add_argument("--methods", nargs="+", metavar="LEARNER", help="only these learners")
    what.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="DIR",
        help=f"directory of the data sets (default: {ENVIRONMENT_VARIABLE}, else OpenML)",
    )
    much = command.add_argument_group("how much of it")
    much.add_argument("--folds", type=int, help="how many folds to run")
    much.add_argument("--repetitions", type=int, help="of a study on simulated data")
    much.add_argument("--epochs", type=int, help="exactly this many, however long they take")
    much.add_argument("--full", action="store_true", help="all epochs of the paper, without a time limit")
    much.add_argument("--seed", type=int, default=0, help="of simulated data, folds or first weights (default: 0)")
    much.add_argument("--jobs", type=int, default=1, help="number of processes (default: 1)")
    common(command)


def run(options: argparse.Namespace) -> str:
    """Reproduce, and return the table."""
    if options.list:
        return _catalogue()
    if options.name is None:
        raise ValueError(f"Name an experiment: {', '.join(EXPERIMENTS)}.")
    experiment = EXPERIMENTS[options.name]
    before = _pictures(options.out)
    table = reproduce(experiment, settings_of(options), results_of(options, experiment.key))
    made = [path for path, stamp in _pictures(options.out).items() if before.get(path) != stamp]
    return ended(f"{table}\n\nResults are in {options.out / 'results.json'}.", made, quick=options.quick)


def _pictures(out: pathlib.Path) -> dict[pathlib.Path, int]:
    """The pictures of a directory, and when each was made."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.png"))}


def settings_of(options: argparse.Namespace) -> Settings:
    """The options of the command line, as the experiments read them."""
    return Settings(
        data=options.data,
        out=options.out,
        quick=options.quick,
        repetitions=options.repetitions,
        num_folds=options.folds,
        datasets=None if options.datasets is None else tuple(options.datasets),
        methods=None if options.methods is None else tuple(options.methods),
        epochs=options.epochs,
        full=options.full,
        jobs=options.jobs,
        seed=options.seed,
    )


def _catalogue() -> str:
    lines = ["experiments: what each shows, how long it takes, and the options it understands:"]
    for experiment in EXPERIMENTS.values():
        options = " ".join(sorted(map(option, experiment.options)))
        words = f"{experiment.title} ({experiment.duration}) {options}".rstrip()
        first, *more = textwrap.wrap(words, 58)
        lines += [f"  {experiment.name:<19}{first}", *(" " * 21 + line for line in more)]
    return "\n".join(lines)
