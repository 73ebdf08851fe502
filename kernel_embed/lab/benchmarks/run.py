"""``kernel-embed benchmark``: every measurement in turn, in one run; ratios to our own row, and exponents of growth."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Sequence
from functools import partial

import torch

from ...results import Record, Results, number
from ...validation import check_count
from ..runner import FAILURES, Case, Outcome, Skip, run_cases
from . import (
    classifiers,
    distributions,
    hypothesis,
    objectives,
    posteriors,
    potentials,
    recipe,
    scale,
    validity,
    votes,
)
from .measurement import PARTS, Measurement, Scope, measure

__all__ = ["PARTS", "run"]
KEY = ("experiment", "part", "name", "n", "threads", "repetition")
DEFAULT = ("objective", "classifier", "hypothesis", "posterior", "votes", "growth")
"""Run unless others are named: where we stand beside others. The rest are studies of one part each, and take longer."""
WHOLE = Scope()
SIZED = (classifiers.PART, classifiers.GROWTH, posteriors.PART, posteriors.FEW)
"""Sections whose sizes can be selected."""
STEEPEST = 3.3
"""The exponent of growth that is assumed for a case that was only run at a smaller size."""
_ = distributions, hypothesis, objectives, potentials, recipe, scale, validity, votes  # which register their parts


def run(
    results: Results,
    *,
    parts: Sequence[str] = DEFAULT,
    scope: Scope = WHOLE,
    sizes: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
    limit: float = 300.0,
    repeats: int = 1,
    progress: bool | None = None,
) -> Outcome:
    """Fill ``results`` with one record for each measurement that can be run here.

    Args:
        results: where records go; an interrupted run resumes.
        parts: names of :data:`PARTS`.
        scope: how large, and where the data are.
        sizes: only these sizes of the classifiers and of the posteriors beside Stan.
        names: only rows of these names.
        limit: skip a case that is expected to take more seconds, from its own smaller sizes.
        repeats: how often every case is run, all of them in turn; the summary shows medians.
        progress: show a progress bar.

    Returns:
        What was skipped, and what failed; both run again next time.
    """
    threads = torch.get_num_threads()
    failed: list[str] = []
    cases = []
    for repetition in range(check_count("repeats", repeats)):
        for part in parts:
            for one in PARTS[part](scope._replace(repetition=repetition)):
                if sizes is not None and one.part in SIZED and one.n not in sizes:
                    continue
                if names is None or one.name in names:
                    key: Record = {"experiment": "benchmark", "part": one.part, "name": one.name, "n": one.n}
                    key |= {"threads": threads, "repetition": repetition} if repetition else {"threads": threads}
                    call = partial(_measure, one, results, limit, threads, failed)
                    cases.append(Case(key, call, f"{one.name} (n = {one.n})"))
    outcome = run_cases(cases, results, name="benchmark", failures=(), progress=progress)
    return Outcome([line for line in outcome.skipped if line not in failed], failed)


def _measure(case: Measurement, results: Results, limit: float, threads: int, failed: list[str]) -> Record:
    torch.set_num_threads(threads)  # another library may have changed it
    if case.package and importlib.util.find_spec(case.package) is None:
        raise Skip(f"{case.package} is not installed (extra bench)")
    if (expected := _expected(case, results)) > limit:
        raise Skip(f"would take about {expected:.0f} s; raise --limit")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"against": case.against, **measure(case)}
    except ModuleNotFoundError as error:
        # What comes with us may be absent; a package that is installed and does not work is a failure.
        text, broken = str(error), bool(case.package)
    except (*FAILURES, AttributeError, TypeError) as error:
        text, broken = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}", True
    if broken:
        failed.append(f"{case.name} (n = {case.n}): {text}")
    raise Skip(text)


def _expected(case: Measurement, results: Results) -> float:
    """Seconds, from the largest smaller size of the same case."""
    same = [r for r in results.records if (r.get("part"), r.get("name")) == (case.part, case.name)]
    smaller = [r for r in same if number(r, "n") < case.n]
    if not smaller:
        return 0.0
    last = max(smaller, key=lambda record: number(record, "n"))
    growth: float = (case.n / number(last, "n")) ** STEEPEST
    return number(last, "seconds") * growth
