"""Do repeated rows, weights and groups change what is learned? Do quantiles and intervals have their coverage?

*Repeats*: a table carries no more information if every row has weight 2 or occurs twice, and hardly more if rows are
repeated with small changes. So the NLL of held-out rows should be that of learning without repeats.

*Coverage*: the share of targets below a predicted quantile should be its level, and values of the predicted
distribution function at the targets should be uniform, on tables with numbers, categories, dates and missing cells.
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import kstest, spearmanr
from sklearn.inspection import permutation_importance
from sklearn.metrics import log_loss

from ...estimators import ConditionalEmbeddingRegressor, MulticlassEmbeddingClassifier
from ...results import Record, column, group, table
from ..compare.tables import read_user_table
from ..datasets import data_folder
from ..experiment import Experiment, Settings, product_cases
from ..runner import Case

TABLES = ("penguins", "votes", "diabetes", "german", "breastcancer", "phishing")
FILES = tuple(f"{name}.csv" for name in TABLES)
MOST_ROWS, NUM_TEST = 300, 300
LEVELS = (0.1, 0.5, 0.9)
COPIES = 5
Array = NDArray[np.float64]


class Rows(NamedTuple):
    """Arguments of ``fit``: a table with labels, and weights or groups."""

    x: pd.DataFrame
    y: NDArray[Any]
    weights: Array | None = None
    groups: NDArray[np.int64] | None = None

    def take(self, rows: NDArray[np.int64]) -> Rows:
        """These rows, without weights and groups."""
        return Rows(self.x.iloc[rows].reset_index(drop=True), self.y[rows])


SIMULATIONS = ("five columns", "rare class", "mixed columns")


def _simulated(problem: str, rng: np.random.Generator, n: int) -> Rows:
    if problem == "five columns":  # two classes by a noisy product and a noisy sum of normal columns
        x = rng.normal(size=(n, 5))
        score = 1.5 * x[:, 0] * x[:, 1] + x[:, 2] + 0.8 * rng.normal(size=n)
        return Rows(pd.DataFrame(x, columns=list("abcde")), (score > 0).astype(int))
    if problem == "rare class":  # of 8 % of the rows, with a shifted mean
        y = (rng.uniform(size=n) < 0.08).astype(int)
        return Rows(pd.DataFrame(rng.normal(size=(n, 4)) + y[:, None], columns=list("abcd")), y)
    # numbers, a category with an effect, 0/1 columns and missing cells
    kind = rng.integers(3, size=n)
    frame = pd.DataFrame({"a": rng.normal(size=n), "b": rng.exponential(size=n), "kind": np.array(list("uvw"))[kind]})
    for j in range(3):
        frame[f"flag{j}"] = rng.integers(2, size=n)
    score = frame["a"] + np.log(frame["b"]) * (kind == 1) + frame["flag0"] + 0.5 * rng.normal(size=n)
    frame.loc[rng.uniform(size=n) < 0.1, "b"] = np.nan
    return Rows(frame, (score > 0.5).astype(int).to_numpy())


def _in_groups(rows: Rows, rng: np.random.Generator) -> Rows:
    """Every row five times, with numbers changed by 1 % of their standard deviation; the copies are a group."""
    groups = np.tile(np.arange(len(rows.y)), COPIES)
    copies = rows.take(groups)
    for name in copies.x.columns:
        values = copies.x[name]
        if pd.api.types.is_float_dtype(values):
            copies.x[name] = values + 0.01 * values.std() * rng.normal(size=len(values))
    return copies._replace(groups=groups)


def _some_repeated(rows: Rows, rng: np.random.Generator) -> Rows:
    n = len(rows.y)
    return rows.take(np.concatenate([np.arange(n), rng.choice(n, 3 * n // 10, replace=False)]))


CHANGES: dict[str, Callable[[Rows, np.random.Generator], Rows]] = {
    "as they are": lambda rows, rng: rows,
    "weight 2": lambda rows, rng: rows._replace(weights=np.full(len(rows.y), 2.0)),
    "doubled": lambda rows, rng: rows.take(np.tile(np.arange(len(rows.y)), 2)),
    "30 % repeated": _some_repeated,
    f"groups of {COPIES}": _in_groups,
}


def _training_and_test(problem: str, seed: int, data: pathlib.Path | None, quick: bool) -> tuple[Rows, Rows]:
    """Random rows of a table or a simulation to learn from, at most two thirds, and others to predict."""
    rng, most = np.random.default_rng(seed), 60 if quick else MOST_ROWS
    if problem in SIMULATIONS:
        rows = _simulated(problem, rng, most + NUM_TEST)
    else:
        loaded = read_user_table(data_folder(f"{problem}.csv", data) / f"{problem}.csv")
        rows = Rows(loaded.x, np.asarray(loaded.y))
    order = rng.permutation(len(rows.y))
    most = min(most, 2 * len(order) // 3)
    return rows.take(order[:most]), rows.take(order[most:][:NUM_TEST])


def _problems(settings: Settings) -> tuple[str, ...]:
    problems = settings.selected("datasets", (*SIMULATIONS, *TABLES), (*SIMULATIONS, *TABLES))
    return problems[:1] if settings.quick else problems


def _repeat_cases(settings: Settings) -> Iterator[Case]:
    """Every change of every table, for several splits into training and held-out rows."""
    repeats = partial(_repeats, data=settings.data, quick=settings.quick)
    seeds = range(settings.repetitions or (1 if settings.quick else 3))
    return product_cases("repeats", repeats, problem=_problems(settings), seed=seeds, change=CHANGES)


def _repeats(problem: str, seed: int, change: str, data: pathlib.Path | None, quick: bool) -> Record:
    training, test = _training_and_test(problem, seed, data, quick)
    fitted = CHANGES[change](training, np.random.default_rng(seed))
    model = MulticlassEmbeddingClassifier(random_state=seed)
    model.fit(fitted.x, fitted.y, sample_weight=fitted.weights, groups=fitted.groups)
    known = np.isin(test.y, model.classes_)
    nll = log_loss(test.y[known], model.predict_proba(test.x)[known], labels=model.classes_)
    return {"nll": float(nll), "rows": len(fitted.y)}


def _summarize_repeats(records: Sequence[Record]) -> str:
    """Mean NLL of each change, for every table."""
    rows = []
    for problem, own in group(records, lambda r: r["problem"]).items():
        by_change = group(own, lambda r: r["change"])
        rows.append([str(problem), *(f"{column(by_change.get(change, []), 'nll').mean():.3f}" for change in CHANGES)])
    return table(["held-out NLL", *CHANGES], rows)


def _regression(rng: np.random.Generator, n: int, noise: float) -> tuple[pd.DataFrame, Array]:
    """A target with noise that grows along one number, of numbers, a category, a date and missing cells."""
    kind, day = rng.integers(4, size=n), rng.integers(365, size=n)
    x = pd.DataFrame({"a": rng.normal(size=n), "b": rng.uniform(size=n)})
    x["kind"] = np.array(["north", "east", "south", "west"])[kind]
    x["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D")
    y = np.sin(2.0 * x["a"]) + 0.7 * kind + noise * (0.2 + 0.8 * x["b"]) * rng.normal(size=n)
    x.loc[rng.uniform(size=n) < 0.1, "a"] = np.nan
    return x, y.to_numpy()


def _coverage_cases(settings: Settings) -> Iterator[Case]:
    """Simulated tables with mixed columns."""
    seeds = range(settings.repetitions or (1 if settings.quick else 10))
    return product_cases("intervals", partial(_coverage, 60 if settings.quick else 250), seed=seeds, noise=(0.1, 1.0))


def _coverage(n: int, seed: int, noise: float) -> Record:
    x, y = _regression(np.random.default_rng(seed), n + 500, noise)
    model = ConditionalEmbeddingRegressor(random_state=seed).fit(x[:n], y[:n])
    new, truth = x[n:], y[n:]
    quantiles = model.predict_quantile(new, LEVELS)
    lower, upper = model.predict_interval(new, 0.8).T
    outer = model.predict_interval(new, 0.9)
    pit = np.diagonal(model.predict_cdf(new, truth))
    return {
        **{f"below {q:g}": float((truth <= quantiles[:, j]).mean()) for j, q in enumerate(LEVELS)},
        "coverage": float(((truth >= outer[:, 0]) & (truth <= outer[:, 1])).mean()),
        "crossed": float(((lower > quantiles[:, 0] + 1e-9) | (upper < quantiles[:, 2] - 1e-9)).mean()),
        "median outside": float(((quantiles[:, 1] < outer[:, 0]) | (quantiles[:, 1] > outer[:, 1])).mean()),
        "ks": float(kstest(pit, "uniform").statistic),
    }


def _summarize_coverage(records: Sequence[Record]) -> str:
    """Means over the simulated tables, with their standard errors."""
    fields = {
        **{f"below {q:g}": f"targets below the {q:.0%} quantile" for q in LEVELS},
        "coverage": "targets in the 90% interval",
        "crossed": "80% intervals that do not hold the 10% and 90% quantiles",
        "median outside": "medians outside the 90% interval",
        "ks": "Kolmogorov distance of the PIT from uniform",
    }
    by_noise = group(records, lambda r: r["noise"])
    rows = []
    for field, words in fields.items():
        values = [column(own, field) for own in by_noise.values()]
        rows.append([words, *(f"{one.mean():.3f} ± {one.std() / np.sqrt(len(one)):.3f}" for one in values)])
    return table([f"{len(records)} simulated tables", *(f"noise {noise:g}" for noise in by_noise)], rows)


def _importance_cases(settings: Settings) -> Iterator[Case]:
    measure = partial(_importances, data=settings.data, quick=settings.quick)
    return product_cases("importances", measure, problem=_problems(settings))


def _importances(problem: str, data: pathlib.Path | None, quick: bool) -> Record:
    training, test = _training_and_test(problem, 0, data, quick)
    model = MulticlassEmbeddingClassifier(random_state=0).fit(training.x, training.y)
    ours = model.permutation_importance()
    known = np.isin(test.y, model.classes_)
    theirs = permutation_importance(
        model, test.x[known], test.y[known], scoring="neg_log_loss", n_repeats=5, random_state=0
    ).importances_mean
    best, inverse = int(ours.mean.argmax()), list(model.inverse_lengthscales_.values())
    return {
        "columns": len(ours.names),
        "correlation": float(spearmanr(ours.mean, theirs).statistic),
        "first": ours.names[best],
        "its rank": int((theirs > theirs[best]).sum()) + 1,
        "inverse lengthscales": float(spearmanr(inverse, theirs).statistic),
    }


REPEATS = Experiment(
    "repeats",
    "held-out NLL of the classifier when rows have weight 2, occur twice, or come in groups",
    "ten minutes", ("experiment", "problem", "change", "seed"), _repeat_cases, _summarize_repeats,
    options="repetitions data datasets jobs", files=FILES,
)  # fmt: skip
INTERVALS = Experiment(
    "intervals",
    "coverage of quantiles and intervals of the regressor on tables with mixed columns",
    "five minutes", ("experiment", "noise", "seed"), _coverage_cases, _summarize_coverage,
    options="repetitions jobs",
)  # fmt: skip
IMPORTANCES = Experiment(
    "importances",
    "importances from the training rows against scikit-learn's permutation importance on held-out rows",
    "two minutes", ("experiment", "problem"), _importance_cases,
    {"table": "{problem}", "columns": "{columns}", "rank correlation": "{correlation:.2f}",
     "of inverse lengthscales": "{inverse lengthscales:.2f}", "most important": "{first}",
     "rank on held-out rows": "{its rank}"},
    options="data datasets jobs", files=FILES,
)  # fmt: skip
