"""Do repeated rows, weights and groups change what is learned? Do quantiles and intervals have their coverage?

*Repeats*: the classifier learns from the same rows given in five ways, and predicts the same held-out rows. A table
carries no more information if every row has weight 2 or occurs twice, and hardly more if rows are repeated with small
changes. So the NLL should stay what it is for the rows as they are.

*Coverage*: the regressor predicts held-out rows of tables with numbers, categories, dates and missing cells. The share
of targets below a predicted quantile should be its level, and values of the predicted distribution function at the
targets should be uniform.
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
from ..compare.reading import data_directory
from ..compare.tables import read_user_table
from ..experiment import Experiment, Settings, record_table
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


def five_columns(rng: np.random.Generator, n: int) -> Rows:
    """Two classes by a noisy product and a noisy sum of five normal columns."""
    x = rng.normal(size=(n, 5))
    score = 1.5 * x[:, 0] * x[:, 1] + x[:, 2] + 0.8 * rng.normal(size=n)
    return Rows(pd.DataFrame(x, columns=list("abcde")), (score > 0).astype(int))


def rare_class(rng: np.random.Generator, n: int) -> Rows:
    """A class of 8 % of the rows, with a shifted mean."""
    y = (rng.uniform(size=n) < 0.08).astype(int)
    return Rows(pd.DataFrame(rng.normal(size=(n, 4)) + y[:, None], columns=list("abcd")), y)


def mixed_columns(rng: np.random.Generator, n: int) -> Rows:
    """Numbers, a category with an effect, 0/1 columns and missing cells."""
    kind = rng.integers(3, size=n)
    x = pd.DataFrame({"a": rng.normal(size=n), "b": rng.exponential(size=n), "kind": np.array(list("uvw"))[kind]})
    for j in range(3):
        x[f"flag{j}"] = rng.integers(2, size=n)
    score = x["a"] + np.log(x["b"]) * (kind == 1) + x["flag0"] + 0.5 * rng.normal(size=n)
    x.loc[rng.uniform(size=n) < 0.1, "b"] = np.nan
    return Rows(x, (score > 0.5).astype(int).to_numpy())


SIMULATIONS: dict[str, Callable[[np.random.Generator, int], Rows]] = {
    "five columns": five_columns,
    "rare class": rare_class,
    "mixed columns": mixed_columns,
}


def as_they_are(rows: Rows, rng: np.random.Generator) -> Rows:
    """The rows without a change."""
    return rows


def weight_two(rows: Rows, rng: np.random.Generator) -> Rows:
    """Weight 2 for every row."""
    return rows._replace(weights=np.full(len(rows.y), 2.0))


def doubled(rows: Rows, rng: np.random.Generator) -> Rows:
    """Every row twice."""
    return rows.take(np.tile(np.arange(len(rows.y)), 2))


def some_repeated(rows: Rows, rng: np.random.Generator) -> Rows:
    """30 % of the rows twice."""
    n = len(rows.y)
    return rows.take(np.concatenate([np.arange(n), rng.choice(n, 3 * n // 10, replace=False)]))


def in_groups(rows: Rows, rng: np.random.Generator) -> Rows:
    """Every row five times, with numbers changed by 1 % of their standard deviation; the copies are a group."""
    groups = np.tile(np.arange(len(rows.y)), COPIES)
    copies = rows.take(groups)
    for name in copies.x.columns:
        values = copies.x[name]
        if pd.api.types.is_float_dtype(values):
            copies.x[name] = values + 0.01 * values.std() * rng.normal(size=len(values))
    return copies._replace(groups=groups)


CHANGES = {
    "as they are": as_they_are,
    "weight 2": weight_two,
    "doubled": doubled,
    "30 % repeated": some_repeated,
    f"groups of {COPIES}": in_groups,
}


def training_and_test(problem: str, seed: int, data: pathlib.Path | None, most: int = MOST_ROWS) -> tuple[Rows, Rows]:
    """Random rows of a table or a simulation to learn from, at most two thirds, and others to predict."""
    rng = np.random.default_rng(seed)
    if problem in SIMULATIONS:
        rows = SIMULATIONS[problem](rng, most + NUM_TEST)
    else:
        folder = data_directory(data)
        if folder is None:
            raise FileNotFoundError(f"No directory with {problem}.csv. Give --data DIR.")
        loaded = read_user_table(folder / f"{problem}.csv")
        rows = Rows(loaded.x, np.asarray(loaded.y))
    order = rng.permutation(len(rows.y))
    most = min(most, 2 * len(order) // 3)
    return rows.take(order[:most]), rows.take(order[most:][:NUM_TEST])


def repeat_cases(settings: Settings) -> Iterator[Case]:
    """Every change of every table, for several splits into training and held-out rows."""
    problems = settings.selected("datasets", (*SIMULATIONS, *TABLES), (*SIMULATIONS, *TABLES))
    for problem in problems[:1] if settings.quick else problems:
        for seed in range(settings.repetitions or (1 if settings.quick else 3)):
            for change in CHANGES:
                key: Record = {"experiment": "repeats", "problem": problem, "change": change, "seed": seed}
                yield Case(key, partial(_repeats, problem, change, seed, settings.data, settings.quick))


def _repeats(problem: str, change: str, seed: int, data: pathlib.Path | None, quick: bool) -> Record:
    training, test = training_and_test(problem, seed, data, 60 if quick else MOST_ROWS)
    fitted = CHANGES[change](training, np.random.default_rng(seed))
    model = MulticlassEmbeddingClassifier(random_state=seed)
    model.fit(fitted.x, fitted.y, sample_weight=fitted.weights, groups=fitted.groups)
    known = np.isin(test.y, model.classes_)
    nll = log_loss(test.y[known], model.predict_proba(test.x)[known], labels=model.classes_)
    return {"nll": float(nll), "rows": len(fitted.y)}


def repeat_summary(records: Sequence[Record]) -> str:
    """Mean NLL of each change, for every table."""
    rows = []
    for problem, own in group(records, lambda r: r["problem"]).items():
        by_change = group(own, lambda r: r["change"])
        rows.append([str(problem), *(f"{column(by_change.get(change, []), 'nll').mean():.3f}" for change in CHANGES)])
    return table(["held-out NLL", *CHANGES], rows)


def regression(rng: np.random.Generator, n: int, noise: float) -> tuple[pd.DataFrame, Array]:
    """A target with noise that grows along one number, of numbers, a category, a date and missing cells."""
    kind, day = rng.integers(4, size=n), rng.integers(365, size=n)
    x = pd.DataFrame(
        {
            "a": rng.normal(size=n),
            "b": rng.uniform(size=n),
            "kind": np.array(["north", "east", "south", "west"])[kind],
            "day": pd.Timestamp("2024-01-01") + pd.to_timedelta(day, unit="D"),
        }
    )
    y = np.sin(2.0 * x["a"]) + 0.7 * kind + noise * (0.2 + 0.8 * x["b"]) * rng.normal(size=n)
    x.loc[rng.uniform(size=n) < 0.1, "a"] = np.nan
    return x, y.to_numpy()


def coverage_cases(settings: Settings) -> Iterator[Case]:
    """Simulated tables with mixed columns."""
    for seed in range(settings.repetitions or (1 if settings.quick else 10)):
        for noise in (0.1, 1.0):
            key: Record = {"experiment": "intervals", "noise": noise, "seed": seed}
            yield Case(key, partial(_coverage, noise, seed, 60 if settings.quick else 250))


def _coverage(noise: float, seed: int, n: int) -> Record:
    x, y = regression(np.random.default_rng(seed), n + 500, noise)
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


def coverage_summary(records: Sequence[Record]) -> str:
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


def importance_cases(settings: Settings) -> Iterator[Case]:
    """Every simulation and table."""
    problems = settings.selected("datasets", (*SIMULATIONS, *TABLES), (*SIMULATIONS, *TABLES))
    for problem in problems[:1] if settings.quick else problems:
        key: Record = {"experiment": "importances", "problem": problem}
        yield Case(key, partial(_importances, problem, settings.data, settings.quick))


def _importances(problem: str, data: pathlib.Path | None, quick: bool) -> Record:
    training, test = training_and_test(problem, 0, data, 60 if quick else MOST_ROWS)
    model = MulticlassEmbeddingClassifier(random_state=0).fit(training.x, training.y)
    ours = model.permutation_importance()
    known = np.isin(test.y, model.classes_)
    theirs = permutation_importance(
        model, test.x[known], test.y[known], scoring="neg_log_loss", n_repeats=5, random_state=0
    )
    best = int(ours.mean.argmax())
    return {
        "columns": len(ours.names),
        "correlation": float(spearmanr(ours.mean, theirs.importances_mean).statistic),
        "first": ours.names[best],
        "its rank": int((theirs.importances_mean > theirs.importances_mean[best]).sum()) + 1,
        "inverse lengthscales": float(
            spearmanr(list(model.inverse_lengthscales_.values()), theirs.importances_mean).statistic
        ),
    }


def importance_summary(records: Sequence[Record]) -> str:
    """The rank correlation with the importances on held-out rows."""
    columns = {
        "table": "{problem}", "columns": "{columns}", "rank correlation": "{correlation:.2f}",
        "of inverse lengthscales": "{inverse lengthscales:.2f}", "most important": "{first}",
        "rank on held-out rows": "{its rank}",
    }  # fmt: skip
    return record_table(records, columns)


REPEATS = Experiment(
    "repeats",
    "held-out NLL of the classifier when rows have weight 2, occur twice, or come in groups",
    "ten minutes", ("experiment", "problem", "change", "seed"), repeat_cases, repeat_summary,
    options=frozenset({"repetitions", "data", "datasets", "jobs"}), files=FILES,
)  # fmt: skip
INTERVALS = Experiment(
    "intervals",
    "coverage of quantiles and intervals of the regressor on tables with mixed columns",
    "five minutes", ("experiment", "noise", "seed"), coverage_cases, coverage_summary,
    options=frozenset({"repetitions", "jobs"}),
)  # fmt: skip
IMPORTANCES = Experiment(
    "importances",
    "importances from the training rows against scikit-learn's permutation importance on held-out rows",
    "two minutes", ("experiment", "problem"), importance_cases, importance_summary,
    options=frozenset({"data", "datasets", "jobs"}), files=FILES,
)  # fmt: skip
