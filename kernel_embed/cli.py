"""The command ``kernel-embed``: compare learners, reproduce the papers."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence

from .experiments import (
    chains,
    compare,
    grid,
    iris,
    levels,
    mixtures,
    mnist,
    ozone,
    pixels,
    powers,
    type_two,
    uci,
    voted,
    voted_table,
)
from .experiments.data import ENVIRONMENT_VARIABLE
from .experiments.learners import LEARNERS
from .experiments.results import Record, Results
from .progress import progress_bar


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it ended well, 2 with one line on the error stream where it did not."""
    options = _parser().parse_args(arguments)
    try:
        print(_compare(options) if options.command == "compare" else _reproduce(options))
    except KeyboardInterrupt:
        print("kernel-embed: interrupted; finished parts are kept and the same command goes on", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        if options.debug:
            raise
        print(f"kernel-embed: {error}", file=sys.stderr)
        return 2
    return 0


def _compare(options: argparse.Namespace) -> str:
    results = Results(options.out / "results.json", compare.KEY)
    methods = options.methods or (("default", "rademacher 4e/n") if options.quick else compare.METHODS)
    folds = options.folds or (2 if options.quick else 5)
    tables = compare.shipped()
    compare.run(results, tables, methods=methods, folds=folds, seed=options.seed)
    chosen = [r for r in results.records if r["folds"] == folds and r["seed"] == options.seed]
    return f"{compare.summary(chosen)}\n\nResults are in {options.out / 'results.json'}."


def _reproduce(options: argparse.Namespace) -> str:
    table = REPRODUCTIONS[options.name](options)
    return f"{table}\n\nResults are in {options.out / 'results.json'}."


def _iris(options: argparse.Namespace) -> str:
    results = Results(options.out / "results.json", iris.KEY)
    iris.run(results, options.out, epochs=50 if options.quick else 500)
    return iris.summary(results.records)


def _uci(options: argparse.Namespace) -> str:
    results = Results(options.out / "results.json", uci.KEY)
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
    results = Results(options.out / "results.json", mnist.KEY)
    minutes = None if options.full else 30.0
    mnist.run(results, options.data, out=options.out, quick=options.quick, minutes=minutes)
    return mnist.summary(results.records)


def _pixels(options: argparse.Namespace) -> str:
    results = Results(options.out / "results.json", pixels.KEY)
    pixels.run(results, options.data, out=options.out, quick=options.quick)
    return pixels.summary(results.records)


def _two_sample(options: argparse.Namespace) -> str:
    return grid.summary(_evidence_curves(options, grid.run, "grid"))


def _witness(options: argparse.Namespace) -> str:
    curves = mixtures.summary(_evidence_curves(options, mixtures.run, "mixtures"))
    results = Results(options.out / "results.json", grid.KEY)
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
    results = Results(options.out / "results.json", ozone.KEY)
    small = {"num_permutations": 50, "num_columns": 3} if options.quick else {}
    ozone.run(results, options.data, **small)
    ozone.draw(results.records, options.out / "ozone.png")
    return ozone.summary(results.records)


def _evidence_curves(options: argparse.Namespace, run: Callable[..., None], experiment: str) -> list[Record]:
    fresh, results = (Results(path, grid.KEY) for path in (None, options.out / "results.json"))
    run(fresh, options.out, num_per_centre=10 if options.quick else 100)
    for record in fresh.records:
        if record not in results:
            results.add(record)
    return [record for record in results.records if record["experiment"] == experiment]


def _voted(options: argparse.Namespace) -> str:
    results = Results(options.out / "results.json", voted_table.Task._fields)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernel-embed", description="Learned kernel embeddings, compared.")
    commands = parser.add_subparsers(dest="command", required=True)

    command = commands.add_parser("compare", help="learn a kernel in several ways and compare them")
    _common(command)
    command.add_argument("--seed", type=int, default=0, help="of the folds")

    command = commands.add_parser("reproduce", help="a table or figure of the papers")
    command.add_argument("name", choices=list(REPRODUCTIONS))
    command.add_argument("--data", help=f"directory of the data sets (default: {ENVIRONMENT_VARIABLE}, else OpenML)")
    command.add_argument("--full", action="store_true", help="mnist: all 800 epochs, where 30 minutes are the default")
    command.add_argument("--datasets", nargs="+", help="only these data sets")
    command.add_argument("--repetitions", type=int, help="of a study: type-two, test-level, test-power")
    command.add_argument("--jobs", type=int, default=1, help="processes (voted)")
    _common(command)
    return parser


def _common(command: argparse.ArgumentParser) -> None:
    command.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"), help="directory for the results")
    command.add_argument("--methods", nargs="+", choices=sorted(LEARNERS), help="only these learners")
    command.add_argument("--folds", type=int, help="how many folds to run")
    command.add_argument("--quick", action="store_true", help="a small run, to see that everything works")
    command.add_argument("--debug", action="store_true", help="show the traceback of an error")


if __name__ == "__main__":
    sys.exit(main())
