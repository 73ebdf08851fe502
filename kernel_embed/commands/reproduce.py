"""``kernel-embed reproduce NAME``: a table or figure of the papers, our figures beside the printed ones."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from ..comparison.data import ENVIRONMENT_VARIABLE
from ..comparison.learners import LEARNERS
from ..papers.cortes2015 import voted, voted_table
from ..papers.flaxman2016 import chains, grid, levels, mixtures, ozone, powers, type_two
from ..papers.hsu2018 import iris, mnist, pixels, uci
from ..progress import progress_bar
from ..results import Record, Results
from .options import common, results_of


def add_parser(commands: Any) -> None:
    """The options of the command."""
    command = commands.add_parser("reproduce", help="a table or figure of the papers")
    command.add_argument("name", choices=list(REPRODUCTIONS))
    command.add_argument("--data", help=f"directory of the data sets (default: {ENVIRONMENT_VARIABLE}, else OpenML)")
    command.add_argument("--full", action="store_true", help="mnist: all 800 epochs, where 30 minutes are the default")
    command.add_argument("--epochs", type=int, help="mnist-cen: exactly so many, however long they take")
    command.add_argument("--datasets", nargs="+", help="only these data sets")
    command.add_argument("--repetitions", type=int, help="of a study: type-two, test-level, test-power")
    command.add_argument("--jobs", type=int, default=1, help="processes (voted)")
    command.add_argument("--methods", nargs="+", choices=sorted(LEARNERS), help="only these learners")
    command.add_argument("--folds", type=int, help="how many folds to run")
    common(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> str:
    """Reproduce, and return the table."""
    table = REPRODUCTIONS[options.name](options)
    return f"{table}\n\nResults are in {options.out / 'results.json'}."


def _iris(options: argparse.Namespace) -> str:
    results = results_of(options, iris.KEY)
    iris.run(results, options.out, epochs=50 if options.quick else 500)
    return iris.summary(results.records)


def _uci(options: argparse.Namespace) -> str:
    results = results_of(options, uci.KEY)
    uci.run(
        results,
        options.data,
        quick=options.quick,
        folds=options.folds,
        datasets=options.datasets,
        methods=options.methods,
    )
    return uci.summary(results.records)


def _mnist(options: argparse.Namespace) -> str:
    results = results_of(options, mnist.KEY)
    minutes = None if options.full or options.epochs else 30.0
    mnist.run(results, options.data, out=options.out, quick=options.quick, epochs=options.epochs, minutes=minutes)
    return mnist.summary(results.records)


def _pixels(options: argparse.Namespace) -> str:
    results = results_of(options, pixels.KEY)
    pixels.run(results, options.data, out=options.out, quick=options.quick)
    return pixels.summary(results.records)


def _two_sample(options: argparse.Namespace) -> str:
    return grid.summary(_evidence_curves(options, grid.run, "grid"))


def _witness(options: argparse.Namespace) -> str:
    curves = mixtures.summary(_evidence_curves(options, mixtures.run, "mixtures"))
    results = results_of(options, grid.KEY)
    if not any(record["experiment"] == "chains" for record in results.records):
        per_centre, draws = (10, 20) if options.quick else (100, 200)
        chains.run(results, options.out, num_per_centre=per_centre, num_draws=draws)
    return f"{curves}\n\n{chains.summary([r for r in results.records if r['experiment'] == 'chains'])}"


def _type_two(options: argparse.Namespace) -> str:
    count = options.repetitions or (2 if options.quick else 100)
    study = type_two.run(options.out / "results.json", count, num_per_centre=10 if options.quick else 100)
    type_two.draw(study, options.out / "figure2c.png")
    return type_two.summary(study)


def _test_level(options: argparse.Namespace) -> str:
    count = options.repetitions or (5 if options.quick else 1000)
    return levels.summary(levels.run(options.out / "results.json", count, max(2, count // 5)))


def _test_power(options: argparse.Namespace) -> str:
    count = options.repetitions or (3 if options.quick else 100)
    return powers.summary(powers.run(options.out / "results.json", options.data, count))


def _ozone(options: argparse.Namespace) -> str:
    results = results_of(options, ozone.KEY)
    small = {"num_permutations": 50, "num_columns": 3} if options.quick else {}
    ozone.run(results, options.data, **small)
    ozone.draw(results.records, options.out / "ozone.png")
    return ozone.summary(results.records)


def _evidence_curves(options: argparse.Namespace, run: Callable[..., None], experiment: str) -> list[Record]:
    fresh, results = Results(None, grid.KEY), results_of(options, grid.KEY)
    run(fresh, options.out, num_per_centre=10 if options.quick else 100)
    for record in fresh.records:
        if record not in results:
            results.add(record)
    return [record for record in results.records if record["experiment"] == experiment]


def _voted(options: argparse.Namespace) -> str:
    results = results_of(options, voted_table.Task._fields)
    with progress_bar(None, "voted") as bar:

        def record(result: Record) -> None:
            results.add(result)
            bar.update()

        voted.run(
            options.data,
            quick=options.quick,
            folds=options.folds,
            datasets=options.datasets,
            jobs=options.jobs,
            finished=results.records,
            record=record,
        )
    return voted_table.text(results.records)


REPRODUCTIONS: dict[str, Callable[[argparse.Namespace], str]] = {
    "iris": _iris,
    "uci": _uci,
    "mnist-cen": _mnist,
    "mnist-pixels": _pixels,
    "two-sample": _two_sample,
    "witness": _witness,
    "type-two": _type_two,
    "ozone": _ozone,
    "test-level": _test_level,
    "test-power": _test_power,
    "voted": _voted,
}
"""The tables and figures of the papers by name."""
