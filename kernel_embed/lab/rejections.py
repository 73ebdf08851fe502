"""Rejection rates of tests: their level where the null hypothesis holds, their power where it does not.

Records are named by simulator, test and repetition.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, SupportsFloat, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..results import Record, Results, column, standard_error, table
from ..validation import check_count, check_share
from .experiment import Experiment, Settings
from .runner import Case, run_cases

KEY = ("simulator", "test", "repetition")
LEVEL = 0.05
NUM_PERMUTATIONS = 99
Value = TypeVar("Value")
Test: TypeAlias = Callable[..., Any]
"""``test(*data, seed=repetition)`` returns a p-value, or an object with ``.pvalue``."""
Simulator: TypeAlias = Callable[[int], tuple[object, ...]]
"""``simulator(repetition)`` returns the data of one repetition."""


class Design(NamedTuple):
    """Tests that all see the data of all simulators, ``num_repetitions`` times."""

    tests: Mapping[str, Test]
    simulators: Mapping[str, Simulator]
    num_repetitions: int

    def cases(self) -> Iterator[Case]:
        """One case for each test on each data set, which is simulated once."""

        @functools.lru_cache(maxsize=1)
        def data(simulator: str, repetition: int) -> tuple[object, ...]:
            return self.simulators[simulator](repetition)

        def run(simulator: str, test: str, repetition: int) -> Record:
            arguments = data(simulator, repetition)
            start = time.perf_counter()
            result = self.tests[test](*arguments, seed=repetition)
            p = float(result if isinstance(result, SupportsFloat) else result.pvalue)
            return {"pvalue": p, "seconds": time.perf_counter() - start}

        for simulator in self.simulators:
            for repetition in range(self.num_repetitions):
                for test in self.tests:
                    values = (simulator, test, repetition)
                    yield Case(dict(zip(KEY, values, strict=True)), functools.partial(run, *values))


@dataclass(frozen=True, repr=False)
class RejectionStudy:
    """The p-values of :func:`rejection_study` and what follows from them.

    Attributes:
        records: one for each test of each data set, with its p-value and seconds.
        simulators: their names.
        tests: their names.
        level: α.

    Example:
        >>> from kernel_embed.lab.studies import rejection_study
        >>> study = rejection_study({"coin": lambda seed: 0.04 if seed % 2 else 0.5}, {"any": lambda number: ()}, 10)
        >>> study.rate("any", "coin")
        0.5
    """

    records: list[Record]
    simulators: tuple[str, ...]
    tests: tuple[str, ...]
    level: float

    def pvalues(self, simulator: str, test: str) -> NDArray[np.float64]:
        """The p-values of one test on the data of one simulator, in the order of the repetitions.

        Raises:
            KeyError: if there is no such test or simulator.
        """
        records = [r for r in self.records if r["simulator"] == simulator and r["test"] == test]
        if not records:
            raise KeyError(
                f"No test {test!r} of {simulator!r} here. Tests: {self.tests}; simulators: {self.simulators}."
            )
        return column(sorted(records, key=lambda r: int(str(r["repetition"]))), "pvalue")

    def rate(self, simulator: str, test: str) -> float:
        """The share of data sets with p ≤ α."""
        return float((self.pvalues(simulator, test) <= self.level).mean())

    def standard_error(self, simulator: str, test: str) -> float:
        """The standard error of the rate."""
        rate, count = self.rate(simulator, test), len(self.pvalues(simulator, test))
        return float(np.sqrt(rate * (1.0 - rate) / count))

    def difference(self, simulator: str, test: str, other: str) -> tuple[float, float]:
        """rate(test) − rate(other) and its standard error, paired by data set."""
        one, two = (self.pvalues(simulator, name) <= self.level for name in (test, other))
        gaps = one.astype(np.float64) - two
        return float(gaps.mean()), standard_error(gaps)

    def interval(self, simulator: str, test: str, probability: float = 0.999) -> tuple[float, float]:
        """The central binomial interval of the rate of an exact test at level α."""
        from scipy.stats import binom

        count = len(self.pvalues(simulator, test))
        low, high = binom.interval(probability, count, self.level)
        return float(low / count), float(high / count)

    def uniformity(self, simulator: str, test: str, num_permutations: int | None = None) -> float:
        """The p-value of a Kolmogorov–Smirnov test that the p-values are uniform.

        With ``num_permutations`` = B they are multiples of 1/(1 + B); a uniform number below each fills the gaps.
        """
        from scipy.stats import kstest

        p = self.pvalues(simulator, test)
        if num_permutations is not None:
            p = p - np.random.RandomState(0).uniform(size=len(p)) / (1 + num_permutations)
        return float(kstest(p, "uniform").pvalue)

    def table(self) -> str:
        """Rejection rates with simulators as rows and tests as columns."""
        rows = [[s, *(f"{self.rate(s, t):.3f}" for t in self.tests)] for s in self.simulators]
        return table(["rejection rate", *self.tests], rows)

    def __repr__(self) -> str:
        return f"<{len(self.records)} p-values of {len(self.tests)} tests on {len(self.simulators)} simulators>"


def rejection_study(
    tests: Mapping[str, Test],
    simulators: Mapping[str, Simulator],
    num_repetitions: int = 200,
    *,
    level: float = 0.05,
    path: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> RejectionStudy:
    """Run every test on the data of every simulator and count rejections.

    Args:
        tests: by name; ``test(*data, seed=repetition)`` returns a p-value, or an object with ``.pvalue``.
        simulators: by name; ``simulator(repetition)`` returns the data, the same for every test.
        num_repetitions: for each pair of a test and a simulator.
        level: α.
        path: a results file, from which an interrupted study, or one with more repetitions, resumes.
        progress: show a progress bar; by default on a terminal or in a notebook.

    Returns:
        Rejection rates with intervals, and all records.

    Raises:
        TypeError: if a simulator or a test is not a function, or ``num_repetitions`` is not a whole number.
        ValueError: if ``num_repetitions`` is below 1, or ``level`` is not between 0 and 1.

    Example:
        >>> import torch, kernel_embed as ke
        >>> def shift(repetition):
        ...     x, y = torch.randn(2, 30, 1, generator=torch.Generator().manual_seed(repetition))
        ...     return x, y + 2.0
        >>> study = rejection_study({"median": lambda x, y, seed: ke.two_sample_test(x, y, "median", 99, seed)},
        ...                         {"shift": shift}, num_repetitions=10)
        >>> study.rate("shift", "median")
        1.0
    """
    check_count("num_repetitions", num_repetitions)
    check_share("level", level, "Give 0.05, which is usual.")
    for name, function in (*tests.items(), *simulators.items()):
        if not callable(function):
            raise TypeError(f"{name!r} must be a function, not {function!r}. Pass the function, not its result.")
    results, cases = Results(path, KEY), list(Design(tests, simulators, num_repetitions).cases())
    run_cases(cases, results, name="rejections", failures=(), progress=progress)
    own = {tuple(case.key.values()) for case in cases}
    records = [r for r in results.records if tuple(r[field] for field in KEY) in own]
    return RejectionStudy(records, tuple(simulators), tuple(tests), level)


def rejection_experiment(designs: Callable[[Settings], list[Design]], options: str = "", **fields: Any) -> Experiment:
    """An experiment with one record for each repetition of each test on the data of each simulator.

    The names of tests and simulators in ``designs`` do not depend on the settings.
    """

    def named(values: Mapping[str, Value], names: tuple[str, ...] | None) -> dict[str, Value]:
        # by the name, or the part of it before a comma; all without names
        return {k: v for k, v in values.items() if names is None or k in names or k.split(", ")[0] in names}

    def cases(settings: Settings) -> Iterator[Case]:
        every = designs(settings)
        selected = [
            Design(named(tests, settings.methods), named(simulators, settings.datasets), count)
            for tests, simulators, count in every
        ]
        if not any(design.tests and design.simulators for design in selected):
            names = dict.fromkeys(name for design in every for name in (*design.tests, *design.simulators))
            raise ValueError(f"No test matches --methods and --datasets. Choose among: {'; '.join(names)}.")
        for design in selected:
            yield from design.cases()

    @functools.cache
    def names() -> set[tuple[str, str]]:
        return {(s, t) for tests, simulators, _ in designs(Settings()) for s in simulators for t in tests}

    def owns(record: Record) -> bool:
        return (record.get("simulator"), record.get("test")) in names()

    options = f"repetitions datasets methods {options}"
    return Experiment(**fields, key=KEY, cases=cases, options=options, owns=owns)


def rejection_studies(designs: Callable[[Settings], list[Design]], records: Sequence[Record]) -> list[RejectionStudy]:
    """The rejections, one study for each design that has records."""
    studies = []
    for tests, simulators, _ in designs(Settings()):
        own = [r for r in records if r["simulator"] in simulators and r["test"] in tests]
        if own:
            seen_s, seen_t = ({str(record[field]) for record in own} for field in ("simulator", "test"))
            names = tuple(s for s in simulators if s in seen_s), tuple(t for t in tests if t in seen_t)
            studies.append(RejectionStudy(own, *names, LEVEL))
    return studies
