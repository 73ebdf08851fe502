"""``kernel-embed compare``: learn a kernel in every way on one table, and say which to use."""

from __future__ import annotations

import argparse
import pathlib

from ..comparison import study
from ..comparison.learners import learners
from ..comparison.ranking import rows_of
from ..comparison.reading import SUFFIXES
from ..comparison.report import write_report
from ..comparison.starts import SMOOTHNESS
from ..comparison.summary import overall, summary
from ..comparison.tables import UserTable, read_user_table
from .options import Unfinished, common, results_of


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument(
        "--data", type=pathlib.Path, help="a CSV or Parquet file, or a directory of them (default: iris, wine)"
    )
    command.add_argument("--datasets", nargs="+", help="with a directory: only these files, without their ending")
    command.add_argument("--target", help="the column to predict (default: 'target', else the last)")
    command.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to leave out")
    command.add_argument("--test", type=pathlib.Path, help="a file of held-out rows, in place of folds")
    command.add_argument("--methods", nargs="+", choices=sorted(learners()), help="only these learners")
    command.add_argument("--kernel", choices=sorted(SMOOTHNESS), default="rbf", help="of the learners that take one")
    command.add_argument("--folds", type=int, help="of the cross validation (default: 5; 2 with --quick)")
    command.add_argument("--seed", type=int, default=0, help="of the folds")
    limit = command.add_mutually_exclusive_group()
    limit.add_argument(
        "--budget",
        type=float,
        help="seconds of the processor for one learner on one table, all folds together (default: 90; 20 with "
        "--quick); one that would take longer is learned on a part of the rows",
    )
    limit.add_argument("--all-rows", action="store_true", help="no budget: every learner has all rows")
    command.add_argument("--no-report", action="store_true", help="only the table and results.json, no pictures")
    common(command)


def run(options: argparse.Namespace) -> str:
    """Compare, write the report, and return the tables."""
    settings = _settings(options)
    tables, refused = _tables(options)
    results = results_of(options, study.KEY)
    results.check_writable()
    comparison = study.Comparison(results, settings, options.out)
    comparison.run(tables)
    ranked = [(train, test, rows_of(comparison.records(train), comparison.arrays)) for train, test in tables]
    report = None if options.no_report else write_report(comparison, ranked, options.out / "report.html")
    text = "\n\n\n".join(summary(train, rows) for train, _, rows in ranked)
    if len(ranked) > 2:
        text += f"\n\n\n{overall([rows for *_, rows in ranked], settings.methods)}"
    text += "".join(f"\n\nLeft out: {line}" for line in refused)
    text += f"\n\nResults are in {options.out / 'results.json'}"
    text += "." if report is None else f", pictures and words in {report}."
    if not any(row.finished for *_, rows in ranked for row in rows):
        raise Unfinished(text, "no learner finished; the table says why")
    if refused and options.datasets:
        raise Unfinished(text, f"{len(refused)} of {len(options.datasets)} tables could not be used")
    return text


def _settings(options: argparse.Namespace) -> study.Settings:
    if options.folds is not None and options.folds < 2:
        raise ValueError(f"Expected --folds of at least 2, got {options.folds}.")
    budget = options.budget if options.budget is not None else (20.0 if options.quick else 90.0)
    if not budget > 0:
        raise ValueError(f"Expected --budget above 0 seconds, got {budget}.")
    if options.test is not None and options.data is not None and options.data.is_dir():
        raise ValueError("Expected one table with --test, got a directory.")
    if options.data is None and (options.target is not None or options.test is not None or options.drop):
        raise ValueError("Expected --data FILE with --target, --drop or --test, got none.")
    methods = options.methods or (study.QUICK_METHODS if options.quick else study.METHODS)
    folds = 1 if options.test is not None else options.folds or (2 if options.quick else 5)
    return study.Settings(tuple(methods), options.kernel, folds, options.seed, None if options.all_rows else budget)


def _tables(options: argparse.Namespace) -> tuple[list[tuple[UserTable, UserTable | None]], list[str]]:
    """The tables, each with its test table, and one line for each file that is none."""
    if options.data is None:
        return study.shipped(), []
    if options.data.is_dir():
        return _directory(options)
    train = read_user_table(options.data, options.target, options.drop)
    if options.test is None:
        return [(train, None)], []
    return [(train, read_user_table(options.test, options.target, like=train))], []


def _directory(options: argparse.Namespace) -> tuple[list[tuple[UserTable, UserTable | None]], list[str]]:
    tables: list[tuple[UserTable, UserTable | None]] = []
    refused = []
    for path in _files(options):
        try:
            tables.append((read_user_table(path, options.target, options.drop), None))
        except (ValueError, OSError, ImportError) as error:
            refused.append(f"{path.name}: {' '.join(str(error).split())}")
    if not tables:
        raise ValueError(f"Expected a table to learn from in {options.data}, got none. {' '.join(refused)}")
    return tables, refused


def _files(options: argparse.Namespace) -> list[pathlib.Path]:
    found = {path.stem: path for path in sorted(options.data.iterdir()) if path.suffix.lower() in SUFFIXES}
    names = options.datasets or list(found)
    missing = [name for name in names if name not in found]
    if missing or not names:
        known = ", ".join(found) or "none"
        raise FileNotFoundError(f"Expected {', '.join(missing) or 'a table'} in {options.data}. Tables there: {known}.")
    return [found[name] for name in names]
