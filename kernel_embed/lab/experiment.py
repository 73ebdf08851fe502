"""Experiments: a name, the cases to run, a table of the records, and pictures."""

from __future__ import annotations

import itertools
import pathlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..plots import free_figure, styled
from ..results import Record, Results, table
from ..validation import check_count
from .runner import Case, run_cases

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Settings:
    """How an experiment is run; each reads the settings it supports.

    Attributes:
        data: directory of the data sets; ``None`` for the one in ``KERNEL_EMBED_DATA``, or OpenML.
        out: directory for pictures and for files that let an interrupted run resume; ``None`` writes none.
        quick: a small run, to see that everything works.
        repetitions: number of simulated data sets.
        num_folds: how many folds to run.
        datasets: only these data sets.
        methods: only these learners or tests.
        epochs: exactly this many epochs of mini-batch learning.
        full: as long as in the paper, where a time limit is the default.
        jobs: number of processes.
        seed: seed of simulated data, folds or initial weights.

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

    def selected(self, option: str, names: Collection[str], default: Sequence[str]) -> tuple[str, ...]:
        """The names given for ``option``, or the default; a name that is not among ``names`` is an error."""
        selection: tuple[str, ...] = getattr(self, option) or tuple(default)
        unknown = [name for name in selection if name not in names]
        if unknown:
            raise ValueError(f"Unknown {option}: {'; '.join(unknown)}. Choose among: {'; '.join(names)}.")
        return selection


@dataclass(frozen=True, repr=False)
class Experiment:
    """A table or figure of a paper, or a study, as a value.

    Attributes:
        name: the name in ``kernel-embed reproduce NAME``.
        shows: the question it answers, in one line.
        duration: rough duration on two cores.
        key: the fields that name a record.
        cases: yields the cases, ``cases(settings, **parameters)``; often from ``product_cases``.
        summary: the table of its own records, a function or, for a row for each record, formats of fields by header.
        draw: draws its pictures, ``draw(records, directory)``; ``None`` if it has none.
        options: the settings it supports besides ``out`` and ``quick``, separated by spaces.
        paper: authors, for an experiment of a paper.
        part: the table or figure of the paper.
        files: the files of ``data`` that it reads by default.
        tag: the values of the field ``experiment`` in its records, where they differ from the name.
        owns: whether a record is its own, where records have no field ``experiment``.
        parameters: arguments of ``cases`` that :meth:`variant` can change.
        time_limit: seconds after which no case is started.

    Example:
        >>> from kernel_embed.lab.papers import EXPERIMENTS
        >>> EXPERIMENTS["iris"].variant(rate="4e")
        Experiment('iris', rate='4e', num_epochs=500)
    """

    name: str
    shows: str
    duration: str
    key: tuple[str, ...]
    cases: Callable[..., Iterable[Case]]
    summary: Callable[[Sequence[Record]], str] | Mapping[str, str]
    draw: Callable[[Sequence[Record], pathlib.Path], None] | None = None
    options: str = ""
    paper: str = ""
    part: str = ""
    files: tuple[str, ...] = ()
    tag: tuple[str, ...] = ()
    owns: Callable[[Record], bool] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    time_limit: Callable[[Settings], float | None] = lambda settings: None

    def __repr__(self) -> str:
        return f"Experiment({', '.join([repr(self.name), *(f'{k}={v!r}' for k, v in self.parameters.items())])})"

    @property
    def title(self) -> str:
        """Its description, with the place in the paper."""
        return f"{self.part} of {self.paper}: {self.shows}" if self.paper else self.shows

    def variant(self, **changes: Any) -> Experiment:
        """The same experiment with other values of its ``parameters``.

        Raises:
            TypeError: if the experiment has no such parameter.
        """
        unknown = changes.keys() - self.parameters.keys()
        if unknown:
            names = ", ".join(self.parameters) or "none"
            raise TypeError(f"{self.name!r} has no parameter {', '.join(sorted(unknown))}. Its parameters: {names}.")
        return replace(self, parameters={**self.parameters, **changes})

    def run(self, results: Results, settings: Settings) -> None:
        """Run the cases that ``results`` does not have yet.

        Raises:
            ValueError: if a setting is not supported, or names something unknown.
        """
        self.check(settings)
        cases, limit = list(self.cases(settings, **self.parameters)), self.time_limit(settings)
        run_cases(cases, results, name=self.name, jobs=settings.jobs, seconds=limit, failures=())

    def own(self, records: Sequence[Record]) -> list[Record]:
        """Its own records among those of a file that several experiments may share."""
        owns = self.owns or (lambda record: record.get("experiment") in (self.tag or (self.name,)))
        return [record for record in records if owns(record)]

    def check(self, settings: Settings) -> None:
        """Reject settings that this experiment would ignore, and counts below 1.

        Raises:
            ValueError: if a setting is not supported or a count is below 1.
        """
        changed = {one.name for one in fields(settings) if getattr(settings, one.name) != one.default}
        supported = {"out", "quick", *self.options.split()}
        if ignored := changed - supported:
            raise ValueError(f"{self.name!r} does not support {flags(ignored)}. It supports {flags(supported)}.")
        for name in ("repetitions", "num_folds", "epochs", "jobs"):
            if getattr(settings, name) is not None:
                check_count(flags([name]), getattr(settings, name))


def reproduce(experiment: Experiment, settings: Settings, results: Results | None = None) -> str:
    """Run the cases missing in ``settings.out``, draw the pictures there, and return the table.

    Args:
        experiment: a value of ``kernel_embed.lab.papers.EXPERIMENTS`` or ``kernel_embed.lab.studies.EXPERIMENTS``, or a
            variant of one.
        settings: how to run it.
        results: where records go; by default ``results.json`` in ``settings.out``.

    Returns:
        The table as text.

    Raises:
        OSError: if the results cannot be written.

    Example:
        >>> from kernel_embed.lab.studies import EXPERIMENTS
        >>> print(reproduce(EXPERIMENTS["coverage"], Settings(quick=True)).splitlines()[0])
        noise             n  lengthscale  coverage of 80 % bands  width
    """
    experiment.check(settings)
    if results is None:
        results = Results(None if settings.out is None else settings.out / "results.json", experiment.key)
    results.check_writable()
    experiment.run(results, settings)
    records = experiment.own(results.records)
    text = experiment.summary(records) if callable(experiment.summary) else record_table(records, experiment.summary)
    if settings.out is not None and experiment.draw is not None:
        settings.out.mkdir(parents=True, exist_ok=True)
        try:
            experiment.draw(records, settings.out)
        except ImportError as error:
            text += f"\n\n{error}"
    return text


def product_cases(
    experiment: str, measure: Callable[..., Record | Sequence[Record]], **axes: Iterable[Any]
) -> Iterator[Case]:
    """One case for each combination of the values of ``axes``, which name it: ``measure(**values)``."""
    for values in itertools.product(*axes.values()):
        cell = dict(zip(axes, values, strict=True))
        yield Case({"experiment": experiment, **cell}, partial(measure, **cell))


def new_figure(width: float, height: float, rows: int = 1, columns: int = 1, **options: Any) -> tuple[Figure, Any]:
    """A figure in the style of this library, and its panels as ``Figure.subplots`` returns them."""
    with styled():
        figure = free_figure(width, height)
        return figure, figure.subplots(rows, columns, **options)


def record_table(records: Iterable[Record], columns: Mapping[str, str]) -> str:
    """One row for each record: a format of its fields by header. A missing number leaves the cell empty."""
    rows = [
        ["" if record.get(text[1:-1].split(":")[0], 0) is None else text.format(**record) for text in columns.values()]
        for record in records
    ]
    return table(list(columns), rows)


def flags(names: Iterable[str], separator: str = ", ") -> str:
    """Settings as they are written on the command line, in order: ``num_folds`` is ``--folds``."""
    return separator.join(sorted(f"--{name.removeprefix('num_')}" for name in names))
