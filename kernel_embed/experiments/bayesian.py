"""Every figure of the Bayesian kernel embeddings: ``python -m kernel_embed.experiments.bayesian --out DIR``."""

from __future__ import annotations

import argparse
import pathlib
import sys
from collections.abc import Sequence

from . import grid, mixtures
from .results import Results

KEY = ("experiment", "kind", "lengthscale")


def run(results: Results, out: pathlib.Path | None = None, *, quick: bool = False) -> None:
    """Grid of Gaussians and mixtures on the line; ``quick`` takes a tenth of the points."""
    for module in (mixtures, grid):
        part = Results(None, module.KEY)
        module.run(part, out, num_per_centre=10 if quick else 100)
        for record in part.records:
            if record not in results:
                results.add(record)


def summary(records: list[dict[str, str | int | float | bool | None]]) -> str:
    """Both tables."""
    parts = ((mixtures, "mixtures"), (grid, "grid"))
    return "\n\n".join(m.summary([r for r in records if r["experiment"] == name]) for m, name in parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Write ``results.json`` and the figures into a directory, and the tables to the terminal."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results"), help="directory for the results")
    parser.add_argument("--quick", action="store_true", help="a tenth of the points")
    options = parser.parse_args(arguments)
    results = Results(options.out / "results.json", KEY)
    run(results, options.out, quick=options.quick)
    sys.stdout.write(summary(results.records) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
