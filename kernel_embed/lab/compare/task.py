"""What is predicted: a task says how learners are scored, ranked and described."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...bounds import Bound
from ...results import Record
from .learner import Features, Learner, fit_model, last_step
from .learners import learners
from .resources import peak_memory

Arrays = dict[str, NDArray[Any]]
Split = tuple[Any, ...]
"""x, y, x_test, y_test."""
Columns = tuple[tuple[str, str, int, float], ...]
"""Columns of a table: header, score, digits, and a factor."""


class Measured(NamedTuple):
    """A learner after one split: its flat record, its predictions of the test rows, and the fitted model."""

    record: Record
    arrays: Arrays
    model: Any


@dataclass(frozen=True)
class Task:
    """A type of target. The values are in :mod:`kernel_embed.lab.compare.tasks`.

    Attributes:
        name: as in ``--task``.
        loss: the score by which learners are ranked, lower is better; ``loss_name`` is its header.
        loss_words: what it is, in a sentence; ``lowest`` in the middle of one, ``axis`` on an axis.
        scores: all scores of a record.
        columns: of the table in a terminal, without the loss; ``report_columns`` in a report.
        terms: what the columns of a report mean.
        depends: the start of “... on”, of a figure's title.
        prediction: the array of :meth:`measure` that holds the predictive distributions.
        predict: predictions of test rows as arrays, from a fitted model, x, y and all targets of the table.
        summarize: scores of a fold, from those arrays, the model, x and y.
        score_rows: scores of every test row, from the arrays of a fold.
        pool: scores of all held-out rows together, from the arrays of all folds.
        describe: the target in a few words.
        decode: targets as they stand in the table, from the array ``truth`` and all targets.
    """

    name: str
    loss: str
    loss_name: str
    loss_words: str
    lowest: str
    axis: str
    scores: tuple[str, ...]
    columns: Columns
    report_columns: Columns
    terms: Mapping[str, str]
    depends: str
    prediction: str
    predict: Callable[[Any, Features, NDArray[Any], NDArray[Any]], Arrays]
    summarize: Callable[[Arrays, Any, Features, NDArray[Any]], Record]
    score_rows: Callable[[Arrays], dict[str, NDArray[np.float64]]]
    pool: Callable[[Sequence[Arrays]], dict[str, float]]
    describe: Callable[[NDArray[Any]], str]
    decode: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]]

    def learners(self, kernel: str = "rbf") -> dict[str, Learner]:
        """The learners of this task by name."""
        return learners(self.name, kernel)

    def methods(self, quick: bool = False) -> tuple[str, ...]:
        """The learners that run by default, if they are installed."""
        usual = [one for one in self.learners().values() if (one.quick if quick else one.default)]
        return tuple(one.name for one in usual if one.is_installed)

    def measure(self, make: Callable[[], Any], split: Split, targets: NDArray[Any]) -> Measured:
        """Fit a new model to the first part of a split and score it on the second.

        The record has the scores of the task, seconds of fit and prediction, and ``peak_megabytes``, the growth of the
        process during the fit. ``targets`` are all targets of the table.
        """
        x, y, x_test, y_test = split
        with peak_memory() as peak:
            start, processor = time.perf_counter(), time.process_time()
            model = fit_model(make(), x, y)
            fitted, processor = time.perf_counter(), time.process_time() - processor
        arrays = self.predict(model, x_test, y_test, targets)
        predicted = time.perf_counter()
        record: Record = {
            "num_train": len(y),
            "num_test": len(y_test),
            **self.summarize(arrays, model, x_test, y_test),
            "fit_seconds": fitted - start,
            "processor_seconds": processor,
            "predict_seconds": predicted - fitted,
            "peak_megabytes": peak.megabytes,
            **_optimization(last_step(model)),
        }
        return Measured(record, arrays, model)


def _optimization(model: Any) -> Record:
    """What a model says of its objective and bounds."""
    result = getattr(model, "result_", None)
    bound, tight = getattr(model, "bound_", None), getattr(model, "tight_bound_", None)
    return {
        "num_evaluations": getattr(model, "num_evaluations_", None) if result is None else result.num_evaluations,
        "converged": None if result is None else result.converged,
        "objective": None if result is None else result.value,
        "bound": bound.value if isinstance(bound, Bound) else None,
        "tight_bound": tight.value if isinstance(tight, Bound) else None,
    }
