"""``kernel-embed compare``: learn on a table in several ways, and say which to use."""

from __future__ import annotations

import argparse
import pathlib
import textwrap

from ..compare.comparison import KEY, Comparison, Settings, TablePair, shipped
from ..compare.embedding_classifiers import SMOOTHNESS
from ..compare.reading import SUFFIXES
from ..compare.report import write_report
from ..compare.result import ComparisonResult
from ..compare.summary import explanation, overall, summary
from ..compare.tables import read_user_table
from ..compare.tasks import TASKS
from .options import Unfinished, common, ended, results_of

EXAMPLES = """examples:
  kernel-embed compare                                    iris and wine, which scikit-learn ships
  kernel-embed compare --data people.csv --target churned --drop name "phone number"
  kernel-embed compare --data houses.csv --target price   a number: distributions, intervals
  kernel-embed compare --data tables/ --all-rows --methods default logistic boosting
  kernel-embed compare --data train.csv --test test.csv --quick

Run the same command again to resume after an interruption. Runs with other --methods and the same --out are merged."""


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.formatter_class = argparse.RawDescriptionHelpFormatter
    command.description = (
        "Learn on a table in several ways, score them on rows they have not seen, and say which to use."
    )
    command.epilog = f"{_catalogue()}\n\n{EXAMPLES}"
    data = command.add_argument_group("the table")
    data.add_argument(
        "--data", type=pathlib.Path, help="a CSV or Parquet file, or a directory of them (default: iris, wine)"
    )
    data.add_argument(
        "--datasets", nargs="+", metavar="NAME", help="with a directory: only these files, by their stems"
    )
    data.add_argument("--target", metavar="COLUMN", help="the column to predict (default: 'target', else the last)")
    data.add_argument(
        "--task",
        choices=sorted(TASKS),
        help="classes or numbers (default: a target of many numbers is a regression)",
    )
    data.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    data.add_argument("--test", type=pathlib.Path, metavar="FILE", help="held-out rows to score on, instead of folds")
    how = command.add_argument_group("how to compare")
    how.add_argument("--methods", nargs="+", choices=_names(), metavar="LEARNER", help="only these of the lists below")
    how.add_argument(
        "--kernel", choices=sorted(SMOOTHNESS), default="rbf", help="of the learners that take one (default: rbf)"
    )
    how.add_argument("--folds", type=int, help="of the cross validation (default: 5; 2 with --quick)")
    how.add_argument("--seed", type=int, default=0, help="of the folds (default: 0)")
    limit = how.add_mutually_exclusive_group()
    limit.add_argument(
        "--budget",
        type=float,
        metavar="SECONDS",
        help="CPU seconds for one learner on one table, all folds together (default: 90; 20 with --quick); one "
        "that would take longer gets a part of the rows",
    )
    limit.add_argument("--all-rows", action="store_true", help="no budget: every learner has all rows")
    how.add_argument("--no-report", action="store_true", help="only the table and results.json, no pictures")
    common(command)


def _names() -> list[str]:
    return sorted({name for task in TASKS.values() for name in task.learners()})


def _catalogue() -> str:
    marks = "(those marked + need --methods, the others run by default if they are installed)"
    lines: list[str] = []
    for task in TASKS.values():
        lines += [f"learners for {task.name} {marks}:" if not lines else f"\nlearners for {task.name}:"]
        for name, learner in task.learners().items():
            mark = " " if learner.default else "+"
            first, *more = textwrap.wrap(learner.description, 54)
            lines += [f" {mark}{name:<23}{first}", *(" " * 25 + line for line in more)]
    return "\n".join(lines)


def run(options: argparse.Namespace) -> str:
    """Compare, write the report, and return the tables."""
    _check(options)
    tables, rejected = _tables(options)
    settings = _settings(options, tables[0][0].task)
    results = results_of(options, KEY)
    results.check_writable()
    comparison = Comparison(results, settings, options.out)
    comparison.run(tables)
    compared = [ComparisonResult(comparison, train, test) for train, test in tables]
    report = None if options.no_report else write_report(compared, options.out / "report.html")
    task, several = comparison.task, len(settings.methods) > 1
    text = "\n\n\n".join(summary(result.table, result.rows, task) for result in compared)
    if len(compared) > 2 and several:
        names = [result.table.name for result in compared]
        text += f"\n\n\n{overall(names, [result.rows for result in compared], settings.methods, task)}"
    text += f"\n\n{explanation(several, task)}"
    text += "".join(f"\n\nLeft out: {line}" for line in rejected)
    text += f"\n\nResults are in {options.out / 'results.json'}."
    text = ended(text, [] if report is None else [report], quick=options.quick)
    if not any(result.finished_rows for result in compared):
        raise Unfinished(text, "no learner finished; the table says why")
    if rejected and options.datasets:
        raise Unfinished(text, f"{len(rejected)} of {len(options.datasets)} tables could not be used")
    return text


def _check(options: argparse.Namespace) -> None:
    if options.folds is not None and options.folds < 2:
        raise ValueError(f"--folds must be at least 2, not {options.folds}.")
    if options.budget is not None and not options.budget > 0:
        raise ValueError(f"--budget must be positive, not {options.budget}. Give --all-rows for no limit.")
    if options.test is not None and options.data is not None and options.data.is_dir():
        raise ValueError("--test works with one table, not with a directory. Give --data FILE.")
    if options.data is None and (options.target is not None or options.test is not None or options.drop):
        raise ValueError("--target, --drop and --test need a table. Give --data FILE.")


def _settings(options: argparse.Namespace, name: str) -> Settings:
    budget = options.budget if options.budget is not None else (20.0 if options.quick else 90.0)
    methods = options.methods or TASKS[name].methods(options.quick)
    folds = 1 if options.test is not None else options.folds or (2 if options.quick else 5)
    return Settings(tuple(methods), options.kernel, folds, options.seed, None if options.all_rows else budget, name)


def _tables(options: argparse.Namespace) -> tuple[list[TablePair], list[str]]:
    """The tables, each with its test table, and one line for each file that was rejected."""
    if options.data is None:
        return shipped(), []
    if options.data.is_dir():
        return _directory(options)
    train = read_user_table(options.data, options.target, options.drop, task=options.task)
    if options.test is None:
        return [(train, None)], []
    return [(train, read_user_table(options.test, options.target, like=train))], []


def _directory(options: argparse.Namespace) -> tuple[list[TablePair], list[str]]:
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
    rejected += [
        f"{table.name}: not a target for {task}; name it with --datasets and --task"
        for table in tables
        if table.task != task
    ]
    return [(table, None) for table in tables if table.task == task], rejected


def _files(options: argparse.Namespace) -> list[pathlib.Path]:
    paths = {path.stem: path for path in sorted(options.data.iterdir()) if path.suffix.lower() in SUFFIXES}
    names = options.datasets or list(paths)
    missing = [name for name in names if name not in paths]
    if missing or not names:
        raise FileNotFoundError(
            f"No {', '.join(missing) or 'table'} in {options.data}. Tables there: {', '.join(paths) or 'none'}."
        )
    return [paths[name] for name in names]
