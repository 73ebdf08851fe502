"""``kernel-embed reproduce NAME``: a table or figure of the papers, our figures beside the published ones."""

from __future__ import annotations

import argparse
import pathlib
import textwrap

from ..comparison.data import ENVIRONMENT_VARIABLE
from ..papers import EXPERIMENTS, Settings, reproduce
from ..papers.experiment import option
from .options import common, results_of

EXAMPLES = """examples:
  kernel-embed reproduce iris --out results
  kernel-embed reproduce uci --data DIR --datasets wine ecoli"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.epilog = f"{EXAMPLES}\n\n{_catalogue()}"
    command.description = "A table or figure of the papers, our figures beside the published ones."
    command.add_argument("name", nargs="?", choices=list(EXPERIMENTS), metavar="NAME", help="one of those below")
    command.add_argument("--list", action="store_true", help="say what each name shows and how long it takes")
    command.add_argument(
        "--data", type=pathlib.Path, help=f"directory of the data sets (default: {ENVIRONMENT_VARIABLE}, else OpenML)"
    )
    command.add_argument("--full", action="store_true", help="all epochs of the paper, without a limit of time")
    command.add_argument("--epochs", type=int, help="exactly so many, however long they take")
    command.add_argument("--datasets", nargs="+", help="only these data sets")
    command.add_argument("--repetitions", type=int, help="of a study on simulated data")
    command.add_argument("--jobs", type=int, default=1, help="processes")
    command.add_argument("--methods", nargs="+", help="only these learners")
    command.add_argument("--folds", type=int, help="how many folds to run")
    command.add_argument("--seed", type=int, default=0, help="of simulated data, folds or first weights")
    common(command)


def run(options: argparse.Namespace) -> str:
    """Reproduce, and return the table."""
    if options.list:
        return _catalogue()
    if options.name is None:
        raise ValueError(f"Expected the name of an experiment, got none. Names: {', '.join(EXPERIMENTS)}.")
    experiment = EXPERIMENTS[options.name]
    before = _pictures(options.out)
    table = reproduce(experiment, settings_of(options), results_of(options, experiment.key))
    text = f"{table}\n\nResults are in {options.out / 'results.json'}."
    made = [str(path) for path, stamp in _pictures(options.out).items() if before.get(path) != stamp]
    if made:
        text += f" Pictures: {', '.join(made)}."
    return f"{text}\n--quick is too short to judge by." if options.quick else text


def _pictures(out: pathlib.Path) -> dict[pathlib.Path, int]:
    """The pictures of a directory, and when each was made."""
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.png"))}


def settings_of(options: argparse.Namespace) -> Settings:
    """What was given on the command line, as the experiments read it."""
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
    lines = ["experiments, what each shows, how long it takes, and the options beside --out and --quick:"]
    for experiment in EXPERIMENTS.values():
        options = " ".join(sorted(map(option, experiment.options)))
        words = f"{experiment.shows} ({experiment.duration}) {options}".rstrip()
        first, *more = textwrap.wrap(words, 90)
        lines += [f"  {experiment.name:<19}{first}", *(" " * 21 + line for line in more)]
    return "\n".join(lines)
