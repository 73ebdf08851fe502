"""Predictive distributions of numeric targets beside others: CRPS, coverage and width on tables, and on known laws."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..results import Record, group, number
from .cases import OURS, Call, Case, Scope

Array = NDArray[np.float64]

TABLES, LAWS = "distributions: tables", "distributions: known laws"
NAMES = ("concrete", "boston", "sacramento", "ozone", "diabetes")
FOLDS, COVERAGE = 5, 0.9
LEVELS = np.linspace(0.005, 0.995, 100)
"""At which quantile methods are asked; their CRPS is twice the mean pinball loss over these."""


class Prediction(NamedTuple):
    """What a learner says of new rows: the CRPS of each, means, and intervals of the coverage asked for."""

    crps: Array
    mean: Array
    interval: Array


Learner = Callable[[Array, Array, Array, Array], Prediction]
"""From training inputs and targets, new inputs, and the targets there, which only score it."""


def ours(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """The regressor as it comes."""
    import torch

    from ..estimators import ConditionalEmbeddingRegressor

    model = ConditionalEmbeddingRegressor(random_state=0, progress=False).fit(x, y)
    (law,) = model.distribution(new)
    return Prediction(
        law.crps(torch.as_tensor(outcomes)).numpy(), model.predict(new), model.predict_interval(new, COVERAGE)
    )


def normal(mean: Array, scale: Array, outcomes: Array) -> Prediction:
    """A Gaussian predictive distribution, whose CRPS is known in closed form."""
    from scipy.stats import norm

    z = (outcomes - mean) / scale
    crps = scale * (z * (2 * norm.cdf(z) - 1) + 2 * norm.pdf(z) - 1 / np.sqrt(np.pi))
    half = norm.ppf(0.5 + 0.5 * COVERAGE) * scale
    return Prediction(crps, mean, np.stack([mean - half, mean + half], axis=1))


def from_quantiles(quantiles: Array, outcomes: Array) -> Prediction:
    """Quantiles at :data:`LEVELS`, put in order: CRPS = 2 ∫ pinball loss."""
    quantiles = np.sort(quantiles, axis=1)
    error = outcomes[:, None] - quantiles
    crps = 2 * np.maximum(LEVELS * error, (LEVELS - 1) * error).mean(axis=1)
    low, high = (np.abs(LEVELS - level).argmin() for level in (0.5 - COVERAGE / 2, 0.5 + COVERAGE / 2))
    return Prediction(crps, quantiles.mean(axis=1), quantiles[:, [low, high]])


def ngboost(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """NGBoost with a Gaussian, 500 trees."""
    from ngboost import NGBRegressor

    law = NGBRegressor(n_estimators=500, verbose=False, random_state=0).fit(x, y).pred_dist(new)
    return normal(law.params["loc"], law.params["scale"], outcomes)


def quantile_forest(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """A quantile regression forest, 300 trees."""
    from quantile_forest import RandomForestQuantileRegressor

    forest = RandomForestQuantileRegressor(300, min_samples_leaf=3, random_state=0).fit(x, y)
    answer = from_quantiles(forest.predict(new, quantiles=list(LEVELS)), outcomes)
    return answer._replace(mean=forest.predict(new, quantiles="mean"))


def gaussian_process(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """scikit-learn's, with one lengthscale for each input, by evidence."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    kernel = ConstantKernel() * RBF(np.full(x.shape[1], np.sqrt(x.shape[1])), (1e-2, 1e4)) + WhiteKernel(0.1)
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0)
    mean, scale = process.fit(scaler.transform(x), y).predict(scaler.transform(new), return_std=True)
    return normal(mean, scale, outcomes)


def catboost(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """CatBoost with its own uncertainty: mean and variance."""
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", thread_count=1, verbose=False, random_seed=0, allow_writing_files=False
    )
    mean, variance = model.fit(x, y).predict(new).T
    return normal(mean, np.sqrt(variance), outcomes)


def boosted_quantiles(x: Array, y: Array, new: Array, outcomes: Array) -> Prediction:
    """Histogram boosting with the pinball loss, at 19 levels and between them by interpolation."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    levels = np.linspace(0.05, 0.95, 19)
    models = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0).fit(x, y) for q in levels]
    quantiles = np.sort(np.stack([model.predict(new) for model in models], axis=1), axis=1)
    return from_quantiles(np.stack([np.interp(LEVELS, levels, row) for row in quantiles]), outcomes)


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
    "NGBoost": (ngboost, "ngboost"),
    "quantile forest": (quantile_forest, "quantile_forest"),
    "Gaussian process, ARD": (gaussian_process, ""),
    "CatBoost with uncertainty": (catboost, "catboost"),
    "histogram boosting, quantiles": (boosted_quantiles, ""),
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
