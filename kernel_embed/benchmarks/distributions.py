"""Predictive distributions of numeric targets beside others: CRPS, coverage and width on tables, and on known laws."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from ..comparison.evaluate_numbers import predicted
from ..comparison.predictive import BoostedQuantiles, CatBoostLaw, GaussianProcess, NGBoost, QuantileForest
from ..estimators import ConditionalEmbeddingRegressor
from ..results import Record, group, number
from .cases import OURS, Call, Case, Scope

Array = NDArray[np.float64]

TABLES, LAWS = "distributions: tables", "distributions: known laws"
NAMES = ("concrete", "boston", "sacramento", "ozone", "diabetes")
FOLDS, COVERAGE = 5, 0.9


class Prediction(NamedTuple):
    """What a learner says of new rows: the CRPS of each, means, and intervals of the coverage asked for."""

    crps: Array
    mean: Array
    interval: Array


Learner = Callable[[Array, Array, Array, Array], Prediction]
"""From training inputs and targets, new inputs, and the targets there, which only score it."""


def asked(model: Any, new: Array, outcomes: Array) -> Prediction:
    """What a fitted learner says."""
    arrays = predicted(model, new, outcomes)
    return Prediction(arrays["crps"], arrays["mean"], arrays["interval"])


def ours(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """The regressor as it comes."""
    model = ConditionalEmbeddingRegressor(random_state=0, progress=False)
    return asked(model.fit(x, y), new, outcomes)


def reference(make: Callable[[], Any], x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """A learner of the comparison on numbers as they are."""
    return asked(make().fit(x, y), new, outcomes)


def gaussian_process(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """On standard inputs."""
    return asked(make_pipeline(StandardScaler(), GaussianProcess()).fit(x, y), new, outcomes)


def mapie(base: Callable[[], Any], x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """MAPIE's CV+ intervals around a regressor: no distribution, so no CRPS."""
    from mapie.regression import CrossConformalRegressor

    model = CrossConformalRegressor(base(), confidence_level=COVERAGE, cv=10, random_state=0)
    mean, interval = model.fit_conformalize(x, y).predict_interval(new)
    return Prediction(np.full(len(new), np.nan), mean, interval[:, :, 0])


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return RandomForestRegressor(300, random_state=0)


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(random_state=0)


LEARNERS: dict[str, tuple[Learner, str]] = {
    OURS: (ours, ""),
    "NGBoost": (partial(reference, NGBoost), "ngboost"),
    "quantile forest": (partial(reference, QuantileForest), "quantile_forest"),
    "Gaussian process, ARD": (gaussian_process, ""),
    "CatBoost with uncertainty": (partial(reference, CatBoostLaw), "catboost"),
    "histogram boosting, quantiles": (partial(reference, BoostedQuantiles), ""),
    "MAPIE CV+, random forest": (partial(mapie, _forest), "mapie"),
    "MAPIE CV+, histogram boosting": (partial(mapie, _boosting), "mapie"),
}
"""By name: the learner, and the package it needs."""


def load(name: str, data: pathlib.Path) -> tuple[Array, Array]:
    """A table as numbers; text in one column for each value that at least ten rows have."""
    import pandas

    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        x, y = load_diabetes(return_X_y=True)
        return np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    frame = pandas.read_csv(data / f"{name}.csv")
    y = frame.pop("target").to_numpy(dtype=np.float64)
    for column in frame.select_dtypes(exclude="number"):
        counts = frame[column].map(frame[column].value_counts())
        frame[column] = frame[column].where(counts >= 10, "other")
    return pandas.get_dummies(frame).to_numpy(dtype=np.float64), y


def _on_table(learner: Learner, name: str, data: pathlib.Path, rows: int | None) -> Call:
    x, y = load(name, data)
    order = np.random.RandomState(0).permutation(len(y))[:rows]
    x, y = x[order], y[order]

    def call() -> Record:
        folds = [np.arange(len(y)) % FOLDS == fold for fold in range(FOLDS)]
        scale = y.std()
        answers = [learner(x[~held], y[~held], x[held], y[held]) for held in folds]
        record: Record = {f"crps_{k}": float(a.crps.mean() / scale) for k, a in enumerate(answers)}
        crps, mean = (np.concatenate([getattr(a, field) for a in answers]) for field in ("crps", "mean"))
        interval, outcomes = np.concatenate([a.interval for a in answers]), np.concatenate([y[held] for held in folds])
        inside = (interval[:, 0] <= outcomes) & (outcomes <= interval[:, 1])
        return record | {
            "crps": float(crps.mean() / scale),
            "rmse": float(np.sqrt(np.mean((mean - outcomes) ** 2)) / scale),
            "coverage": float(inside.mean()),
            "width": float((interval[:, 1] - interval[:, 0]).mean() / scale),
        }

    return call


def table_cases(scope: Scope) -> Iterator[Case]:
    """Every learner on every table, five folds, CRPS and width in standard deviations of the target."""
    names = ("diabetes",) if scope.quick or scope.data is None else NAMES
    chosen = (OURS, "NGBoost") if scope.quick else tuple(LEARNERS)
    for name in names:
        rows = 60 if scope.quick else None
        n = len(load(name, scope.data or pathlib.Path())[1][:rows])
        for learner in chosen:
            call, package = LEARNERS[learner]
            prepare = partial(_on_table, call, name, scope.data or pathlib.Path(), rows)
            yield Case(f"{TABLES}: {name}", learner, n, prepare, package)


def words(records: Sequence[Record]) -> str:
    """How far the CRPS of ours is from the best of the others, in paired standard errors over folds."""
    lines = []
    for part, found in group(records, lambda record: record["part"]).items():
        by_name = {str(r["name"]): r for r in found if r.get("crps") is not None and np.isfinite(number(r, "crps"))}
        if OURS not in by_name or len(by_name) < 2:
            continue
        best = min((name for name in by_name if name != OURS), key=lambda name: number(by_name[name], "crps"))
        folds = [f"crps_{k}" for k in range(FOLDS)]
        difference = np.array([number(by_name[OURS], f) - number(by_name[best], f) for f in folds])
        error = difference.std(ddof=1) / np.sqrt(FOLDS)
        lines.append(
            f"{str(part).removeprefix(TABLES + ': ')}: ours less {best}, the best of the others: "
            f"{difference.mean():+.4f} ± {error:.4f}"
        )
    return "\n".join(lines)
