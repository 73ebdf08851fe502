"""``kernel-embed benchmark``: every case in turn, in one run; ratios to our own row, and exponents of growth."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence

import torch

from ...progress import progress_bar
from ...results import Record, Results, number
from ...validation import check_count
from ..runner import FAILURES
from . import (
    bounds,
    calculus,
    chains,
    classifier,
    distributions,
    evaluation,
    evidence,
    hypothesis,
    laws,
    leapfrog,
    posterior,
    profile,
    recipe,
    scale,
    score,
    sizes,
    stan,
    tables,
    votes,
    votes_path,
)
from .cases import Case, Scope, run_case
from .summary import Outcome

KEY = ("experiment", "part", "name", "n", "threads", "repetition")
PARTS: dict[str, Callable[[Scope], Iterator[Case]]] = {
    "objective": evaluation.cases,
    "classifier": classifier.cases,
    "hypothesis": hypothesis.cases,
    "posterior": posterior.cases,
    "votes": votes.cases,
    "growth": classifier.growth_cases,
    "evidence": evidence.cases,
    "large-tests": hypothesis.large_cases,
    "stan": stan.cases,
    "stan-few": stan.small_cases,
    "leapfrog": leapfrog.cases,
    "recipe": recipe.cases,
    "chains": chains.cases,
    "million": scale.million_cases,
    "ranks": scale.ranks_cases,
    "sizes": sizes.cases,
    "votes-path": votes_path.cases,
    "distributions": distributions.table_cases,
    "laws": laws.cases,
    "many-rows": laws.many_cases,
    "bounds": bounds.cases,
    "calculus": calculus.cases,
    "gradients": evaluation.growth_cases,
    "small": evaluation.small_cases,
    "profile": profile.cases,
    "single": evaluation.single_cases,
    "score": score.cases,
    "tables": tables.cases,
    "million-rows": tables.million_cases,
}
"""By the name that ``--parts`` takes."""
DEFAULT = ("objective", "classifier", "hypothesis", "posterior", "votes", "growth")
"""Run unless others are named: where we stand beside others. The rest are studies of one part each, and take longer."""
WHOLE = Scope()
SIZED = (classifier.PART, classifier.GROWTH, posterior.PART, stan.FEW)
"""Parts whose sizes can be chosen."""
STEEPEST = 3.3
"""The growth that is expected of a case that was only run at a smaller size."""


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
    """Fill ``results`` with one record for each case that can be run here.

    Args:
        results: where records go; what an interrupted run finished is not run again.
        parts: names of :data:`PARTS`.
        scope: how large, and where the data are.
        sizes: of the classifiers and of the posteriors beside Stan, to run only these.
        names: of whose rows, to run only these.
        limit: seconds that one case may be expected to take, from its own smaller sizes.
        repeats: how often every case is run, all of them in turn; the summary shows medians.
        progress: show a progress bar.
    """
    outcome, threads = Outcome([], []), torch.get_num_threads()
    runs = [
        (case, repetition)
        for repetition in range(check_count("repeats", repeats))
        for part in parts
        for case in PARTS[part](scope._replace(repetition=repetition))
        if (sizes is None or case.part not in SIZED or case.n in sizes) and (names is None or case.name in names)
    ]
    with progress_bar(len(runs), "benchmark", progress) as bar:
        for case, repetition in runs:
            bar.set_postfix_str(f"{case.part}, {case.name}, n = {case.n}")
            name: Record = {"experiment": "benchmark", "part": case.part, "name": case.name, "n": case.n}
            name["threads"] = threads
            if repetition:
                name["repetition"] = repetition
            if name not in results:
                torch.set_num_threads(threads)  # as it was found: a peer may have changed it
                _measure(case, name, results, limit, outcome)
            bar.update()
    return outcome


def _measure(case: Case, name: Record, results: Results, limit: float, outcome: Outcome) -> None:
    label = f"{case.name} (n = {case.n})"
    if case.package and importlib.util.find_spec(case.package) is None:
        outcome.skipped.append(f"{label}: {case.package} is not installed (extra bench)")
        return
    expected = _expected(case, results)
    if expected > limit:
        outcome.skipped.append(f"{label}: would take about {expected:.0f} s; raise --limit")
        return
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            record = run_case(case)
    except ModuleNotFoundError as error:
        # A part of ours or of a peer that is not there; a peer that is there and does not work is another matter.
        place = outcome.failed if case.package else outcome.skipped
        place.append(f"{label}: {error}")
        return
    except (*FAILURES, AttributeError, TypeError) as error:
        outcome.failed.append(f"{label}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
        return
    results.add({**name, "against": case.against, **record})


def _expected(case: Case, results: Results) -> float:
    """Seconds, from the largest smaller size of the same case."""
    same = [r for r in results.records if (r.get("part"), r.get("name")) == (case.part, case.name)]
    smaller = [r for r in same if number(r, "n") < case.n]
    if not smaller:
        return 0.0
    last = max(smaller, key=lambda record: number(record, "n"))
    growth: float = (case.n / number(last, "n")) ** STEEPEST
    return number(last, "seconds") * growth
