"""Experiments that count how often tests reject; their records have no tag but the names of simulator and test."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from torch import Tensor

from ....hypothesis.result import KernelTestResult
from ....results import Record, Results
from ...studies.rejections import KEY, RejectionStudy, rejection_study
from ..experiment import Experiment, Settings

LEVEL = 0.05
NUM_PERMUTATIONS = 99

Simulator = Callable[[int], tuple[Tensor, ...]]
Test = Callable[..., KernelTestResult | float]


class Design(NamedTuple):
    """Tests that all see the data of all simulators, so many times."""

    tests: Mapping[str, Test]
    simulators: Mapping[str, Simulator]
    num_repetitions: int


@dataclass(frozen=True)
class RejectionExperiment(Experiment):
    """One record for each repetition of each test on the data of each simulator."""

    key = KEY
    tags = ()
    options = frozenset({"repetitions", "datasets", "methods"})

    @abc.abstractmethod
    def designs(self, settings: Settings) -> list[Design]:
        """What is tested on what; the names do not depend on the settings."""

    def run(self, results: Results, settings: Settings) -> None:
        """Run every test on the data of every simulator of its design."""
        for tests, simulators, count in self.designs(settings):
            some_tests = _chosen(tests, settings.methods)
            some = _chosen(simulators, settings.datasets)
            if some_tests and some:
                rejection_study(some_tests, some, count, level=LEVEL, results=results)

    def own(self, records: Sequence[Record]) -> list[Record]:
        """The records of its simulators and tests."""
        pairs = {(s, t) for tests, simulators, _ in self.designs(Settings()) for s in simulators for t in tests}
        return [record for record in records if (record.get("simulator"), record.get("test")) in pairs]

    def studies(self, records: Sequence[Record]) -> list[RejectionStudy]:
        """The rejections, one study for each design of which anything has been run."""
        found = []
        for tests, simulators, _ in self.designs(Settings()):
            chosen = [r for r in records if r["simulator"] in simulators and r["test"] in tests]
            if chosen:
                seen_s, seen_t = ({str(record[field]) for record in chosen} for field in ("simulator", "test"))
                there = tuple(s for s in simulators if s in seen_s), tuple(t for t in tests if t in seen_t)
                found.append(RejectionStudy(chosen, *there, LEVEL))
        return found


Value = TypeVar("Value")


def _chosen(values: Mapping[str, Value], names: tuple[str, ...] | None) -> dict[str, Value]:
    """Those whose name is among ``names``, or begins like one before a comma; all where there are none."""
    return {k: v for k, v in values.items() if names is None or k in names or k.split(", ")[0] in names}
