"""``kernel-embed compare``: learn a kernel in every way on one table, and say which to use."""

from __future__ import annotations

import argparse
import pathlib
import textwrap

from ..compare import runner
from ..compare.initialization import SMOOTHNESS
from ..compare.reading import SUFFIXES
from ..compare.report import write_report
from ..compare.result import ComparisonResult
from ..compare.summary import explanation, overall, summary
from ..compare.tables import UserTable, read_user_table
from ..compare.task import TASKS
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
        "Learn on a table in several ways, judge them on rows they have not seen, and say which to use."
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
    data.add_argument("--test", type=pathlib.Path, metavar="FILE", help="held-out rows to judge on, in place of folds")
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
    return sorted({name for task in TASKS.values() for name in task.learners("rbf")})


def _catalogue() -> str:
    marks = "(those marked + need --methods, the others run by default where they are installed)"
    lines: list[str] = []
    for task in TASKS.values():
        lines += [f"learners for {task.name} {marks}:" if not lines else f"\nlearners for {task.name}:"]
        for name, learner in task.learners("rbf").items():
            mark = " " if name in task.methods else "+"
            first, *more = textwrap.wrap(learner.words, 54)
            lines += [f" {mark}{name:<23}{first}", *(" " * 25 + line for line in more)]
    return "\n".join(lines)


def run(options: argparse.Namespace) -> str:
    """Compare, write the report, and return the tables."""
    _check(options)
    tables, refused = _tables(options)
    settings = _settings(options, tables[0][0].task)
    results = results_of(options, runner.KEY)
    results.check_writable()
    comparison = runner.Comparison(results, settings, options.out)
    comparison.run(tables)
    found = [ComparisonResult(comparison, train, test) for train, test in tables]
    report = None if options.no_report else write_report(found, options.out / "report.html")
    text = "\n\n\n".join(summary(one.table, one.rows, comparison.task) for one in found)
    if len(found) > 2 and len(settings.methods) > 1:
        names = [one.table.name for one in found]
        text += f"\n\n\n{overall(names, [one.rows for one in found], settings.methods, comparison.task)}"
    text += f"\n\n{explanation(len(settings.methods) > 1, comparison.task)}"
    text += "".join(f"\n\nLeft out: {line}" for line in refused)
    text += f"\n\nResults are in {options.out / 'results.json'}."
    text = ended(text, [] if report is None else [report], quick=options.quick)
    if not any(one.finished for one in found):
        raise Unfinished(text, "no learner finished; the table says why")
    if refused and options.datasets:
        raise Unfinished(text, f"{len(refused)} of {len(options.datasets)} tables could not be used")
    return text


def _check(options: argparse.Namespace) -> None:
    if options.folds is not None and options.folds < 2:
        raise ValueError(f"Expected --folds of at least 2, got {options.folds}. Give --folds 5, which is usual.")
    if options.budget is not None and not options.budget > 0:
        raise ValueError(
            f"Expected --budget above 0 seconds, got {options.budget}. "
            "Give a positive number of seconds, or leave it out for no limit."
        )
    if options.test is not None and options.data is not None and options.data.is_dir():
        raise ValueError("Expected one table with --test, got a directory. Give --data FILE.")
    if options.data is None and (options.target is not None or options.test is not None or options.drop):
        raise ValueError("Expected --data FILE with --target, --drop or --test, got none. Name the table, --data FILE.")


def _settings(options: argparse.Namespace, name: str) -> runner.Settings:
    task = TASKS[name]
    budget = options.budget if options.budget is not None else (20.0 if options.quick else 90.0)
    methods = options.methods or task.installed(task.quick if options.quick else task.methods)
    folds = 1 if options.test is not None else options.folds or (2 if options.quick else 5)
    limit = None if options.all_rows else budget
    return runner.Settings(tuple(methods), options.kernel, folds, options.seed, limit, task.name)


def _tables(options: argparse.Namespace) -> tuple[list[tuple[UserTable, UserTable | None]], list[str]]:
    """The tables, each with its test table, and one line for each file that is none."""
    if options.data is None:
        return runner.shipped(), []
    if options.data.is_dir():
        return _directory(options)
    train = read_user_table(options.data, options.target, options.drop, task=options.task)
    if options.test is None:
        return [(train, None)], []
    return [(train, read_user_table(options.test, options.target, like=train))], []


def _directory(options: argparse.Namespace) -> tuple[list[tuple[UserTable, UserTable | None]], list[str]]:
    tables: list[tuple[UserTable, UserTable | None]] = []
    refused = []
    for path in _files(options):
        try:
            tables.append((read_user_table(path, options.target, options.drop, task=options.task), None))
        except (ValueError, OSError, ImportError) as error:
            refused.append(f"{path.name}: {' '.join(str(error).split())}")
    if not tables:
        raise ValueError(f"Expected a table to learn from in {options.data}, got none. {' '.join(refused)}")
    # One comparison is of one kind: classes where there are any.
    first = min(tables, key=lambda pair: pair[0].task)[0].task
    others = [train.name for train, _ in tables if train.task != first]
    refused += [
        f"{name}: its target is another kind than {first}; name it with --datasets and --task" for name in others
    ]
    return [pair for pair in tables if pair[0].task == first], refused


def _files(options: argparse.Namespace) -> list[pathlib.Path]:
    found = {path.stem: path for path in sorted(options.data.iterdir()) if path.suffix.lower() in SUFFIXES}
    names = options.datasets or list(found)
    missing = [name for name in names if name not in found]
    if missing or not names:
        known = ", ".join(found) or "none"
        raise FileNotFoundError(
            f"Expected {', '.join(missing) or 'a table'} in {options.data}, got none. Tables there: {known}."
        )
    return [found[name] for name in names]
