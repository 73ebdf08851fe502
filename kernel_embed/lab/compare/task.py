"""What is predicted, classes or numbers: how learners are judged, ranked and shown for each."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import evaluate, evaluate_numbers
from .evaluate import Measured
from .learner import Learner
from .learners import METHODS, NEEDS, QUICK_METHODS, learners
from .real_learners import METHODS as REAL_METHODS
from .real_learners import NEEDS as REAL_NEEDS
from .real_learners import QUICK_METHODS as REAL_QUICK_METHODS
from .real_learners import real_learners

Arrays = dict[str, NDArray[Any]]
Cells = tuple[tuple[str, str, int, float], ...]
"""Columns of a table: header, score, digits, and a factor."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One kind of target.

    Attributes:
        name: ``"classification"`` or ``"regression"``.
        loss: the score by which learners are ranked, lower is better; ``loss_name`` is its header.
        loss_words: what it is, in a sentence; ``lowest`` in the middle of one, ``axis`` on an axis.
        scores: all scores of a record.
        measure: fits a new learner on a split and scores it.
        by_row: the scores of every held-out row, from the arrays of a fold.
        pooled: scores of all held-out rows together, from the arrays of all folds.
        learners: by name, for a kernel.
        methods: those that run by default; ``quick`` with ``--quick``.
        needs: packages that some of them need.
        columns: of the table in a terminal, before and after the loss.
        report_columns: of the table in a report.
        terms: what the columns of a report mean.
    """

    name: str
    loss: str
    loss_name: str
    loss_words: str
    lowest: str
    axis: str
    scores: tuple[str, ...]
    measure: Callable[..., Measured]
    by_row: Callable[[Arrays], dict[str, NDArray[np.float64]]]
    pooled: Callable[[Sequence[Arrays]], dict[str, float]]
    learners: Callable[[str], dict[str, Learner]]
    methods: tuple[str, ...]
    quick: tuple[str, ...]
    needs: Mapping[str, str]
    columns: Cells
    report_columns: Cells
    terms: Mapping[str, str]

    def installed(self, methods: Sequence[str]) -> tuple[str, ...]:
        """The learners whose packages are there."""
        return tuple(m for m in methods if m not in self.needs or importlib.util.find_spec(self.needs[m]) is not None)


CLASSIFICATION = Task(
    name="classification",
    loss="nll",
    loss_name="NLL",
    loss_words="NLL is the mean negative log probability of held-out labels, in nats, ± its standard error.",
    lowest="the lowest negative log probability",
    axis="negative log probability of held-out labels (lower is better)",
    scores=("accuracy", "nll", "brier", "calibration_error"),
    measure=evaluate.measure,
    by_row=evaluate.by_row,
    pooled=evaluate.pooled,
    learners=learners,
    methods=METHODS,
    quick=QUICK_METHODS,
    needs=NEEDS,
    columns=(("acc. %", "accuracy", 1, 100.0),),
    report_columns=(
        ("accuracy %", "accuracy", 1, 100.0),
        ("NLL", "nll", 3, 1.0),
        ("Brier", "brier", 3, 1.0),
        ("calibration", "calibration_error", 3, 1.0),
    ),
    terms={
        "accuracy": "share of held-out labels that were predicted right.",
        "NLL": "negative log probability of the held-out labels, in nats: 0 is certainty in the right label, log of "
        "the number of classes is guessing. It is what learners are ranked by, because it asks for good "
        "probabilities, not only for good labels.",
        "Brier": "mean squared distance of the probabilities from the truth.",
        "calibration": "how far stated probabilities are from the shares that turn out right (expected calibration "
        "error, all held-out rows together).",
    },
)

REGRESSION = Task(
    name="regression",
    loss="crps",
    loss_name="CRPS",
    loss_words=(
        "CRPS is the continuous ranked probability score of held-out rows in standard deviations of the target, ± its "
        "standard error; RMSE is in the same unit; cover is the share of rows inside 90 % intervals."
    ),
    lowest="the lowest CRPS",
    axis="CRPS, in deviations of the target (lower is better)",
    scores=("crps", "rmse", "pinball", "coverage", "width"),
    measure=evaluate_numbers.measure,
    by_row=evaluate_numbers.by_row,
    pooled=evaluate_numbers.pooled,
    learners=real_learners,
    methods=REAL_METHODS,
    quick=REAL_QUICK_METHODS,
    needs=REAL_NEEDS,
    columns=(("RMSE", "rmse", 3, 1.0), ("cover", "coverage", 2, 1.0)),
    report_columns=(
        ("CRPS", "crps", 3, 1.0),
        ("RMSE", "rmse", 3, 1.0),
        ("pinball", "pinball", 3, 1.0),
        ("coverage %", "coverage", 1, 100.0),
        ("width", "width", 2, 1.0),
    ),
    terms={
        "CRPS": "continuous ranked probability score of the predicted distribution, the squared distance of its "
        "distribution function from the step at what happened, in standard deviations of the target: 0 is certainty "
        "in the right value. It is what learners are ranked by, because it asks for good distributions, not only for "
        "good means.",
        "RMSE": "root mean squared error of the predicted mean, in the same unit.",
        "pinball": "mean pinball loss of the quantiles at 5, 25, 50, 75 and 95 %.",
        "coverage": "share of held-out values inside intervals that are meant to hold 90 %, all rows together.",
        "width": "mean width of those intervals, in standard deviations of the target.",
    },
)

TASKS = {task.name: task for task in (CLASSIFICATION, REGRESSION)}
