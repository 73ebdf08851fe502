"""Predictive distributions of numeric targets on tables, compared with other libraries."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import make_pipeline

from ...results import Record, group, number
from ...tabular import TableEncoder
from ..compare.tasks import REGRESSION
from ..compare.trees import Categories
from .measurement import OURS, Call, Measurement, Scope, note, part

Array = NDArray[np.float64]

TABLES = "distributions: tables"
NAMES = ("concrete", "boston", "sacramento", "ozone", "diabetes")
"""Tables of the data directory; the last is scikit-learn's."""
FOLDS, COVERAGE = 5, 0.9


class Prediction(NamedTuple):
    """The CRPS of each new row, means, and prediction intervals."""

    crps: Array
    mean: Array
    interval: Array


Learner = Callable[[pd.DataFrame, Array, pd.DataFrame, Array], Prediction]
"""From training rows and targets, new rows, and the targets there, which only score it."""


def _compared(name: str, x: pd.DataFrame, y: Array, new: pd.DataFrame, outcomes: Array) -> Prediction:
    """A learner of ``kernel-embed compare``, with the same preparation of the table."""
    model = REGRESSION.learners()[name].for_tables().fit(x, y)
    arrays = REGRESSION.predict(model, new, outcomes, y)
    return Prediction(arrays["crps"], arrays["mean"], arrays["interval"])


def _mapie(base: Callable[[], Any], x: pd.DataFrame, y: Array, new: pd.DataFrame, outcomes: Array) -> Prediction:
    """MAPIE's CV+ intervals around a regressor: no distribution, so no CRPS."""
    from mapie.regression import CrossConformalRegressor

    model = CrossConformalRegressor(base(), confidence_level=COVERAGE, cv=10, random_state=0)
    mean, interval = model.fit_conformalize(x, y).predict_interval(new)
    return Prediction(np.full(len(new), np.nan), mean, interval[:, :, 0])


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return make_pipeline(TableEncoder(), RandomForestRegressor(300, random_state=0))


def _boosting() -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return make_pipeline(Categories(), HistGradientBoostingRegressor(categorical_features="from_dtype", random_state=0))


MAPIE = "MAPIE CV+"
LEARNERS: dict[str, tuple[Learner, str]] = {
    **{
        name: (partial(_compared, learner), REGRESSION.learners()[learner].package)
        for name, learner in {
            OURS: "default",
            f"{OURS}: one kernel by the score": "one kernel",
            f"{OURS}: one kernel by the evidence": "evidence",
            "NGBoost": "ngboost",
            "quantile forest": "quantile forest",
            "CatBoost with uncertainty": "catboost",
            "histogram boosting, quantiles": "boosting",
            "Gaussian process, ARD": "gaussian process",
        }.items()
    },
    f"{MAPIE}, random forest": (partial(_mapie, _forest), "mapie"),
    f"{MAPIE}, histogram boosting": (partial(_mapie, _boosting), "mapie"),
}
"""By name: the learner, and the package it needs."""


def _load(name: str, data: pathlib.Path | None) -> tuple[pd.DataFrame, Array]:
    """A table with its numbers and texts, and its column ``target``."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        x, y = load_diabetes(return_X_y=True, as_frame=True)
        return x, y.to_numpy(dtype=np.float64)
    if data is None:
        raise FileNotFoundError(f"No directory with {name}.csv. Give --data DIR.")
    frame = pd.read_csv(data / f"{name}.csv")
    y = frame.pop("target").to_numpy(dtype=np.float64)
    return frame, y


def _on_table(learner: Learner, name: str, data: pathlib.Path | None, rows: int | None) -> Call:
    x, y = _load(name, data)
    order = np.random.RandomState(0).permutation(len(y))[:rows]
    x, y = x.iloc[order].reset_index(drop=True), y[order]

    def call() -> Record:
        folds = [np.arange(len(y)) % FOLDS == fold for fold in range(FOLDS)]
        scale = y.std()
        predictions = [learner(x[~test], y[~test], x[test], y[test]) for test in folds]
        record: Record = {f"crps_{k}": float(a.crps.mean() / scale) for k, a in enumerate(predictions)}
        crps, mean = (np.concatenate([getattr(a, field) for a in predictions]) for field in ("crps", "mean"))
        interval, outcomes = (
            np.concatenate([a.interval for a in predictions]),
            np.concatenate([y[test] for test in folds]),
        )
        inside = (interval[:, 0] <= outcomes) & (outcomes <= interval[:, 1])
        return record | {
            "crps": float(crps.mean() / scale),
            "rmse": float(np.sqrt(np.mean((mean - outcomes) ** 2)) / scale),
            "coverage": float(inside.mean()),
            "width": float((interval[:, 1] - interval[:, 0]).mean() / scale),
        }

    return call


@part("distributions")
def table_cases(scope: Scope) -> Iterator[Measurement]:
    """Every learner on every table, five folds, CRPS and width in standard deviations of the target."""
    names = scope.tables or (("diabetes",) if scope.quick or scope.data is None else NAMES)
    learners = (OURS, "NGBoost") if scope.quick else tuple(LEARNERS)
    for name in names:
        rows = 60 if scope.quick else None
        n = len(_load(name, scope.data)[1][:rows])
        for learner in learners:
            call, package = LEARNERS[learner]
            yield Measurement(
                f"{TABLES}: {name}", learner, n, partial(_on_table, call, name, scope.data, rows), package
            )


@note(TABLES)
def table_note(records: Sequence[Record]) -> str:
    """Our CRPS minus the best other one, with its paired standard error; width of our intervals over MAPIE's."""
    lines = []
    for title, own in group(records, lambda record: record["part"]).items():
        by_name = {str(r["name"]): r for r in own}
        if OURS not in by_name:
            continue
        ours, table = by_name.pop(OURS), str(title).removeprefix(TABLES + ": ")
        others = [n for n in by_name if not n.startswith((OURS, MAPIE))]
        if others:
            best = min(others, key=lambda name: number(by_name[name], "crps"))
            folds = [f"crps_{k}" for k in range(FOLDS)]
            difference = np.array([number(ours, f) - number(by_name[best], f) for f in folds])
            error = difference.std(ddof=1) / np.sqrt(FOLDS)
            lines.append(f"{table}: ours less {best}, the best of the others: {difference.mean():+.4f} ± {error:.4f}")
        for name in (n for n in by_name if n.startswith(MAPIE)):
            width = number(ours, "width") / number(by_name[name], "width")
            lines.append(f"{table}: width of ours over that of {name}: {width:.3f}")
    return "\n".join(lines)
