"""The command ``kernel-embed``: compare learners, reproduce the papers, measure speed."""

from __future__ import annotations

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

from .lab.commands import COMMANDS
from .progress import printable
from .version import __version__

EXAMPLES = """examples:
  kernel-embed compare --data people.csv --target churned
  kernel-embed reproduce --list

Run kernel-embed COMMAND --help for the options of a command."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, or 2 after one line on the error stream."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    options = _parser(words[0] if words else "").parse_args(words)
    try:
        text, problem = COMMANDS[options.command].run(options)
    except KeyboardInterrupt:
        print("kernel-embed: interrupted; run the same command again to resume", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if options.debug:
            raise
        text, problem = "", " ".join(str(error).split()) or type(error).__name__
    if text:
        _print(text)
    if problem:
        print(f"kernel-embed: {printable(problem)}", file=sys.stderr)
    return 2 if problem else 0


def _print(text: str) -> None:
    """Print; it is not an error if a reader such as ``head`` closes the pipe early."""
    try:
        print(printable(text), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _parser(name: str) -> argparse.ArgumentParser:
    """The parser, with the options of the command ``name`` only: they need its modules."""
    raw = argparse.RawDescriptionHelpFormatter
    words = "Learned kernel embeddings: compare, reproduce, measure."
    parser = argparse.ArgumentParser("kernel-embed", description=words, epilog=EXAMPLES, formatter_class=raw)
    parser.add_argument("--version", action="version", version=f"kernel-embed {__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for one, command in COMMANDS.items():
        subparser = commands.add_parser(one, help=command.help, formatter_class=raw)
        if one == name:
            command.add_options(subparser)
            add, out = subparser.add_argument_group("the run").add_argument, pathlib.Path("results")
            words = "directory for the results (default: results)"
            add("--out", type=pathlib.Path, default=out, metavar="DIR", help=words)
            add("--quick", action="store_true", help="a small run, to see that everything works")
            add("--debug", action="store_true", help="show the traceback of an error")
    return parser


if __name__ == "__main__":
    sys.exit(main())
