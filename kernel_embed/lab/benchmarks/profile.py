"""Where the time of one evaluation goes: CPU milliseconds by piece, on the general road and in closed form."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections.abc import Iterator, Sequence
from functools import partial

from ...results import Record, group, number, table
from .cases import OURS, Call, Case, Scope
from .evaluation import WORK, evaluation, step, with_threads
from .leapfrog import LABELS, general_and_closed

WHERE = "where the time goes"
LEAPFROG, SMALL, LARGE = TITLES = (
    f"{WHERE}: one leapfrog step",
    f"{WHERE}: one evaluation of fit, leave-one-out risk",
    f"{WHERE}: objective and gradient",
)
GENERAL = "modules and autograd"
CLOSED = f"{OURS}: closed form"
RISK, SCORE = "LeaveOneOutRisk + RademacherComplexity", "LeaveOneOutScore"

PIECES: dict[str, tuple[str, ...]] = {
    "factor": ("linalg/dense.py factorize", "closed/factor.py factorize"),
    "inverse": ("linalg/dense.py _inverse", "closed/factor.py inverse", "closed/factor.py invert"),
    "solves": ("linalg/implicit.py solved", "closed/factor.py solve"),
    "products of n × n matrices": (
        "linalg/products.py updated_sandwich",
        "linalg/products.py mutual_product_",
        "linalg/implicit.py _between",
    ),
    "kernel and its gradient": ("kernels/radial.py forward", "kernels/radial.py backward", "closed/gram.py __call__",
                                "closed/gram.py gradient"),
    "priors": ("posteriors/site.py log_density", "closed/priors.py value", "closed/priors.py slope"),
    "copies of parameters": ("learning/parameters.py set", "learning/parameters.py gradient"),
    "checks of data": ("validation.py check_features", "validation.py check_labels"),
}  # fmt: skip
"""Functions by file, none of which calls another of the list; what is left is said as the rest."""
REST = "the rest: Python, small arrays, the graph"


def pieces(call: Call, repeats: int) -> Record:
    """CPU milliseconds of ``call`` and of its pieces, in the fastest of some runs."""
    call()
    best: dict[str, float] = {}
    for _ in range(repeats):
        profile = cProfile.Profile(time.process_time)
        profile.runcall(call)
        found = _by_piece(pstats.Stats(profile))
        if not best or found["all"] < best["all"]:
            best = found
    return {"seconds": best["all"], **{f"ms {name}": 1e3 * value for name, value in best.items()}}


def _by_piece(stats: pstats.Stats) -> dict[str, float]:
    found = dict.fromkeys(PIECES, 0.0)
    total: float = stats.total_tt  # type: ignore[attr-defined]
    for (file, _, function), (_, _, _, seconds, _) in stats.stats.items():  # type: ignore[attr-defined]
        for piece, names in PIECES.items():
            if any(f"{file} {function}".endswith(name) for name in names):
                found[piece] += seconds
    return {**found, REST: total - sum(found.values()), "all": total}


def _measure(call: Call, repeats: int) -> Record:
    with with_threads(1):
        return pieces(call, repeats)


def cases(scope: Scope) -> Iterator[Case]:
    """CPU time by piece of one leapfrog step, one evaluation of `fit` and one leave-one-out gradient."""
    small, large, repeats = (30, 100, 3) if scope.quick else (100, 1000, 20)
    for name, closed in ((GENERAL, False), (CLOSED, True)):
        leap = partial(_prepared, partial(general_and_closed, LABELS, small, closed), 10 * repeats)
        yield Case(LEAPFROG, name, small, leap, against=GENERAL)
    yield Case(SMALL, GENERAL, small, partial(_prepared, partial(evaluation, WORK[RISK], small), 10 * repeats),
               against=GENERAL)  # fmt: skip
    yield Case(SMALL, CLOSED, small, partial(_prepared, partial(step, WORK[RISK], small), 10 * repeats),
               against=GENERAL)  # fmt: skip
    for name in (RISK, SCORE):
        large_call = partial(_prepared, partial(evaluation, WORK[name], large), max(3, repeats // 4))
        yield Case(LARGE, f"{OURS}: {name}", large, large_call, against=f"{OURS}: {RISK}")


def _prepared(make: partial[Call], repeats: int) -> Call:
    return partial(_measure, make(), repeats)


def words(records: Sequence[Record]) -> str:
    """The pieces as rows, the cases as columns."""
    columns = group(records, lambda record: f"{record['name']}, n = {record['n']}")
    names = [*PIECES, REST, "all"]
    rows = [[name, *(_cell(found[0], name) for found in columns.values())] for name in names]
    shown = [row for row in rows if any(cell != "" for cell in row[1:])]
    return table(["CPU milliseconds", *map(str, columns)], shown)


def _cell(record: Record, name: str) -> str:
    value = number(record, f"ms {name}")
    return "" if value == 0.0 else f"{value:.3f}" if value < 10.0 else f"{value:.1f}"
