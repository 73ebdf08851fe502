"""Predictive distributions of numeric targets beside others: on tables, on known distributions, and on many rows."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from gpytorch.kernels import RBFKernel
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.pipeline import make_pipeline

from ...objectives import EmpiricalScore, RademacherComplexity
from ...results import Record, group, number
from ..compare.preprocessing import Categories, ordinal, unit_range
from ..compare.regressors import SingleKernelRegressor
from ..compare.tasks import REGRESSION
from .measurement import OURS, Call, Measurement, Scope, in_own_process, note, part

Array = NDArray[np.float64]

TABLES, KNOWN, MANY = "distributions: tables", "distributions: known laws", "distributions: many rows"
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
    """A learner of ``kernel-embed compare``, with the table in the form that it has there."""
    model = REGRESSION.learners()[name].for_tables().fit(x, y)
    return _prediction(model, new, outcomes, y)


def _prediction(model: Any, new: pd.DataFrame, outcomes: Array, y: Array) -> Prediction:
    arrays = REGRESSION.predict(model, new, outcomes, y)
    return Prediction(arrays["crps"], arrays["mean"], arrays["interval"])


def _by_bound(x: pd.DataFrame, y: Array, new: pd.DataFrame, outcomes: Array) -> Prediction:
    """One kernel by the empirical score and the complexity for any bounded target, l a squared exponential."""
    target = RBFKernel().requires_grad_(False)
    regressor = SingleKernelRegressor(EmpiricalScore() + RademacherComplexity("4e/n"), target)
    return _prediction(make_pipeline(unit_range(), regressor).fit(x, y), new, outcomes, y)


def _mapie(base: Callable[[], Any], x: pd.DataFrame, y: Array, new: pd.DataFrame, outcomes: Array) -> Prediction:
    """MAPIE's CV+ intervals around a regressor: no distribution, so no CRPS."""
    from mapie.regression import CrossConformalRegressor

    model = CrossConformalRegressor(base(), confidence_level=COVERAGE, cv=10, random_state=0)
    mean, interval = model.fit_conformalize(x, y).predict_interval(new)
    return Prediction(np.full(len(new), np.nan), mean, interval[:, :, 0])


def _forest() -> Any:
    from sklearn.ensemble import RandomForestRegressor

    return make_pipeline(ordinal(), RandomForestRegressor(300, random_state=0))


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
    f"{OURS}: one kernel by the complexity": (_by_bound, ""),
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
    """Our CRPS less the best other one, with its paired standard error; the width of intervals over MAPIE's."""
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


Distribution = Callable[[Array], tuple[Array, Array, Array]]
"""From inputs to the weights, means and scales of a mixture of Gaussians, ``(n, c)`` each."""


def _bimodal(x: Array) -> tuple[Array, Array, Array]:
    """Two branches ±(½ + x₁) of scale 0.2, the upper one with probability x₂."""
    centre = 0.5 + x[:, :1]
    p = x[:, 1:2]
    return np.hstack([p, 1 - p]), np.hstack([centre, -centre]), np.full((len(x), 2), 0.2)


def _heteroscedastic(x: Array) -> tuple[Array, Array, Array]:
    """sin 6x₁ with a scale from 0.1 to 0.9 along x₂."""
    return np.ones((len(x), 1)), np.sin(6 * x[:, :1]), 0.1 + 0.8 * x[:, 1:2]


DISTRIBUTIONS: dict[str, Distribution] = {"bimodal": _bimodal, "heteroscedastic": _heteroscedastic}


def mixture_crps(mixture: tuple[Array, Array, Array], y: Array) -> Array:
    """E|Y − y| − ½E|Y − Y′| of Gaussian mixtures, in closed form (Grimit et al. 2006)."""
    weights, means, scales = mixture

    def absolute(mean: Array, scale: Array) -> Array:
        z = mean / scale
        expected: Array = mean * (2 * norm.cdf(z) - 1) + 2 * scale * norm.pdf(z)
        return expected

    first = (weights * absolute(y[:, None] - means, scales)).sum(1)
    pairs = weights[:, :, None] * weights[:, None, :]
    spread = np.sqrt(scales[:, :, None] ** 2 + scales[:, None, :] ** 2)
    second = (pairs * absolute(means[:, :, None] - means[:, None, :], spread)).sum((1, 2))
    crps: Array = first - 0.5 * second
    return crps


def draw(distribution: Distribution, n: int, seed: int) -> tuple[Array, Array]:
    """Inputs in the unit square, and targets."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(size=(n, 2))
    weights, means, scales = distribution(x)
    component = (weights.cumsum(1) < rng.uniform(size=(n, 1))).sum(1)
    rows = np.arange(n)
    return x, means[rows, component] + scales[rows, component] * rng.normal(size=n)


def _on_distribution(learner: Learner, distribution: Distribution, n: int) -> Call:
    x, y = draw(distribution, n, 0)
    new, outcomes = draw(distribution, 4000, 1)

    def call() -> Record:
        p = learner(pd.DataFrame(x), y, pd.DataFrame(new), outcomes)
        inside = (p.interval[:, 0] <= outcomes) & (outcomes <= p.interval[:, 1])
        best = mixture_crps(distribution(new), outcomes).mean()
        return {
            "crps": float(p.crps.mean()),
            "over_law": float(p.crps.mean() / best),
            "coverage": float(inside.mean()),
            "width": float((p.interval[:, 1] - p.interval[:, 0]).mean()),
        }

    return call


@part("laws")
def known_cases(scope: Scope) -> Iterator[Measurement]:
    """Ours, one kernel by the score and by the evidence, and three others on both distributions."""
    names = [name for name in LEARNERS if name.startswith(OURS)]
    names += ["quantile forest", "NGBoost", "Gaussian process, ARD"]
    for name, distribution in DISTRIBUTIONS.items():
        for n in (100,) if scope.quick else (500, 2000):
            for learner in (OURS,) if scope.quick else names:
                call, package = LEARNERS[learner]
                yield Measurement(
                    f"{KNOWN}: {name}", learner, n, partial(_on_distribution, call, distribution, n), package
                )


def _on_many(learner: str, name: str, n: int) -> Record:
    """One learner on n rows of one distribution, in this process alone; evaluated on 4000 new rows."""
    distribution = DISTRIBUTIONS[name]
    x, y = draw(distribution, n, 0)
    new, outcomes = draw(distribution, 4000, 1)
    split = (pd.DataFrame(x), y, pd.DataFrame(new), outcomes)
    record = REGRESSION.measure(REGRESSION.learners()[learner].for_tables, split, y).record
    crps = number(record, "crps") * y.std()
    fields = ("fit_seconds", "processor_seconds", "predict_seconds", "peak_megabytes", "coverage")
    over_law = crps / mixture_crps(distribution(new), outcomes).mean()
    return {"crps": float(crps), "over_law": float(over_law), **{field: record[field] for field in fields}}


@part("many-rows")
def many_cases(scope: Scope) -> Iterator[Measurement]:
    """A hundred thousand rows: ours through features, and histogram boosting of quantiles."""
    n, name = 200 if scope.quick else 100_000, "heteroscedastic"
    for label, learner in {OURS: "default", "histogram boosting, quantiles": "boosting"}.items():
        yield Measurement(f"{MANY}: {name}", label, n, partial(in_own_process, _on_many, learner, name, n))
