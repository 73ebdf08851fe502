"""Run cases and keep their records: resume, parallel jobs, time budget, progress and failures, for the whole lab.

A case is a key (the fields that name it) and a function that returns flat records. Cases with records in the results
file are skipped, so that an interrupted run resumes exactly where it stopped:

    results = Results(out / "results.json", key=("dataset", "fold"))
    run_cases([Case({"dataset": name, "fold": fold}, partial(score, name, fold)) for fold in range(5)], results)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence, Sized
from contextlib import closing
from typing import NamedTuple

from linear_operator.utils.errors import NanError, NotPSDError

from ..progress import progress_bar
from ..results import Record, Results

FAILURES = (ValueError, ArithmeticError, MemoryError, ImportError, RuntimeError, NotPSDError, NanError)
"""What learners raise on data they cannot handle."""
LEFT_OUT = "left_out"
"""The field of a record that says why a case has no figures."""


class Case(NamedTuple):
    """One unit of work.

    Attributes:
        key: the fields that name it; they are added to each of its records.
        run: returns one record or several. With several jobs it runs in another process and must be picklable, such
            as a ``functools.partial`` of a module's function.
        label: shown beside the progress bar and in messages; the values of the key by default.
    """

    key: Record
    run: Callable[[], Record | Sequence[Record]]
    label: str = ""

    def __str__(self) -> str:
        return self.label or ", ".join(str(value) for value in self.key.values())


class Skip(Exception):
    """Raised by a case that cannot run here, for example because a package is missing; nothing is recorded."""


class Outcome(NamedTuple):
    """What a run left open, one line for each case: ``skipped`` ones run next time, ``failed`` ones are recorded."""

    skipped: list[str]
    failed: list[str]


def run_cases(
    cases: Iterable[Case],
    results: Results,
    *,
    name: str = "cases",
    total: int | None = None,
    jobs: int = 1,
    seconds: float | None = None,
    failures: tuple[type[Exception], ...] = FAILURES,
    progress: bool | None = None,
) -> Outcome:
    """Run the cases that have no records yet, in order, and write their records as each one finishes.

    Args:
        cases: a list, or a generator that is read as the work proceeds.
        results: where records are found and written; each case's records are written together, as soon as writing does
            not slow the run down.
        name: shown before the progress bar.
        total: how many cases there are, where ``cases`` is a generator.
        jobs: processes; with one, cases run in this process.
        seconds: start no further case after this long.
        failures: exceptions that become a record with the field ``left_out``; others stop the run.
        progress: show a progress bar; ``None`` shows it on a terminal or in a notebook.

    Returns:
        What was skipped or failed.

    Example:
        >>> results = Results(None, key=["n"])
        >>> outcome = run_cases([Case({"n": n}, lambda n=n: {"value": 1 / n}) for n in (2, 0)], results)
        >>> [record.get("value", record.get("left_out")) for record in results.records]
        [0.5, 'ZeroDivisionError: division by zero']
    """
    outcome = Outcome([], [])
    deadline = None if seconds is None else time.monotonic() + seconds
    if total is None and isinstance(cases, Sized):
        total = len(cases)
    with progress_bar(total, name, progress) as bar:
        missing = _missing(cases, results, bar.update)
        attempts = (
            _sequential(missing, failures, bar.set_postfix_str) if jobs <= 1 else _parallel(missing, failures, jobs)
        )
        pending, next_write = False, 0.0
        try:
            with closing(attempts):
                for case, answer in attempts:
                    records = _records(case, answer, outcome)
                    results.extend(records, write=False)
                    pending = pending or bool(records)
                    start = time.monotonic()
                    if pending and start >= next_write:
                        results.write()
                        # so that large files take a twentieth of the time
                        pending, next_write = False, start + 21.0 * (time.monotonic() - start)
                    bar.update()
                    if deadline is not None and time.monotonic() > deadline:
                        break
        finally:
            if pending:
                results.write()
    return outcome


def finished(records: Iterable[Record]) -> list[Record]:
    """The records that have figures."""
    return [record for record in records if LEFT_OUT not in record]


def first_line(error: BaseException) -> str:
    """The type of an error and the first line of its text, at most 200 characters."""
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"


Answer = list[Record] | Skip | str
"""Records, or why there are none: skipped, or the text of a failure."""


def _missing(cases: Iterable[Case], results: Results, skip: Callable[[], object]) -> Iterator[Case]:
    """The cases without records. A case has records if one agrees with it in every field of its key."""
    recorded: dict[tuple[str, ...], set[tuple[Hashable, ...]]] = {}
    counts: dict[tuple[str, ...], int] = {}
    for case in cases:
        fields = tuple(case.key)
        keys, count = recorded.setdefault(fields, set()), counts.get(fields, 0)
        # another run may have added records to the same file meanwhile
        keys.update(tuple(record.get(field) for field in fields) for record in results.records[count:])
        counts[fields] = len(results.records)
        if tuple(case.key.values()) in keys:
            skip()
        else:
            yield case


def _attempt(case: Case, failures: tuple[type[Exception], ...]) -> Answer:
    try:
        records = case.run()
    except Skip as skip:
        return skip
    except failures as error:
        return first_line(error)
    return [records] if isinstance(records, dict) else list(records)


def _sequential(
    cases: Iterator[Case], failures: tuple[type[Exception], ...], show: Callable[[str], object]
) -> Generator[tuple[Case, Answer], None, None]:
    for case in cases:
        show(str(case))
        yield case, _attempt(case, failures)


def _parallel(
    cases: Iterator[Case], failures: tuple[type[Exception], ...], jobs: int
) -> Generator[tuple[Case, Answer], None, None]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # spawn: a fork would copy the state of threads that are not copied with it
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        for case, future in [(case, pool.submit(_attempt, case, failures)) for case in cases]:
            yield case, future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _records(case: Case, answer: Answer, outcome: Outcome) -> list[Record]:
    if isinstance(answer, Skip):
        outcome.skipped.append(f"{case}: {answer}")
        return []
    if isinstance(answer, str):
        outcome.failed.append(f"{case}: {answer}")
        return [{**case.key, LEFT_OUT: answer}]
    return [{**case.key, **record} for record in answer]
