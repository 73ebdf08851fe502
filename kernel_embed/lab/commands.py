"""The commands of ``kernel-embed`` and their options. The lab is imported when a command is called."""

from __future__ import annotations

import argparse
import pathlib
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ..results import Results

if TYPE_CHECKING:
    from .compare.comparison import Settings, TablePair
    from .experiment import Experiment

DATA = "directory of the data sets (default: KERNEL_EMBED_DATA"
COMPARE_EXAMPLES = """examples:
  kernel-embed compare                                    iris and wine, which scikit-learn ships
  kernel-embed compare --data people.csv --target churned --drop name "phone number"
  kernel-embed compare --data houses.csv --target price   a number: distributions, intervals
  kernel-embed compare --data tables/ --all-rows --methods default logistic boosting
  kernel-embed compare --data train.csv --test test.csv --quick

Run the same command again to resume after an interruption. Runs with other --methods and the same --out are merged."""
COMPARE = "Compare learners on a table by their scores on held-out rows, and recommend one."
REPRODUCE_EXAMPLES = """examples:
  kernel-embed reproduce iris --out results
  kernel-embed reproduce uci --data DIR --datasets wine ecoli"""
BENCHMARK_EXAMPLES = """examples:
  kernel-embed benchmark --quick
  kernel-embed benchmark --parts classifier --sizes 500 1000 --out results
  kernel-embed benchmark --parts distributions --data DIR --tables mine --names ours NGBoost"""

Outcome = tuple[str, str]
"""The output of a command, and its failures; with failures the exit code is not 0."""


class Command(NamedTuple):
    """A command: its line of help, a function that adds its options, and one that runs it."""

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Outcome]


def _compare_options(command: argparse.ArgumentParser) -> None:
    from .compare.classifiers import SMOOTHNESS
    from .compare.tasks import TASKS

    command.description = COMPARE
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
    from .compare.report import write_report
    from .compare.result import compare_tables
    from .compare.summary import explanation, overall, summary

    _check(options)
    tables, rejected = _tables(options)
    settings = _compare_settings(options, tables[0][0].task)
    compared = compare_tables(tables, settings, options.out)
    pictures = [] if options.no_report else [write_report(compared, options.out / "report.html")]
    task, several = compared[0].task, len(settings.methods) > 1
    text = "\n\n\n".join(summary(result.table, result.rows, task) for result in compared)
    if len(compared) > 2 and several:
        names = [result.table.name for result in compared]
        text += f"\n\n\n{overall(names, [result.rows for result in compared], settings.methods, task)}"
    text += f"\n\n{explanation(several, task)}"
    text += "".join(f"\n\nLeft out: {line}" for line in rejected)
    text = _closed(text, options, pictures)
    if not any(result.finished_rows for result in compared):
        return text, "no learner finished; the table says why"
    if rejected and options.datasets:
        return text, f"{len(rejected)} of {len(options.datasets)} tables could not be used"
    return text, ""


def _check(options: argparse.Namespace) -> None:
    if options.folds is not None and options.folds < 2:
        raise ValueError(f"--folds must be at least 2, not {options.folds}.")
    if options.budget is not None and not options.budget > 0:
        raise ValueError(f"--budget must be positive, not {options.budget}. Give --all-rows for no limit.")
    if options.test is not None and options.data is not None and options.data.is_dir():
        raise ValueError("--test works with one table, not with a directory. Give --data FILE.")
    if options.data is None and (options.target is not None or options.test is not None or options.drop):
        raise ValueError("--target, --drop and --test need a table. Give --data FILE.")


def _compare_settings(options: argparse.Namespace, task: str) -> Settings:
    from .compare.comparison import Settings
    from .compare.tasks import TASKS

    budget = options.budget if options.budget is not None else (20.0 if options.quick else 90.0)
    methods = options.methods or TASKS[task].methods(options.quick)
    folds = 1 if options.test is not None else options.folds or (2 if options.quick else 5)
    return Settings(tuple(methods), options.kernel, folds, options.seed, None if options.all_rows else budget, task)


def _tables(options: argparse.Namespace) -> tuple[list[TablePair], list[str]]:
    """The tables, each with its test table, and one line for each file that was rejected."""
    from .compare.comparison import shipped
    from .compare.tables import read_user_table

    if options.data is None:
        return shipped(), []
    if not options.data.is_dir():
        train = read_user_table(options.data, options.target, options.drop, task=options.task)
        test = None if options.test is None else read_user_table(options.test, options.target, like=train)
        return [(train, test)], []
    tables, rejected = [], []
    for path in _files(options):
        try:
            tables.append(read_user_table(path, options.target, options.drop, task=options.task))
        except (ValueError, OSError, ImportError) as error:
            rejected.append(f"{path.name}: {' '.join(str(error).split())}")
    if not tables:
        raise ValueError(f"There is no table to learn from in {options.data}. {' '.join(rejected)}")
    # A comparison has one task: classification if any table has classes.
    task = min(table.task for table in tables)
    others = [table.name for table in tables if table.task != task]
    rejected += [f"{name}: not a target for {task}; name it with --datasets and --task" for name in others]
    return [(table, None) for table in tables if table.task == task], rejected


def _files(options: argparse.Namespace) -> list[pathlib.Path]:
    from .compare.reading import SUFFIXES

    paths = {path.stem: path for path in sorted(options.data.iterdir()) if path.suffix.lower() in SUFFIXES}
    names = options.datasets or list(paths)
    missing = [name for name in names if name not in paths]
    if missing or not names:
        raise FileNotFoundError(
            f"No {', '.join(missing) or 'table'} in {options.data}. Tables there: {', '.join(paths) or 'none'}."
        )
    return [paths[name] for name in names]


def experiments() -> dict[str, Experiment]:
    """The experiments of the papers, then the studies."""
    from . import papers, studies

    return {**papers.EXPERIMENTS, **studies.EXPERIMENTS}


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
    add("--folds", type=int, help="how many folds to run")
    add("--repetitions", type=int, help="of a study on simulated data")
    add("--epochs", type=int, help="exactly this many, however long they take")
    add("--full", action="store_true", help="all epochs of the paper, without a time limit")
    add("--seed", type=int, default=0, help="of simulated data, folds or first weights (default: 0)")
    add("--jobs", type=int, default=1, help="number of processes (default: 1)")


def _reproduce(options: argparse.Namespace) -> Outcome:
    from .experiment import Settings, reproduce

    if options.list:
        return _experiment_list(), ""
    if options.name is None:
        raise ValueError(f"Name an experiment: {', '.join(experiments())}.")
    experiment = experiments()[options.name]
    same = ("data", "out", "quick", "repetitions", "epochs", "full", "jobs", "seed")
    settings = Settings(
        **{name: getattr(options, name) for name in same},
        num_folds=options.folds,
        datasets=None if options.datasets is None else tuple(options.datasets),
        methods=None if options.methods is None else tuple(options.methods),
    )
    before = _pictures(options.out)
    table = reproduce(experiment, settings, Results(options.out / "results.json", experiment.key))
    new = [path for path, stamp in _pictures(options.out).items() if before.get(path) != stamp]
    return _closed(table, options, new), ""


def _pictures(out: pathlib.Path) -> dict[pathlib.Path, int]:
    return {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.png"))}


def _experiment_list() -> str:
    from .experiment import option

    title = "experiments: what each shows, how long it takes, and the options it understands:"
    words = (
        (one.name, f"{one.title} ({one.duration}) {' '.join(sorted(map(option, one.options)))}{_needs(one)}".rstrip())
        for one in experiments().values()
    )
    return _catalog(title, ((f"  {name:<19}", text) for name, text in words), 58)


def _needs(experiment: Experiment) -> str:
    return f"; --data with {', '.join(experiment.files)}" if experiment.files else ""


def _benchmark_options(command: argparse.ArgumentParser) -> None:
    from . import benchmarks

    command.description = "Speed compared with other libraries, as ratios measured in one run."
    lists = {
        "parts that run by default:": benchmarks.DEFAULT,
        "parts that run when they are named:": [part for part in benchmarks.PARTS if part not in benchmarks.DEFAULT],
    }
    catalogs = []
    for title, parts in lists.items():
        first_lines = ((benchmarks.PARTS[part].__doc__ or "").split("\n")[0].rstrip(".") for part in parts)
        names = [f"  {part:<15}" for part in parts]
        catalogs.append(_catalog(title, zip(names, first_lines, strict=True), 62))
    command.epilog = "\n\n".join([*catalogs, BENCHMARK_EXAMPLES])
    add = command.add_argument_group("what to measure").add_argument
    names, words = list(benchmarks.PARTS), "of the lists below (default: the first list)"
    add("--parts", nargs="+", choices=names, metavar="PART", default=benchmarks.DEFAULT, help=words)
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
    from .benchmarks import KEY, Scope, run, summary

    results = Results(options.out / "results.json", KEY)
    results.check_writable()
    outcome = run(
        results,
        scope=Scope(options.quick, options.data, tuple(options.tables)),
        **{name: getattr(options, name) for name in ("parts", "sizes", "names", "limit", "repeats")},
    )
    text = _closed(summary(results.records, outcome), options, ())
    return text, f"{len(outcome.failed)} did not work: {'; '.join(outcome.failed)}" if outcome.failed else ""


def _catalog(title: str, entries: Iterable[tuple[str, str]], width: int) -> str:
    """A list of names, padded to one length, with their descriptions."""
    lines = [title]
    for name, words in entries:
        first, *more = textwrap.wrap(words, width, break_on_hyphens=False)
        lines += [f"{name}{first}", *(" " * len(name) + line for line in more)]
    return "\n".join(lines)


def _closed(text: str, options: argparse.Namespace, pictures: Sequence[pathlib.Path]) -> str:
    """``text`` with last lines that name the files and, after ``--quick``, warn that the run is too short."""
    words = ["--quick runs are too short for conclusions."] if options.quick else []
    words += [f"Pictures: {', '.join(map(str, pictures))}."] if pictures else []
    text = f"{text}\n\nResults are in {options.out / 'results.json'}."
    return f"{text}\n{' '.join(words)}" if words else text


COMMANDS = {
    "compare": Command("learn a kernel in several ways and compare them", _compare_options, _compare),
    "reproduce": Command("run a table or figure of the papers again", _reproduce_options, _reproduce),
    "benchmark": Command("measure speed relative to other libraries", _benchmark_options, _benchmark),
}
