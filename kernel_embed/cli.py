"""The command ``kernel-embed``: compare learners, reproduce the papers, measure speed.

The lab is imported when one of the commands is called.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from .results import Results
from .runtime import printable
from .version import __version__

if TYPE_CHECKING:
    from .lab.experiment import Experiment

EXAMPLES = """examples:
  kernel-embed compare --data people.csv --target churned
  kernel-embed reproduce --list

Run kernel-embed COMMAND --help for the options of a command."""
COMPARE_EXAMPLES = """examples:
  kernel-embed compare                                    iris and wine, which scikit-learn ships
  kernel-embed compare --data people.csv --target churned --drop name "phone number"
  kernel-embed compare --data houses.csv --target price   a number: distributions, intervals
  kernel-embed compare --data tables/ --all-rows --methods default logistic boosting
  kernel-embed compare --data train.csv --test test.csv --quick

Run the same command again to resume after an interruption. Runs with other --methods and the same --out are merged."""
REPRODUCE_EXAMPLES = """examples:
  kernel-embed reproduce iris --out results
  kernel-embed reproduce uci --data DIR --datasets wine ecoli"""
BENCHMARK_EXAMPLES = """examples:
  kernel-embed benchmark --quick
  kernel-embed benchmark --parts classifier --sizes 500 1000 --out results
  kernel-embed benchmark --parts distributions --data DIR --tables mine --names ours NGBoost"""
DATA = "directory of the data sets (default: KERNEL_EMBED_DATA"

Outcome = tuple[str, str]
"""The output of a command, and its failures; with failures the exit code is not 0."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 after one line on the error stream."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(words[0] if words else "").parse_args(words)
    try:
        text, problem = COMMANDS[options.command][2](options)
    except KeyboardInterrupt:
        print("kernel-embed: interrupted; run the same command again to resume", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if options.debug:
            raise
        text, problem = "", " ".join(str(error).split()) or type(error).__name__
    if text:
        try:
            print(printable(text), flush=True)
        except BrokenPipeError:  # a reader such as head closed the pipe early, which is no error
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if problem:
        print(f"kernel-embed: {printable(problem)}", file=sys.stderr)
    return 2 if problem else 0


def _parser(name: str) -> argparse.ArgumentParser:
    """The parser, with the options of the command ``name`` only: they need its modules."""
    raw = argparse.RawDescriptionHelpFormatter
    words = "Learned kernel embeddings: compare, reproduce, measure."
    parser = argparse.ArgumentParser("kernel-embed", description=words, epilog=EXAMPLES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"kernel-embed {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for one, (words, add_options, _) in COMMANDS.items():
        subparser = commands.add_parser(one, help=words, formatter_class=raw)
        if one == name:
            add_options(subparser)
            add, out = subparser.add_argument_group("the run").add_argument, pathlib.Path("results")
            words = "directory for the results (default: results)"
            add("--out", type=pathlib.Path, default=out, metavar="DIR", help=words)
            add("--quick", action="store_true", help="a small run, to see that everything works")
            add("--debug", action="store_true", help="show the traceback of an error")
    return parser


def _catalog(title: str, entries: Iterable[tuple[str, str]], width: int) -> str:
    """A list of names, padded to one length, with their descriptions."""
    lines = [title]
    for name, words in entries:
        first, *more = textwrap.wrap(words, width, break_on_hyphens=False)
        lines += [f"{name}{first}", *(" " * len(name) + line for line in more)]
    return "\n".join(lines)


def _with_files(text: str, options: argparse.Namespace, pictures: Sequence[pathlib.Path] = ()) -> str:
    """``text`` with last lines that name the files and, after ``--quick``, warn that the run is too short."""
    words = ["--quick runs are too short for conclusions."] if options.quick else []
    words += [f"Pictures: {', '.join(map(str, pictures))}."] if pictures else []
    return f"{text}\n\nResults are in {options.out / 'results.json'}.\n{' '.join(words)}".rstrip()


def _compare_options(command: argparse.ArgumentParser) -> None:
    from .lab.compare.embedding_classifiers import SMOOTHNESS
    from .lab.compare.tasks import TASKS

    command.description = "Compare learners on a table by their scores on held-out rows, and recommend one."
    marks = " (those marked + need --methods, the others run by default if they are installed)"
    catalogs: list[str] = []
    for task in TASKS.values():
        learners = task.learners().items()
        entries = [(f" {' ' if one.default else '+'}{name:<23}", one.description) for name, one in learners]
        catalogs.append(_catalog(f"learners for {task.name}{'' if catalogs else marks}:", entries, 54))
    command.epilog = "\n\n".join([*catalogs, COMPARE_EXAMPLES])
    add = command.add_argument_group("the table").add_argument
    add("--data", type=pathlib.Path, help="a CSV or Parquet file, or a directory of them (default: iris, wine)")
    add("--datasets", nargs="+", metavar="NAME", help="with a directory: only these files, by their stems")
    add("--target", metavar="COLUMN", help="the column to predict (default: 'target', else the last)")
    add("--task", choices=sorted(TASKS), help="classes or numbers (default: a target of many numbers is a regression)")
    add("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    add("--groups", metavar="COLUMN", help="rows with the same value, such as a patient, stay in one fold")
    add("--test", type=pathlib.Path, metavar="FILE", help="held-out rows to score on, instead of folds")
    how = command.add_argument_group("how to compare")
    names, kernels = sorted({name for task in TASKS.values() for name in task.learners()}), sorted(SMOOTHNESS)
    how.add_argument("--methods", nargs="+", choices=names, metavar="LEARNER", help="only these of the lists below")
    how.add_argument("--kernel", choices=kernels, default="rbf", help="of the learners that take one (default: rbf)")
    how.add_argument("--folds", type=int, help="of the cross validation (default: 5; 2 with --quick)")
    how.add_argument("--seed", type=int, default=0, help="of the folds (default: 0)")
    limit = how.add_mutually_exclusive_group()
    words = "CPU seconds for one learner on one table, all folds together (default: 90; 20 with --quick)"
    words += "; one that would take longer gets a part of the rows"
    limit.add_argument("--budget", type=float, metavar="SECONDS", help=words)
    limit.add_argument("--all-rows", action="store_true", help="no budget: every learner has all rows")
    how.add_argument("--no-report", action="store_true", help="only the table and results.json, no pictures")


def _compare(options: argparse.Namespace) -> Outcome:
    from .lab.compare.comparison import Settings, compare_tables, shipped
    from .lab.compare.report import write_report
    from .lab.compare.result import printed
    from .lab.compare.tables import read_directory, read_user_table
    from .lab.compare.tasks import TASKS

    if options.folds is not None and options.folds < 2:
        raise ValueError(f"--folds must be at least 2, not {options.folds}.")
    if options.budget is not None and not options.budget > 0:
        raise ValueError(f"--budget must be positive, not {options.budget}. Give --all-rows for no limit.")
    if options.test is not None and options.data is not None and options.data.is_dir():
        raise ValueError("--test works with one table, not with a directory. Give --data FILE.")
    if options.data is None and (options.target or options.groups or options.test or options.drop):
        raise ValueError("--target, --groups, --drop and --test need a table. Give --data FILE.")
    folds = 1 if options.test is not None else options.folds or (2 if options.quick else 5)
    more, rejected = {"task": options.task, "groups": options.groups, "folds": folds}, list[str]()
    if options.data is None:
        tables = shipped()
    elif options.data.is_dir():
        found, rejected = read_directory(options.data, options.datasets, options.target, options.drop, **more)
        tables = [(table, None) for table in found]
    else:
        train = read_user_table(options.data, options.target, options.drop, **more)
        test = None if options.test is None else read_user_table(options.test, options.target, like=train)
        tables = [(train, test)]
    task = TASKS[tables[0][0].task]
    budget = None if options.all_rows else options.budget or (20.0 if options.quick else 90.0)
    methods = tuple(options.methods or task.methods(options.quick))
    settings = Settings(methods, options.kernel, folds, options.seed, budget, task.name)
    results = compare_tables(tables, settings, options.out)
    pictures = [] if options.no_report else [write_report(results, options.out / "report.html")]
    text = printed(results) + "".join(f"\n\nLeft out: {line}" for line in rejected)
    problem = ""
    if not any(result.finished_rows for result in results):
        problem = "no learner finished; the table says why"
    elif rejected and options.datasets:
        problem = f"{len(rejected)} of {len(options.datasets)} tables could not be used"
    return _with_files(text, options, pictures), problem


def experiments() -> dict[str, Experiment]:
    """The experiments of the papers, then the studies."""
    from .lab import papers, studies

    return {**papers.EXPERIMENTS, **studies.EXPERIMENTS}


def _experiment_list() -> str:
    from .lab.experiment import flags

    entries = []
    for one in experiments().values():
        needs = f"; --data with {', '.join(one.files)}" if one.files else ""
        entries.append((f"  {one.name:<19}", f"{one.title} ({one.duration}) {flags(one.options.split(), ' ')}{needs}"))
    return _catalog("experiments: what each shows, how long it takes, and the options it understands:", entries, 58)


def _reproduce_options(command: argparse.ArgumentParser) -> None:
    command.epilog = f"{REPRODUCE_EXAMPLES}\n\n{_experiment_list()}"
    command.description = "Reproduce a table or figure of the papers, and show our figures next to the published ones."
    add = command.add_argument_group("what to run").add_argument
    add("name", nargs="?", choices=list(experiments()), metavar="NAME", help="one of the list below")
    add("--list", action="store_true", help="show the list: what each shows and how long it takes")
    add("--datasets", nargs="+", metavar="NAME", help="only these data sets")
    add("--methods", nargs="+", metavar="LEARNER", help="only these learners")
    add("--data", type=pathlib.Path, metavar="DIR", help=f"{DATA}, else OpenML)")
    add = command.add_argument_group("how much of it").add_argument
    add("--folds", type=int, dest="num_folds", metavar="FOLDS", help="how many folds to run")
    add("--repetitions", type=int, help="of a study on simulated data")
    add("--epochs", type=int, help="exactly this many, however long they take")
    add("--full", action="store_true", help="all epochs of the paper, without a time limit")
    add("--seed", type=int, default=0, help="of simulated data, folds or first weights (default: 0)")
    add("--jobs", type=int, default=1, help="number of processes (default: 1)")


def _reproduce(options: argparse.Namespace) -> Outcome:
    from dataclasses import fields

    from .lab.experiment import Settings, reproduce

    if options.list:
        return _experiment_list(), ""
    if options.name is None:
        raise ValueError(f"Name an experiment: {', '.join(experiments())}.")
    experiment = experiments()[options.name]
    values = {field.name: getattr(options, field.name) for field in fields(Settings)}
    values |= {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    settings = Settings(**values)

    def pictures() -> dict[pathlib.Path, int]:
        return {path: path.stat().st_mtime_ns for path in sorted(options.out.glob("*.png"))}

    before = pictures()
    table = reproduce(experiment, settings, Results(options.out / "results.json", experiment.key))
    new = [path for path, stamp in pictures().items() if before.get(path) != stamp]
    return _with_files(table, options, new), ""


def _benchmark_options(command: argparse.ArgumentParser) -> None:
    from .lab.benchmarks import DEFAULT, PARTS

    command.description = "Speed compared with other libraries, as ratios measured in one run."
    others = [part for part in PARTS if part not in DEFAULT]
    catalogs = []
    for title, parts in {"by default": DEFAULT, "when they are named": others}.items():
        entries = ((f"  {part:<15}", (PARTS[part].__doc__ or "").split("\n")[0].rstrip(".")) for part in parts)
        catalogs.append(_catalog(f"parts that run {title}:", entries, 62))
    command.epilog = "\n\n".join([*catalogs, BENCHMARK_EXAMPLES])
    add = command.add_argument_group("what to measure").add_argument
    words = "of the lists below (default: the first list)"
    add("--parts", nargs="+", choices=list(PARTS), metavar="PART", default=DEFAULT, help=words)
    add("--names", nargs="+", metavar="NAME", help="only rows of these names, such as ours")
    add("--sizes", nargs="+", type=int, metavar="ROWS", help="only these sizes")
    words = "of distributions: only these files TABLE.csv of --data, with numbers in a column target"
    add("--tables", nargs="+", metavar="TABLE", default=(), help=words)
    add("--data", type=pathlib.Path, metavar="DIR", help=f"{DATA})")
    words = "skip a case that is expected to take longer (default: 300)"
    add("--limit", type=float, default=300.0, metavar="SECONDS", help=words)
    words = "run every case so often, all in turn, and show medians (default: 1)"
    add("--repeats", type=int, default=1, metavar="N", help=words)


def _benchmark(options: argparse.Namespace) -> Outcome:
    from .lab.benchmarks import KEY, run, summary
    from .lab.experiment import Settings

    results = Results(options.out / "results.json", KEY)
    results.check_writable()
    settings = Settings(data=options.data, quick=options.quick, datasets=tuple(options.tables))
    selection = {name: getattr(options, name) for name in ("parts", "sizes", "names", "limit", "repeats")}
    outcome = run(results, settings=settings, **selection)
    text = _with_files(summary(results.records, outcome), options)
    return text, f"{len(outcome.failed)} did not work: {'; '.join(outcome.failed)}" if outcome.failed else ""


COMMANDS = {
    "compare": ("learn a kernel in several ways and compare them", _compare_options, _compare),
    "reproduce": ("run a table or figure of the papers again", _reproduce_options, _reproduce),
    "benchmark": ("measure speed relative to other libraries", _benchmark_options, _benchmark),
}
"""By name: the line of help, a function that adds the options, and one that runs the command."""


if __name__ == "__main__":
    sys.exit(main())
