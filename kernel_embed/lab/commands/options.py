"""Options and messages that all commands share."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence

from ...results import Results


def common(command: argparse.ArgumentParser) -> None:
    """Add the options of every command."""
    run = command.add_argument_group("the run")
    run.add_argument(
        "--out",
        type=pathlib.Path,
        default=pathlib.Path("results"),
        metavar="DIR",
        help="directory for the results (default: results)",
    )
    run.add_argument("--quick", action="store_true", help="a small run, to see that everything works")
    run.add_argument("--debug", action="store_true", help="show the traceback of an error")


def results_of(options: argparse.Namespace, key: Sequence[str]) -> Results:
    """The records in ``--out``, with those of earlier runs."""
    return Results(options.out / "results.json", key)


def ended(text: str, pictures: Sequence[pathlib.Path], *, quick: bool) -> str:
    """``text`` with a last line that names the pictures and, after ``--quick``, warns that the run is too short."""
    words = ["--quick runs are too short for conclusions."] if quick else []
    words += [f"Pictures: {', '.join(map(str, pictures))}."] if pictures else []
    return f"{text}\n{' '.join(words)}" if words else text


class Unfinished(Exception):
    """The command ended, but a part of it failed: the text is shown, and the exit code is not 0.

    Attributes:
        text: what it reached.
    """

    def __init__(self, text: str, message: str) -> None:
        super().__init__(message)
        self.text = text
