r"""One evaluation of an objective with its gradient, beside the work that it cannot do without.

Counted with one Cholesky factorization, n³/3 additions and multiplications, as the unit: the inverse takes 2 more, one
triangle of a product of n × n matrices 3. Measured, the limit is the time of exactly these calls and of the thin
products and passes of a kernel and its gradient, with nothing around them.
"""

from __future__ import annotations

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...embeddings import ConditionalEmbedding
from ...kernels import gram
from ...learning.data import TensorData
from ...learning.parameters import ParameterVector
from ...learning.problem import LocalProcess, Loss, Problem
from ...learning.state import Search
from ...linalg import single_precision
from ...objectives import LeaveOneOutScore, Objective
from ...results import Record, group, number, table
from . import objective, score
from .cases import OURS, Call, Case, Scope
from .classifier import exponent

PART = "objective and gradient, {}"
THREADS = {1: "one thread", 2: "two threads"}
GROWTH = "objective and gradient by rows"
SINGLE = "factors in single precision"
SMALL = "few rows: one evaluation of fit"
ROUNDS = 3
SIZES = (250, 500, 1000, 2000, 4000, 8000, 16_000)


class Work(NamedTuple):
    """An objective, data for it, and what it cannot do without.

    Attributes:
        objective: with gradient.
        problem: embedding, x and y for a number of rows.
        inverse: whether the inverse is needed.
        triangles: of products of n × n matrices.
    """

    objective: Objective[Any]
    problem: Callable[[int], tuple[ConditionalEmbedding, Tensor, Tensor]]
    inverse: bool
    triangles: int

    @property
    def counted(self) -> int:
        """The limit in Cholesky factorizations."""
        return 1 + 2 * self.inverse + 3 * self.triangles


_NEEDS = ((False, 0), (True, 1), (True, 1), (True, 0))
WORK: dict[str, Work] = {
    **{
        name: Work(one, objective.problem, *needs)
        for (name, one), needs in zip(objective.OBJECTIVES.items(), _NEEDS, strict=True)
    },
    "LeaveOneOutScore": Work(LeaveOneOutScore(), score.problem, True, 3),
}


FIRST = f"{OURS}: {next(iter(WORK))}"


def system(embedding: ConditionalEmbedding, x: Tensor) -> Tensor:
    """A = K + nλI."""
    with torch.no_grad():
        A = gram(embedding.kernel, x)
        A.diagonal().add_(len(x) * embedding.regularization)
    return A


def limit(work: Work, n: int) -> Call:
    """The calls alone: a factor, an inverse, triangles of products, thin products, and the passes of a kernel."""
    embedding, x, y = work.problem(n)
    A, Y = system(embedding, x), embedding.targets(y, x)

    def calls() -> None:
        K = (x @ x.mT).exp_()
        factor = torch.linalg.cholesky(A)
        V = torch.cholesky_solve(Y, factor)
        C = torch.cholesky_inverse(factor) if work.inverse else A
        for triangle in range(work.triangles):
            C[: n // 2 if triangle % 2 == 0 else n - n // 2] @ C
        P = K @ V
        torch.addmm(C, P, V.mT).mul_(K) @ x

    return calls


def evaluation(work: Work, n: int) -> Call:
    """The objective with its gradient, as a loss of one's own loop."""
    embedding, x, y = work.problem(n)
    return lambda: work.objective(embedding, x, y).backward()


def step(work: Work, n: int) -> Call:
    """One evaluation as :func:`kernel_embed.fit` makes it: from a vector to a value and a vector."""
    embedding, x, y = work.problem(n)
    alone = LocalProcess[Any](embedding)
    vector = ParameterVector(embedding)
    loss = Loss[Any](alone, work.objective, float(n))
    problem = Problem(loss, TensorData((x, y), n), vector, Search(alone, vector), np.random.default_rng(0), False)
    point = vector.get()
    # Points as near to each other as those of a search, whose evaluations start from what the one before has found.
    steps = itertools.cycle(0.05 * np.random.default_rng(0).standard_normal((8, len(point))))
    return lambda: problem.record(problem.evaluate(point + next(steps)))


def seconds(call: Call, repeats: int) -> tuple[float, float]:
    """The least CPU time and the least time on the clock of some runs."""
    processor = clock = float("inf")
    for _ in range(repeats):
        started, used = time.perf_counter(), time.process_time()
        call()
        clock = min(clock, time.perf_counter() - started)
        processor = min(processor, time.process_time() - used)
    return processor, clock


@contextlib.contextmanager
def with_threads(number_of_threads: int) -> Iterator[None]:
    """So many threads for torch; as before on leaving."""
    before = torch.get_num_threads()
    torch.set_num_threads(number_of_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure(name: str, n: int, threads: int, rounds: int = ROUNDS, repeats: int = 3) -> Record:
    """Medians over rounds of the ratios to one Cholesky factorization and to the limit, taken within a round."""
    work = WORK[name]
    A = system(*work.problem(n)[:2])
    calls = (partial(torch.linalg.cholesky, A), limit(work, n), evaluation(work, n))
    with with_threads(threads):
        for call in calls:
            call()
        found = [[seconds(call, repeats) for call in calls] for _ in range(rounds)]
        peak = objective.peak_doubles(calls[-1]) / n**2
    processor = [[one for one, _ in row] for row in found]
    return {
        "seconds": statistics.median(row[-1][1] for row in found),
        "processor_seconds": statistics.median(ours for _, _, ours in processor),
        "over_cholesky": statistics.median(ours / unit for unit, _, ours in processor),
        "limit_counted": work.counted,
        "limit_measured": statistics.median(bare / unit for unit, bare, _ in processor),
        "over_limit": statistics.median(ours / bare for _, bare, ours in processor),
        "peak_squares": peak,
    }


def cases(scope: Scope) -> Iterator[Case]:
    """Objective and gradient over one Cholesky factorization and beside their limit, with one thread and two."""
    n = 200 if scope.quick else 2000
    for threads, words in THREADS.items():
        part = PART.format(words)
        for name in WORK:
            rounds = 1 if scope.quick else ROUNDS
            yield Case(part, f"{OURS}: {name}", n, _call(measure, name, n, threads, rounds), against=FIRST)
    name, call = "plain autograd, first objective", _call(measure_autograd, n)
    yield Case(PART.format(THREADS[1]), name, n, call, against=FIRST)


def _call(function: Callable[..., Record], *arguments: object) -> Callable[[], Call]:
    """What a case prepares: nothing, since the function itself keeps what it prepares outside of its clock."""
    return lambda: partial(function, *arguments)


def measure_autograd(n: int) -> Record:
    """The first objective by autograd through the factor, over one Cholesky factorization."""
    embedding, x, y = objective.problem(n)
    call = partial(objective.plain_autograd, embedding, x, y)
    with with_threads(1):
        processor, clock = seconds(call, ROUNDS)
        unit, _ = seconds(partial(torch.linalg.cholesky, system(embedding, x)), ROUNDS)
        peak = objective.peak_doubles(call) / n**2
    return {
        "seconds": clock,
        "processor_seconds": processor,
        "over_cholesky": processor / unit,
        "peak_squares": peak,
    }


def measure_growth(name: str, n: int) -> Record:
    """CPU seconds, over those of one Cholesky factorization, and the peak of tensor storage, one thread."""
    work, repeats = WORK[name], 3 if n <= 2000 else 1
    call, found = evaluation(work, n), []
    evaluation(work, 50)()  # what is loaded at first use is loaded
    with with_threads(1):
        peak = objective.peak_doubles(lambda: found.append(seconds(call, 1)))
        found += [seconds(call, 1) for _ in range(repeats - 1)]
        unit, _ = seconds(partial(torch.linalg.cholesky, system(*work.problem(n)[:2])), repeats)
    processor, clock = (min(times) for times in zip(*found, strict=True))
    return {
        "seconds": clock,
        "processor_seconds": processor,
        "over_cholesky": processor / unit,
        "limit_counted": work.counted,
        "peak_megabytes": peak * 8.0 / 1e6,
        "peak_squares": peak / n**2,
    }


def growth_cases(scope: Scope) -> Iterator[Case]:
    """Time and memory of objective and gradient from 250 to 16,000 rows, and the exponents."""
    for n in (100, 200) if scope.quick else SIZES:
        for name in WORK:
            yield Case(GROWTH, name, n, _call(measure_growth, name, n), against=next(iter(WORK)))


def growth_words(records: Sequence[Record]) -> str:
    """CPU time over one Cholesky factorization at every size, the limit counted, the exponents of time and memory."""
    sizes = sorted({int(number(record, "n")) for record in records})
    rows = []
    for name, found in group(records, lambda record: record["name"]).items():
        by_size = {int(number(record, "n")): record for record in found}
        known = [n for n in sizes if n in by_size]
        powers = [
            exponent(known, [number(by_size[n], field) for n in known])
            for field in ("processor_seconds", "peak_megabytes")
        ]
        ratios = [f"{number(by_size[n], 'over_cholesky'):.1f}" if n in by_size else "–" for n in sizes]
        squares = f"{number(by_size[known[-1]], 'peak_squares'):.1f}"
        limit_counted = f"{number(found[0], 'limit_counted'):.0f}"
        rows.append([str(name), *ratios, limit_counted, *(f"{power:.2f}" for power in powers), squares])
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
        calls = partial(evaluate, False), partial(evaluate, True)
        found = [[seconds(call, 2) for call in calls] for _ in range(rounds)]
    return {
        "seconds": statistics.median(single[1] for _, single in found),
        "processor_seconds": statistics.median(single[0] for _, single in found),
        "over_single": statistics.median(double[0] / single[0] for double, single in found),
        "value_error": abs(value - exact) / abs(exact),
        "gradient_error": float((other - slope).norm() / slope.norm()),
    }


def single_cases(scope: Scope) -> Iterator[Case]:
    """Learning with factors in single precision: the gain in time, and the error it makes."""
    for n in (200,) if scope.quick else (2000, 4000):
        for name in WORK:
            call = _call(measure_single, name, n, 1 if scope.quick or n > 2000 else ROUNDS)
            yield Case(SINGLE, f"{OURS}: {name}", n, call, against=FIRST)


def measure_step(name: str, n: int, repeats: int = 30) -> Record:
    """Milliseconds of one evaluation of ``fit``, and above the bare linear algebra, one thread."""
    work = WORK[name]
    calls = step(work, n), limit(work, n)
    with with_threads(1):
        for call in calls:
            seconds(call, repeats // 3)
        found = [[seconds(call, repeats) for call in calls] for _ in range(ROUNDS)]
    processor = statistics.median(ours[0] for ours, _ in found)
    return {
        "seconds": statistics.median(ours[1] for ours, _ in found),
        "processor_seconds": processor,
        "evaluation_milliseconds": 1e3 * processor,
        "overhead_milliseconds": 1e3 * statistics.median(ours[0] - bare[0] for ours, bare in found),
    }


def small_cases(scope: Scope) -> Iterator[Case]:
    """One evaluation of `fit` at 50 to 300 rows, above the bare linear algebra."""
    for n in (50,) if scope.quick else (50, 100, 200, 300):
        for name in WORK:
            yield Case(SMALL, f"{OURS}: {name}", n, _call(measure_step, name, n), against=FIRST)
