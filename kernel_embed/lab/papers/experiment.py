"""What every reproduction is: a value with a name that fills results, puts them in words, and draws them."""

from __future__ import annotations

import abc
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from ...results import Record, Results

Options = frozenset[str]
ALWAYS: Options = frozenset({"out", "quick"})
"""What every experiment understands."""


@dataclass(frozen=True)
class Settings:
    """How an experiment is run; each reads the ones it understands.

    Attributes:
        data: directory of the data sets; ``None`` as in ``kernel_embed.lab.compare.data.load_table``.
        out: directory for pictures and for files that let an interrupted run go on; ``None`` writes none.
        quick: a small run, to see that everything works.
        repetitions: of a study on simulated data.
        num_folds: how many folds to run.
        datasets: only these data sets.
        methods: only these learners.
        epochs: of learning by steps: exactly so many.
        full: as long as in the paper, where a limit of time is the default.
        jobs: processes.
        seed: of simulated data, folds or first weights.

    Example:
        >>> from kernel_embed.lab.papers import Settings
        >>> Settings(quick=True).jobs
        1
    """

    data: pathlib.Path | None = None
    out: pathlib.Path | None = None
    quick: bool = False
    repetitions: int | None = None
    num_folds: int | None = None
    datasets: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None
    epochs: int | None = None
    full: bool = False
    jobs: int = 1
    seed: int = 0

    def given(self) -> Options:
        """The settings that differ from their defaults."""
        return frozenset(field.name for field in fields(self) if getattr(self, field.name) != field.default)


@dataclass(frozen=True)
class Experiment(abc.ABC):
    """A table or figure of a paper, or a study beside it, as a value.

    What only one experiment knows (a rate, a batch size) is a field of its class, so that a variant is another value:
    ``IrisStarts(rate="4e")``. What several understand is in :class:`~kernel_embed.lab.papers.Settings`.

    Attributes:
        name: as in ``kernel-embed reproduce NAME``.
        shows: what one learns from it, in one line.
        duration: roughly, on two cores.
        key: the fields that name a record.
        tags: the values of the field ``experiment`` in its records.
        options: the settings it understands beside ``out`` and ``quick``.

    Example:
        >>> from kernel_embed.lab.papers import EXPERIMENTS
        >>> EXPERIMENTS["coverage"].name
        'coverage'
    """

    name: ClassVar[str]
    shows: ClassVar[str]
    duration: ClassVar[str]
    key: ClassVar[tuple[str, ...]]
    tags: ClassVar[tuple[str, ...]]
    options: ClassVar[Options] = frozenset()

    @abc.abstractmethod
    def run(self, results: Results, settings: Settings) -> None:
        """Add the records that ``results`` does not have yet."""

    @abc.abstractmethod
    def summary(self, records: Sequence[Record]) -> str:
        """The table, our figures beside the published ones; ``records`` are its own."""

    def draw(self, records: Sequence[Record], out: pathlib.Path) -> None:  # noqa: B027 — some have none
        """Draw the pictures of its own ``records`` into the directory ``out``; nothing where it has none."""

    def own(self, records: Sequence[Record]) -> list[Record]:
        """Its own records among those of a file, which several experiments may share."""
        return [record for record in records if record.get("experiment") in self.tags]

    def check(self, settings: Settings) -> None:
        """Refuse settings that this experiment would ignore.

        Raises:
            ValueError: if a setting is given that this experiment does not understand.
        """
        understood = ALWAYS | self.options
        foreign = settings.given() - understood
        if foreign:
            raise ValueError(
                f"Expected options that {self.name!r} understands ({_listed(understood)}), got {_listed(foreign)}. "
                "Leave the others out."
            )


def reproduce(experiment: Experiment, settings: Settings, results: Results | None = None) -> str:
    """Run what is missing in ``settings.out``, draw the pictures there, and return the table.

    Args:
        experiment: a value of ``kernel_embed.lab.papers.EXPERIMENTS``, or a variant of one.
        settings: how to run it.
        results: where records go; by default ``results.json`` in ``settings.out``.

    Returns:
        The table as text.

    Raises:
        OSError: if the results cannot be written.

    Example:
        >>> from kernel_embed.lab.papers import EXPERIMENTS
        >>> print(reproduce(EXPERIMENTS["coverage"], Settings(quick=True)).splitlines()[0])
        noise             n  lengthscale  coverage of 80 % bands  width
    """
    experiment.check(settings)
    if results is None:
        results = Results(None if settings.out is None else settings.out / "results.json", experiment.key)
    results.check_writable()
    experiment.run(results, settings)
    records = experiment.own(results.records)
    answer = experiment.summary(records)
    if settings.out is not None:
        try:
            experiment.draw(records, settings.out)
        except ImportError as error:
            answer += f"\n\n{error}"
    return answer


def option(name: str) -> str:
    """A setting as it is written on the command line: ``num_folds`` is ``--folds``."""
    return f"--{name.removeprefix('num_')}"


def _listed(names: Options) -> str:
    return ", ".join(sorted(map(option, names)))
