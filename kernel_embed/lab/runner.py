"""Run cases and keep their records: resume, parallel jobs, time and memory, progress and failures, for the whole lab.

Cases with records in the results file are skipped, so that an interrupted run resumes exactly where it stopped. Budgets
are CPU time, so that a busy machine does not cut learners short, and two runs cut them alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import pathlib
import time
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
from linear_operator.utils.errors import NanError, NotPSDError
from numpy.typing import NDArray
from sklearn.utils.validation import has_fit_parameter

from ..results import Record, Results
from ..runtime import printable, progress_bar
from ..splits import proportional_sample

FAILURES = (ValueError, ArithmeticError, MemoryError, ImportError, RuntimeError, NotPSDError, NanError)
"""Errors that learners raise on data they cannot handle."""
LEFT_OUT = "left_out"
"""The field of a record that says why a case has no figures."""


class Case(NamedTuple):
    """A key, the fields that name the case and are added to its records, and a function that returns its record(s).

    With several jobs, ``run`` must be picklable, such as a ``functools.partial`` of a module's function. ``label`` is
    shown in messages, by default the values of the key.
    """

    key: Record
    run: Callable[[], Record | Sequence[Record]]
    label: str = ""

    def __str__(self) -> str:
        return self.label or ", ".join(str(value) for value in self.key.values())


class Skip(Exception):
    """Raised by a case that cannot run here, for example because a package is missing; nothing is recorded."""


class Outcome(NamedTuple):
    """Unfinished cases, one line each: ``skipped`` ones run next time, ``failed`` ones are recorded."""

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

    After ``seconds`` no further case is started. Exceptions of the types ``failures`` become a record with the field
    ``left_out``; others stop the run. With ``jobs`` above 1, cases run in that many processes.

    Example:
        >>> results = Results(None, key=["n"])
        >>> outcome = run_cases([Case({"n": n}, lambda n=n: {"value": 1 / n}) for n in (2, 0)], results)
        >>> [record.get("value", record.get("left_out")) for record in results.records]
        [0.5, 'ZeroDivisionError: division by zero']
    """
    outcome, deadline = Outcome([], []), time.monotonic() + (math.inf if seconds is None else seconds)
    total = len(cases) if total is None and isinstance(cases, Sized) else total
    with progress_bar(total, name, progress, log=True) as bar:
        attempts = _attempts(_missing(cases, results, bar.update), failures, jobs, bar.set_postfix_str)
        pending, next_write = False, 0.0
        try:
            with contextlib.closing(attempts):
                for records, left_open in attempts:
                    outcome.skipped.extend(left_open.skipped)
                    outcome.failed.extend(left_open.failed)
                    results.extend(records, write=False)
                    pending, start = pending or bool(records), time.monotonic()
                    if pending and start >= next_write:
                        results.write()
                        # so that large files take a twentieth of the time
                        pending, next_write = False, start + 21.0 * (time.monotonic() - start)
                    bar.update()
                    if time.monotonic() > deadline:
                        break
        finally:
            if pending:
                results.write()
    return outcome


def finished(records: Iterable[Record]) -> list[Record]:
    """The records that have figures."""
    return [record for record in records if LEFT_OUT not in record]


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


def _attempt(case: Case, failures: tuple[type[Exception], ...]) -> tuple[list[Record], Outcome]:
    try:
        records = case.run()
    except Skip as skip:
        return [], Outcome([f"{case}: {skip}"], [])
    except failures as error:
        reason = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0][:200]}"
        return [{**case.key, LEFT_OUT: reason}], Outcome([], [f"{case}: {reason}"])
    several = [records] if isinstance(records, dict) else records
    return [{**case.key, **record} for record in several], Outcome([], [])


def _attempts(
    cases: Iterator[Case], failures: tuple[type[Exception], ...], jobs: int, show: Callable[[str], object]
) -> Generator[tuple[list[Record], Outcome], None, None]:
    if jobs <= 1:
        for case in cases:
            show(printable(str(case)))
            yield _attempt(case, failures)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    # spawn: a fork would copy the state of threads that are not copied with it
    pool = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"))
    try:
        for future in [pool.submit(_attempt, case, failures) for case in cases]:
            yield future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def last_step(model: Any) -> Any:
    """The last step of a pipeline, or the model itself."""
    return model[-1] if hasattr(model, "steps") else model


def groups_parameter(model: Any) -> str | None:
    """The name under which ``model.fit`` passes ``groups`` to the last step; ``None`` if that does not take them."""
    if not has_fit_parameter(last_step(model), "groups"):
        return None
    return f"{model.steps[-1][0]}__groups" if hasattr(model, "steps") else "groups"


def fit_model(model: Any, x: Any, y: NDArray[Any], groups: NDArray[Any] | None = None) -> Any:
    """Fit, with ``groups`` if the model takes them.

    NumPy's global generator, which some libraries draw from, keeps its state. A model that ends early on Ctrl-C and
    keeps what it has is not fitted: the interruption is raised.
    """
    name = None if groups is None else groups_parameter(model)
    state = np.random.get_state()  # noqa: NPY002
    try:
        model = model.fit(x, y, **({} if name is None else {name: groups}))
    finally:
        np.random.set_state(state)  # noqa: NPY002
    for part in ("result_", "posterior_"):
        if getattr(getattr(last_step(model), part, None), "interrupted", False):
            raise KeyboardInterrupt
    return model


SMALLEST = 125
"""Rows of the first trial; tables up to twice this size are never cut."""
STEEPEST, FLATTEST, FIRST_STEP = 3.3, 2.5, 1.5
"""Exponents of time in rows: limits for extrapolation, and the one expected of the first doubling, where much of the
time does not depend on the rows."""
IMPORT_SECONDS = 5.0
"""A first trial that takes less may have spent most of its time on imports."""
SAFETY = 1.3
"""Learning on more rows may take more steps."""


def affordable_rows(
    make: Callable[[], Any], x: Any, y: NDArray[Any], budget: float, seed: int = 0, groups: NDArray[Any] | None = None
) -> int:
    """How many rows of ``x, y`` a new learner can be fitted to in about ``budget`` seconds; 0 if not even 125.

    Trials on 125, 250, 500, … rows give time and its growth, t ∝ rows^p; they go on while the next one is affordable.
    """

    def trial(rows: int) -> float:
        part = proportional_sample(y, rows, seed)
        start = time.process_time()
        fit_model(make(), take(x, part), y[part], None if groups is None else groups[part])
        return time.process_time() - start

    n = len(y)
    if n <= 2 * SMALLEST:
        return n
    size, seconds, exponent = SMALLEST, trial(SMALLEST), FIRST_STEP
    if budget < seconds < IMPORT_SECONDS:
        seconds = trial(SMALLEST)  # the first one may have imported its libraries
    if seconds > 2.0 * budget:
        return 0
    while True:
        steep = min(max(exponent, FLATTEST), STEEPEST)
        expected = SAFETY * seconds * (n / size) ** steep
        if expected <= budget:
            return n
        if 2 * size >= n or seconds * 2 ** min(exponent, STEEPEST) > 0.7 * budget:
            break
        try:
            longer = trial(2 * size)
        except MemoryError:
            break
        exponent = math.log2(max(longer, 1e-9) / max(seconds, 1e-9))
        size, seconds = 2 * size, longer
    rows = int(size * (budget / (SAFETY * max(seconds, 1e-9))) ** (1.0 / steep))
    return min(max(rows, SMALLEST), n)


def take(x: Any, rows: NDArray[Any]) -> Any:
    """Rows of a matrix or a data frame, by position."""
    return x.iloc[rows] if hasattr(x, "iloc") else x[rows]


STATUS, RESET = pathlib.Path("/proc/self/status"), pathlib.Path("/proc/self/clear_refs")


def reset_peak() -> float | None:
    """Start a new high-water mark of resident memory and return the megabytes in use; ``None`` outside Linux.

    Free memory that the allocator holds from earlier work is returned first, if the C library can (glibc).
    """
    gc.collect(1)  # the oldest generation is mostly modules, and takes longer to scan than many a fit
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        RESET.write_text("5")
        return _megabytes("VmRSS")
    except (OSError, ValueError):
        return None


def peak_growth(before: float | None) -> float | None:
    """Megabytes by which the high-water mark is above ``before``, which :func:`reset_peak` returned."""
    return None if before is None else max(0.0, _megabytes("VmHWM") - before)


def _megabytes(field: str) -> float:
    for line in STATUS.read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"{STATUS} has no line {field}.")
