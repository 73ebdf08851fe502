"""Speed of objectives with their gradients: over one Cholesky factorization, by rows, in single precision."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from ...embeddings import ConditionalEmbedding
from ...kernels.features import nystrom_kernel
from ...linalg import single_precision
from ...objectives import LeaveOneOutScore
from ...results import Record, number, table
from .measurement import OURS, Call, Measurement, Scope, growth_by_name, note, part
from .workloads import (
    WORK,
    classes,
    evaluation,
    limit,
    median,
    numbers,
    peak_doubles,
    plain_autograd,
    seconds,
    step,
    system,
    timed,
    with_threads,
)

PART = "objective and gradient, {}"
THREADS = {1: "one thread", 2: "two threads"}
GROWTH = "objective and gradient by rows"
SINGLE = "factors in single precision"
SMALL = "few rows: one evaluation of fit"
FEATURES = "leave-one-out score through features"
ROUNDS = 3
SIZES = (250, 500, 1000, 2000, 4000, 8000, 16_000)
FIRST = f"{OURS}: {next(iter(WORK))}"


def measure_work(name: str, n: int, threads: int, rounds: int = ROUNDS, repeats: int = 3) -> Record:
    """Medians over rounds of the ratios to one Cholesky factorization and to the limit, taken within a round."""
    work = WORK[name]
    calls = (partial(torch.linalg.cholesky, system(*work.problem(n)[:2])), limit(work, n), evaluation(work, n))
    with with_threads(threads):
        for call in calls:
            call()
        (unit, bare, ours), clock = timed(calls, rounds, repeats)
        peak = peak_doubles(calls[-1]) / n**2
    return {
        "seconds": median(clock[-1]),
        "processor_seconds": median(ours),
        "over_cholesky": median(ours / unit),
        "limit_counted": work.counted,
        "limit_measured": median(bare / unit),
        "over_limit": median(ours / bare),
        "peak_squares": peak,
    }


@part("objective")
def objective_cases(scope: Scope) -> Iterator[Measurement]:
    """Objective and gradient over one Cholesky factorization and beside their limit, with one thread and two."""
    n = 200 if scope.quick else 2000
    for threads, name_of_threads in THREADS.items():
        title = PART.format(name_of_threads)
        for name in WORK:
            rounds = 1 if scope.quick else ROUNDS
            yield Measurement(title, f"{OURS}: {name}", n, _call(measure_work, name, n, threads, rounds), against=FIRST)
    name, call = "plain autograd, first objective", _call(measure_autograd, n)
    yield Measurement(PART.format(THREADS[1]), name, n, call, against=FIRST)


def _call(function: Callable[..., Record], *arguments: object) -> Callable[[], Call]:
    """A case without preparation: the function itself keeps that outside of its clock."""
    return lambda: partial(function, *arguments)


def measure_autograd(n: int) -> Record:
    """The first objective by autograd through the factor, over one Cholesky factorization."""
    embedding, x, y = classes(n)
    call = partial(plain_autograd, embedding, x, y)
    with with_threads(1):
        processor, clock = seconds(call, ROUNDS)
        unit, _ = seconds(partial(torch.linalg.cholesky, system(embedding, x)), ROUNDS)
        peak = peak_doubles(call) / n**2
    return {"seconds": clock, "processor_seconds": processor, "over_cholesky": processor / unit, "peak_squares": peak}


def measure_growth(name: str, n: int) -> Record:
    """CPU seconds, over those of one Cholesky factorization, and the peak of tensor storage, one thread."""
    work, repeats = WORK[name], 3 if n <= 2000 else 1
    call = evaluation(work, n)
    times: list[tuple[float, float]] = []
    evaluation(work, 50)()  # loads what is imported at first use
    with with_threads(1):
        peak = peak_doubles(lambda: times.append(seconds(call, 1)))
        times += [seconds(call, 1) for _ in range(repeats - 1)]
        unit, _ = seconds(partial(torch.linalg.cholesky, system(*work.problem(n)[:2])), repeats)
    processor, clock = (min(column) for column in zip(*times, strict=True))
    record: Record = {"seconds": clock, "processor_seconds": processor, "over_cholesky": processor / unit}
    return record | {
        "limit_counted": work.counted, "peak_megabytes": peak * 8.0 / 1e6, "peak_squares": peak / n**2
    }  # fmt: skip


@part("gradients")
def growth_cases(scope: Scope) -> Iterator[Measurement]:
    """Time and memory of objective and gradient from 250 to 16,000 rows, and the exponents."""
    for n in (100, 200) if scope.quick else SIZES:
        for name in WORK:
            yield Measurement(GROWTH, name, n, _call(measure_growth, name, n), against=next(iter(WORK)))


@note(GROWTH)
def growth_note(records: Sequence[Record]) -> str:
    """CPU time over one Cholesky factorization at every size, the limit counted, the exponents of time and memory."""
    sizes = sorted({int(number(record, "n")) for record in records})
    rows = []
    for name, by_size, *powers in growth_by_name(records):
        ratios = [f"{number(by_size[n], 'over_cholesky'):.1f}" if n in by_size else "–" for n in sizes]
        last = by_size[max(by_size)]
        figures = [f"{number(last, 'limit_counted'):.0f}", *(f"{power:.2f}" for power in powers)]
        rows.append([name, *ratios, *figures, f"{number(last, 'peak_squares'):.1f}"])
    head = ["over one Cholesky", *map(str, sizes), "limit", "time ∝ n^", "memory ∝ n^", "n² doubles at last"]
    return table(head, rows)


def measure_single(name: str, n: int, rounds: int = ROUNDS) -> Record:
    """CPU time in double over that with factors in single precision, and the error of value and gradient."""
    work = WORK[name]
    embedding, x, y = work.problem(n)

    def evaluate(single: bool) -> tuple[float, Tensor]:
        embedding.zero_grad()
        with single_precision(single):
            value = work.objective(embedding, x, y)
        value.backward()
        return value.item(), torch.cat([p.grad.flatten() for p in embedding.parameters() if p.grad is not None])

    with with_threads(1):
        (exact, slope), (value, other) = evaluate(False), evaluate(True)
        (double, single), clock = timed((partial(evaluate, False), partial(evaluate, True)), rounds, 2)
    return {
        "seconds": median(clock[1]),
        "processor_seconds": median(single),
        "over_single": median(double / single),
        "value_error": abs(value - exact) / abs(exact),
        "gradient_error": float((other - slope).norm() / slope.norm()),
    }


@part("single")
def single_cases(scope: Scope) -> Iterator[Measurement]:
    """Learning with factors in single precision: the gain in time, and the error it makes."""
    for n in (200,) if scope.quick else (2000, 4000):
        for name in WORK:
            call = _call(measure_single, name, n, 1 if scope.quick or n > 2000 else ROUNDS)
            yield Measurement(SINGLE, f"{OURS}: {name}", n, call, against=FIRST)


def measure_step(name: str, n: int, repeats: int = 30) -> Record:
    """Milliseconds of one evaluation of ``fit``, and above the bare linear algebra, one thread."""
    work = WORK[name]
    calls = step(work, n), limit(work, n)
    with with_threads(1):
        for call in calls:
            seconds(call, repeats // 3)
        (ours, bare), clock = timed(calls, ROUNDS, repeats)
    return {
        "seconds": median(clock[0]),
        "processor_seconds": median(ours),
        "evaluation_milliseconds": 1e3 * median(ours),
        "overhead_milliseconds": 1e3 * median(ours - bare),
    }


@part("small")
def small_cases(scope: Scope) -> Iterator[Measurement]:
    """One evaluation of `fit` at 50 to 300 rows, above the bare linear algebra."""
    for n in (50,) if scope.quick else (50, 100, 200, 300):
        for name in WORK:
            yield Measurement(SMALL, f"{OURS}: {name}", n, _call(measure_step, name, n), against=FIRST)


def _features(n: int, p: int) -> Call:
    embedding, x, y = numbers(n)
    through = ConditionalEmbedding(nystrom_kernel(embedding.kernel, x[:p]), 1e-3).double()
    return lambda: LeaveOneOutScore()(through, x, y).backward()


@part("score")
def score_cases(scope: Scope) -> Iterator[Measurement]:
    """The leave-one-out score with its gradient through features, at many rows."""
    p = 50 if scope.quick else 200
    for n in (1000,) if scope.quick else (10_000, 100_000):
        name = f"{OURS}: {p} features"
        yield Measurement(FEATURES, name, n, partial(_features, n, p), against=name)
