"""One learner on one split: what it costs, and how good its labels and probabilities are."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import KFold
from sklearn.pipeline import Pipeline

from ...bounds import Bound
from ...results import Record
from .memory import peak_memory

SMALLEST_PROBABILITY = 1e-15
Features = Any
"""A matrix of numbers (n, d), or a pandas data frame with columns of any kind."""


def paper_folds(x: NDArray[np.float64], y: NDArray[Any], num_folds: int = 10) -> Iterator[tuple[NDArray[Any], ...]]:
    """The papers' protocol: features scaled to [0, 1], rows permuted with seed 0, then consecutive folds.

    Yields (x_train, y_train, x_test, y_test).
    """
    low, high = x.min(axis=0), x.max(axis=0)
    x = (x - low) / np.where(high > low, high - low, 1.0)
    # the stream of the legacy generator, because the published figures were made with it
    order = np.random.RandomState(0).permutation(len(y))
    x, y = x[order], y[order]
    for train, test in KFold(num_folds).split(x):
        yield x[train], y[train], x[test], y[test]


class Classifier(Protocol):
    """What a learner offers: the methods of a scikit-learn classifier."""

    classes_: NDArray[Any]

    def fit(self, X: Features, y: NDArray[Any]) -> Classifier:
        """Learn, and return itself."""

    def predict(self, X: Features) -> NDArray[Any]:
        """Labels."""

    def predict_proba(self, X: Features) -> NDArray[np.float64]:
        """Probabilities of ``classes_``."""


class Measured(NamedTuple):
    """A learner after one split: its flat record, what it said of the test rows, and itself."""

    record: Record
    arrays: dict[str, NDArray[Any]]
    learner: Any

    @property
    def probabilities(self) -> NDArray[np.float64]:
        """Of the classes, ``(n, m)``."""
        return self.arrays["probabilities"]


def evaluate(make: Callable[[], Classifier], split: tuple[NDArray[Any], ...], classes: NDArray[Any]) -> Record:
    """Fit a new learner and measure it on the test part of ``split``; see :func:`measure`."""
    return measure(make, split, classes).record


def measure(make: Callable[[], Classifier], split: tuple[NDArray[Any], ...], classes: NDArray[Any]) -> Measured:
    """Fit a new learner and measure it on the test part of ``split``.

    ``nll`` is the mean negative log probability of the true labels, in nats; ``brier`` the mean squared distance of
    the probabilities from the one-hot labels; ``calibration_error`` the expected calibration error over ten bins;
    ``peak_megabytes`` by how much the memory of the process grew at most while the learner was fitted.
    """
    x, y, x_test, y_test = split
    with peak_memory() as peak:
        started, processor = time.perf_counter(), time.process_time()
        learner = fitted_whole(make(), x, y)
        fitted, processor = time.perf_counter(), time.process_time() - processor
    probabilities = np.zeros((len(y_test), len(classes)))
    probabilities[:, np.searchsorted(classes, learner.classes_)] = learner.predict_proba(x_test)
    predicted = time.perf_counter()
    correct = learner.predict(x_test) == y_test
    truth = classes[None, :] == y_test[:, None]
    model = final(learner)
    result = getattr(model, "result_", None)
    bound, tight = getattr(model, "bound_", None), getattr(model, "tight_bound_", None)
    record: Record = {
        "num_train": len(y),
        "num_test": len(y_test),
        "accuracy": float(correct.mean()),
        "nll": float(log_losses(probabilities, truth).mean()),
        "brier": float(brier_losses(probabilities, truth).mean()),
        "calibration_error": calibration_error(probabilities.max(axis=1), correct),
        "fit_seconds": fitted - started,
        "processor_seconds": processor,
        "predict_seconds": predicted - fitted,
        "peak_megabytes": peak.megabytes,
        "num_evaluations": getattr(model, "num_evaluations_", None) if result is None else result.num_evaluations,
        "converged": None if result is None else result.converged,
        "objective": None if result is None else result.value,
        "bound": bound.value if isinstance(bound, Bound) else None,
        "tight_bound": tight.value if isinstance(tight, Bound) else None,
    }
    arrays = {"probabilities": probabilities, "truth": np.searchsorted(classes, y_test)}
    return Measured(record, arrays, learner)


def by_row(arrays: dict[str, NDArray[Any]]) -> dict[str, NDArray[np.float64]]:
    """Accuracy, NLL and Brier score of every row of a test table."""
    if not arrays:
        return {}
    p = arrays["probabilities"]
    truth = np.arange(p.shape[1])[None, :] == arrays["truth"][:, None]
    correct = (p.argmax(axis=1) == arrays["truth"]).astype(np.float64)
    return {"accuracy": correct, "nll": log_losses(p, truth), "brier": brier_losses(p, truth)}


def pooled(kept: Sequence[dict[str, NDArray[Any]]]) -> dict[str, float]:
    """The calibration error of the predictions of all folds together: a fold has too few of them for ten bins."""
    p, truth = (np.concatenate([found[name] for found in kept]) for name in ("probabilities", "truth"))
    return {"calibration_error": calibration_error(p.max(axis=1), p.argmax(axis=1) == truth)}


def fitted_whole(learner: Classifier, x: Features, y: NDArray[Any]) -> Classifier:
    """The learner, fitted. One that ends early on Ctrl-C and keeps what it has is not: the interruption goes on."""
    with global_generator_kept():
        learner = learner.fit(x, y)
    for part in ("result_", "posterior_"):
        if getattr(getattr(final(learner), part, None), "interrupted", False):
            raise KeyboardInterrupt
    return learner


@contextlib.contextmanager
def global_generator_kept() -> Iterator[None]:
    """NumPy's global generator as it was, which some learners of other packages draw from."""
    before = np.random.get_state()  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002


def final(learner: Any) -> Any:
    """The learner at the end of a pipeline, or itself."""
    return learner[-1] if isinstance(learner, Pipeline) else learner


def log_losses(probabilities: NDArray[np.float64], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """−log p of the true label of each row; ``truth`` is one-hot."""
    return np.asarray(-np.log(np.clip(probabilities[truth], SMALLEST_PROBABILITY, 1.0)))


def brier_losses(probabilities: NDArray[np.float64], truth: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Σ_c (p_c − y_c)² of each row."""
    return np.asarray(((probabilities - truth) ** 2).sum(axis=1))


def calibration_error(confidence: NDArray[np.float64], correct: NDArray[np.bool_], num_bins: int = 10) -> float:
    """Σ over bins of (share of points) · |mean confidence − accuracy|.

    Example:
        >>> calibration_error(np.array([0.9, 0.9, 0.9, 0.9]), np.array([True, True, True, False])).__round__(2)
        0.15
    """
    bins = np.minimum((confidence * num_bins).astype(int), num_bins - 1)
    gaps = [abs(confidence[bins == b].mean() - correct[bins == b].mean()) * (bins == b).mean() for b in np.unique(bins)]
    return float(sum(gaps))
