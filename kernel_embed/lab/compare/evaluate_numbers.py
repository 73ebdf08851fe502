r"""One learner of a numeric target on one split: how good its distributions, means and intervals are.

Scores are in standard deviations s of all targets of the table, so that tables compare. With F the predicted
distribution function and y what happened,

.. math::  \mathrm{CRPS} = \frac1s \int \big( F(t) - \mathbf 1\{y \le t\} \big)^2 dt .
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...estimators import ConditionalEmbeddingRegressor
from ...results import Record
from .evaluate import Measured, final, fitted_whole
from .memory import peak_memory
from .predictive import LEVELS, pinball

Floats = NDArray[np.float64]
COVERAGE = 0.9
PINBALL_LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


def measure(make: Callable[[], Any], split: tuple[NDArray[Any], ...], targets: Floats) -> Measured:
    """Fit a new learner and measure it on the test part of ``split``; ``targets`` are all of the table."""
    x, y, x_test, y_test = split
    with peak_memory() as peak:
        started, processor = time.perf_counter(), time.process_time()
        learner: Any = fitted_whole(make(), x, y)
        fitted, processor = time.perf_counter(), time.process_time() - processor
    arrays = predicted(learner, x_test, y_test)
    seconds = time.perf_counter() - fitted
    arrays["scale"] = np.array(float(targets.std()) or 1.0)
    result = getattr(final(learner), "result_", None)
    record: Record = {
        "num_train": len(y),
        "num_test": len(y_test),
        **{name: float(values.mean()) for name, values in by_row(arrays).items() if name != "squared_error"},
        "rmse": float(np.sqrt(by_row(arrays)["squared_error"].mean())),
        "fit_seconds": fitted - started,
        "processor_seconds": processor,
        "predict_seconds": seconds,
        "peak_megabytes": peak.megabytes,
        "num_evaluations": None if result is None else result.num_evaluations,
        "converged": None if result is None else result.converged,
    }
    return Measured(record, arrays, learner)


def predicted(learner: Any, x: Any, y: Floats) -> dict[str, NDArray[Any]]:
    """Quantiles, means, intervals and CRPS of new rows, by the learner at the end of a pipeline."""
    model = final(learner)
    if model is not learner:
        x = learner[:-1].transform(x)
    if isinstance(model, ConditionalEmbeddingRegressor):
        (law,) = model.distribution(x)
        crps, mean = law.crps(torch.as_tensor(y)).numpy(), law.mean.numpy()
        quantiles = law.quantile(torch.as_tensor(LEVELS)).numpy()
    else:
        crps, mean, quantiles = model.crps(x, y), model.predict(x), model.predict_quantile(x, LEVELS)
    interval = model.predict_interval(x, COVERAGE)
    return {"truth": y, "crps": crps, "mean": mean, "quantiles": quantiles, "interval": interval}


def by_row(arrays: dict[str, NDArray[Any]]) -> dict[str, Floats]:
    """CRPS, squared error, pinball loss, coverage and width of every row, in standard deviations of the target."""
    if not arrays:
        return {}
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


def pooled(kept: Sequence[dict[str, NDArray[Any]]]) -> dict[str, float]:
    """Coverage of all held-out rows together."""
    return {"coverage": float(np.concatenate([by_row(arrays)["coverage"] for arrays in kept]).mean())}


def pit(arrays: dict[str, NDArray[Any]]) -> Floats:
    """Where each outcome falls among its predicted quantiles, in [0, 1]: uniform where distributions are right.

    Example:
        >>> float(pit({"truth": np.array([0.5]), "quantiles": LEVELS[None, :]})[0].round(3))
        0.5
    """
    y, quantiles = arrays["truth"], arrays["quantiles"]
    below = (quantiles < y[:, None]).sum(axis=1) + 0.5 * (quantiles == y[:, None]).sum(axis=1)
    return np.asarray(below / quantiles.shape[1])
