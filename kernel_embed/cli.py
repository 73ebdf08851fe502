"""The command ``kernel-embed``: compare learners, reproduce the papers, measure speed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .commands import benchmark, compare, reproduce
from .commands.options import Unfinished


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; 0 where it ended well, 2 with one line on the error stream where it did not."""
    options = _parser().parse_args(arguments)
    try:
        print(options.run(options))
    except KeyboardInterrupt:
        print("kernel-embed: interrupted; finished parts are kept and the same command goes on", file=sys.stderr)
        return 130
    except Unfinished as unfinished:
        print(unfinished.text)
        print(f"kernel-embed: {unfinished}", file=sys.stderr)
        return 2
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if options.debug:
            raise
        print(f"kernel-embed: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kernel-embed", description="Learned kernel embeddings, compared.")
    commands = parser.add_subparsers(dest="command", required=True)
    for module in (compare, reproduce, benchmark):
        module.add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
