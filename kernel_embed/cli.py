"""The command ``kernel-embed``: compare learners, reproduce the papers, measure speed."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Protocol, cast

from .lab.commands.options import Unfinished
from .version import __version__

COMMANDS = {
    "compare": "learn a kernel in several ways and compare them",
    "reproduce": "run a table or figure of the papers again",
    "benchmark": "measure speed beside other libraries, as ratios",
}
"""Every command with its line of help: a module of :mod:`kernel_embed.lab.commands`, imported when it is called."""


EXAMPLES = """examples:
  kernel-embed compare --data people.csv --target churned
  kernel-embed reproduce --list

Run kernel-embed COMMAND --help for the options of a command."""


class Command(Protocol):
    """What a module of :mod:`kernel_embed.lab.commands` offers."""

    def add_arguments(self, command: argparse.ArgumentParser) -> None:
        """The options of the command."""

    def run(self, options: argparse.Namespace) -> str:
        """What it prints."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it ended well, 2 with one line on the error stream where it did not."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = _command(given)
    options = _parser(command).parse_args(given)
    assert command is not None  # parse_args has left with its own words otherwise
    try:
        _print(command[1].run(options))
    except KeyboardInterrupt:
        print("kernel-embed: interrupted; finished parts are kept and the same command goes on", file=sys.stderr)
        return 130
    except Unfinished as unfinished:
        _print(unfinished.text)
        print(f"kernel-embed: {unfinished}", file=sys.stderr)
        return 2
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if options.debug:
            raise
        print(f"kernel-embed: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _print(text: str) -> None:
    """To the output; a reader such as ``head`` that has seen enough is no error, and the rest goes nowhere."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(arguments: Sequence[str]) -> tuple[str, Command] | None:
    """The command that is named first, with its room; ``--help`` alone needs none of them."""
    if not arguments or arguments[0] not in COMMANDS:
        return None
    return arguments[0], cast(Command, importlib.import_module(f".lab.commands.{arguments[0]}", __package__))


def _parser(command: tuple[str, Command] | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kernel-embed",
        description="Learned kernel embeddings: compare, reproduce, measure.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"kernel-embed {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, words in COMMANDS.items():
        added = commands.add_parser(name, help=words)
        if command is not None and command[0] == name:
            command[1].add_arguments(added)
    return parser


if __name__ == "__main__":
    sys.exit(main())
