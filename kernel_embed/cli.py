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
    """A module of :mod:`kernel_embed.lab.commands`."""

    def add_arguments(self, command: argparse.ArgumentParser) -> None:
        """Add the options of the command."""

    def run(self, options: argparse.Namespace) -> str:
        """Run it, and return what to print."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 after one line on the error stream."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    command = _command(words)
    options = _parser(command).parse_args(words)
    assert command is not None  # parse_args has exited otherwise
    try:
        _print(command[1].run(options))
    except KeyboardInterrupt:
        print("kernel-embed: interrupted; run the same command again to resume", file=sys.stderr)
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
    """Print; a reader such as ``head`` that closes the pipe early is no error."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _command(arguments: Sequence[str]) -> tuple[str, Command] | None:
    """The first word and its module; ``None`` if it is no command, as for ``--help``."""
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
    for name, help_text in COMMANDS.items():
        subparser = commands.add_parser(name, help=help_text)
        if command is not None and command[0] == name:
            command[1].add_arguments(subparser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
