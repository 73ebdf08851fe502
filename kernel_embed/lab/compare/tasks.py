r"""Tasks: how learners are scored, ranked and described for classification and regression.

Numeric targets are scored in standard deviations s of the table's targets. With the predicted distribution function F,

.. math::  \mathrm{CRPS} = \frac1s \int \big( F(t) - \mathbf 1\{y \le t\} \big)^2 dt .
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ...bounds import Bound
from ...results import Record, decimal
from ..runner import fit_model, last_step, peak_growth, reset_peak, take
from .learners import Features, Learner, learners

Arrays = dict[str, NDArray[Any]]


class Split(NamedTuple):
    """Training and test rows, and the groups of the training rows if there are any."""

    x: Any
    y: NDArray[Any]
    x_test: Any
    y_test: NDArray[Any]
    groups: NDArray[np.int64] | None = None

    def part(self, rows: NDArray[Any]) -> Split:
        """With these training rows only."""
        groups = None if self.groups is None else self.groups[rows]
        return self._replace(x=take(self.x, rows), y=self.y[rows], groups=groups)


class Score(NamedTuple):
    """A score by its name in a record: its column in a report, and in a terminal where it has a ``short`` header."""

    name: str
    header: str
    meaning: str
    digits: int = 3
    factor: float = 1.0
    short: str = ""


class Measured(NamedTuple):
    """A learner after one split: its flat record, its predictions of the test rows, and the fitted model."""

    record: Record
    arrays: Arrays
    model: Any


@dataclass(frozen=True)
class Task:
    """A type of target: ``kind`` says which learners and figures it has, the rest how they are scored and described."""

    name: str
    kind: str
    loss: str  # the score by which learners are ranked, lower is better; its header, its meaning, words for an axis
    loss_name: str
    loss_words: str
    lowest: str
    axis: str
    scores: tuple[Score, ...]
    depends: str
    prediction: str  # the array that holds the predictive distributions
    predict: Callable[[Any, Features, NDArray[Any], NDArray[Any]], Arrays]  # of model, x, y, all targets of the table
    summarize: Callable[[Arrays, Any, Features, NDArray[Any]], Record]  # scores of a fold, of arrays, model, x, y
    score_rows: Callable[[Arrays], dict[str, NDArray[np.float64]]]  # of every test row
    pool: Callable[[Sequence[Arrays]], dict[str, float]]  # scores of the held-out rows of all folds together
    describe: Callable[[NDArray[Any]], str]
    decode: Callable[[NDArray[Any], NDArray[Any]], NDArray[Any]] = lambda truth, targets: truth
    bound: str = ""

    def learners(self, kernel: str = "rbf") -> dict[str, Learner]:
        """The learners of this task by name."""
        return learners(self.kind, kernel)

    def methods(self, quick: bool = False) -> tuple[str, ...]:
        """The learners that run by default, if they are installed."""
        usual = [one for one in self.learners().values() if (one.quick if quick else one.default)]
        return tuple(one.name for one in usual if one.is_installed)

    def measure(self, make: Callable[[], Any], split: Split | tuple[Any, ...], targets: NDArray[Any]) -> Measured:
        """Fit a new model to the first part of a split and score it on the second; ``targets`` are all of the table."""
        x, y, x_test, y_test, groups = Split(*split)
        memory, start, processor = reset_peak(), time.perf_counter(), time.process_time()
        model = fit_model(make(), x, y, groups)
        fitted, processor, memory = time.perf_counter(), time.process_time() - processor, peak_growth(memory)
        arrays = self.predict(model, x_test, y_test, targets)
        predicted, result = time.perf_counter(), getattr(last_step(model), "result_", None)
        record: Record = {
            "num_train": len(y),
            "num_test": len(y_test),
            **self.summarize(arrays, model, x_test, y_test),
            "fit_seconds": fitted - start,
            "processor_seconds": processor,
            "predict_seconds": predicted - fitted,
            "peak_megabytes": memory,
            "num_evaluations": getattr(result, "num_evaluations", getattr(last_step(model), "num_evaluations_", None)),
            "converged": getattr(result, "converged", None),
        }
        return Measured(record, arrays, model)


Floats = NDArray[np.float64]
COVERAGE = 0.9
PINBALL_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
LEVELS = (np.arange(100) + 0.5) / 100
"""Levels of the quantiles that are scored; the CRPS is twice the mean pinball loss over these."""


def log_losses(probabilities: Floats, truth: NDArray[Any]) -> Floats:
    """−log p of the true class of each row; ``truth`` holds class numbers."""
    p = np.take_along_axis(probabilities, truth[:, None], axis=1)[:, 0]
    return np.asarray(-np.log(np.clip(p, 1e-15, 1.0)))


def calibration_error(confidence: Floats, correct: NDArray[np.bool_]) -> float:
    """Σ over ten bins of (share of points) · |mean confidence − accuracy|.

    Example:
        >>> calibration_error(np.array([0.9, 0.9, 0.9, 0.9]), np.array([True, True, True, False])).__round__(2)
        0.15
    """
    bins = np.minimum((confidence * 10).astype(int), 9)
    gaps = [abs(confidence[bins == b].mean() - correct[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))


def _predict_classes(model: Any, x: Features, y: NDArray[Any], targets: NDArray[Any]) -> Arrays:
    classes = np.unique(targets)
    probabilities = np.zeros((len(y), len(classes)))
    probabilities[:, np.searchsorted(classes, model.classes_)] = model.predict_proba(x)
    return {"probabilities": probabilities, "truth": np.searchsorted(classes, y)}


def _summarize_classes(arrays: Arrays, model: Any, x: Features, y: NDArray[Any]) -> Record:
    correct = model.predict(x) == y  # some models do not predict the most probable class
    scores = {**_score_classes(arrays), "accuracy": correct}
    means = {name: float(values.mean()) for name, values in scores.items()}
    model, error = last_step(model), calibration_error(arrays["probabilities"].max(axis=1), correct)
    bounds = {name: getattr(model, f"{name}_", None) for name in ("bound", "tight_bound")}
    values = {name: bound.value if isinstance(bound, Bound) else None for name, bound in bounds.items()}
    objective = getattr(getattr(model, "result_", None), "value", None)
    return {**means, "calibration_error": error, "objective": objective, **values}


def _score_classes(arrays: Arrays) -> dict[str, Floats]:
    p, truth = arrays["probabilities"], arrays["truth"]
    brier = ((p - np.eye(p.shape[1])[truth]) ** 2).sum(axis=1)
    return {"accuracy": (p.argmax(axis=1) == truth).astype(np.float64), "nll": log_losses(p, truth), "brier": brier}


def _pool_classes(folds: Sequence[Arrays]) -> dict[str, float]:
    # Of all folds together: one fold has too few predictions for ten bins.
    p, truth = (np.concatenate([arrays[name] for arrays in folds]) for name in ("probabilities", "truth"))
    return {"calibration_error": calibration_error(p.max(axis=1), p.argmax(axis=1) == truth)}


CLASSIFICATION = Task(
    name="classification",
    kind="classification",
    loss="nll",
    loss_name="NLL",
    loss_words="NLL is the mean negative log probability of held-out labels, in nats, ± its standard error.",
    lowest="the lowest negative log probability",
    axis="negative log probability of held-out labels (lower is better)",
    scores=(
        Score("accuracy", "accuracy %", "share of held-out labels that were predicted right.", 1, 100.0, "acc. %"),
        Score(
            "nll",
            "NLL",
            "negative log probability of the held-out labels, in nats: 0 is certainty in the right label, log of the "
            "number of classes is guessing. Learners are ranked by it because it rewards good probabilities, not only "
            "good labels.",
        ),
        Score("brier", "Brier", "mean squared distance of the probabilities from the truth."),
        Score(
            "calibration_error",
            "calibration",
            "how far stated probabilities are from the shares that turn out right (expected calibration error, all "
            "held-out rows together).",
        ),
    ),
    bound="the tight form of the paper’s bound on a loss of at most 1 on new data; “vacuous” if it is 1 or more and "
    "says nothing. It measures complexity and is not a guarantee: kernel and norm were learned on the rows it is "
    "computed from.",
    depends="What the labels depend",
    prediction="probabilities",
    predict=_predict_classes,
    summarize=_summarize_classes,
    score_rows=_score_classes,
    pool=_pool_classes,
    describe=lambda y: f"{len(np.unique(y))} classes",
    decode=lambda truth, targets: np.unique(targets)[truth],
)


def pinball(quantiles: Floats, levels: Floats, y: Floats) -> Floats:
    """max(q(y − t), (q − 1)(y − t)) of each row and level."""
    error = y[:, None] - quantiles
    return np.asarray(np.maximum(levels * error, (levels - 1) * error))


def _predict_numbers(model: Any, x: Features, y: Any, targets: Floats) -> Arrays:
    if last_step(model) is not model:
        x, model = model[:-1].transform(x), last_step(model)
    levels: Any = LEVELS
    distribution = model.distribution(x)
    if isinstance(distribution, list):  # of an embedding: for each output, in torch
        (distribution,), y, levels = distribution, torch.as_tensor(y), torch.as_tensor(LEVELS)
    arrays = {"crps": distribution.crps(y), "mean": distribution.mean, "quantiles": distribution.quantile(levels)}
    arrays |= {"truth": y, "interval": model.predict_interval(x, COVERAGE), "scale": float(targets.std()) or 1.0}
    return {name: np.asarray(values) for name, values in arrays.items()}


def _summarize_numbers(arrays: Arrays, model: Any, x: Features, y: Floats) -> Record:
    means = {name: float(values.mean()) for name, values in _score_numbers(arrays).items()}
    return {"rmse": float(np.sqrt(means.pop("squared_error"))), **means}


def _score_numbers(arrays: Arrays) -> dict[str, Floats]:
    y, scale, interval = arrays["truth"], float(arrays["scale"]), arrays["interval"]
    levels = np.abs(LEVELS[:, None] - PINBALL_LEVELS).argmin(axis=0)
    inside = (interval[:, 0] <= y) & (y <= interval[:, 1])
    return {
        "crps": arrays["crps"] / scale,
        "squared_error": ((arrays["mean"] - y) / scale) ** 2,
        "pinball": pinball(arrays["quantiles"][:, levels], LEVELS[levels], y).mean(axis=1) / scale,
        "coverage": inside.astype(np.float64),
        "width": (interval[:, 1] - interval[:, 0]) / scale,
    }


REGRESSION = Task(
    name="regression",
    kind="regression",
    loss="crps",
    loss_name="CRPS",
    loss_words=(
        "CRPS is the continuous ranked probability score of held-out rows in standard deviations of the target, ± its "
        "standard error; RMSE is in the same unit; cover is the share of rows inside 90 % intervals."
    ),
    lowest="the lowest CRPS",
    axis="CRPS, in deviations of the target (lower is better)",
    scores=(
        Score(
            "crps",
            "CRPS",
            "continuous ranked probability score of the predicted distribution, the squared distance of its "
            "distribution function from the step at the outcome, in standard deviations of the target: 0 is certainty "
            "in the right value. Learners are ranked by it because it rewards good distributions, not only good means.",
        ),
        Score("rmse", "RMSE", "root mean squared error of the predicted mean, in the same unit.", short="RMSE"),
        Score("pinball", "pinball", "mean pinball loss of the quantiles at 5, 25, 50, 75 and 95 %."),
        Score("coverage", "coverage %", "share of held-out values inside 90 % intervals.", 1, 100.0, "cover"),
        Score("width", "width", "mean width of those intervals, in standard deviations of the target.", 2),
    ),
    depends="What the target depends",
    prediction="quantiles",
    predict=_predict_numbers,
    summarize=_summarize_numbers,
    score_rows=_score_numbers,
    pool=lambda folds: {"coverage": float(np.concatenate([_score_numbers(fold)["coverage"] for fold in folds]).mean())},
    describe=lambda y: f"target from {decimal(y.min())} to {decimal(y.max())}",
)

TASKS = {task.name: task for task in (CLASSIFICATION, REGRESSION)}
