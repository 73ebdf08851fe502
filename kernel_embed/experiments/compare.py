"""The ways to learn a kernel, side by side on data that scikit-learn ships or on the user's own table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import StratifiedKFold

from ..progress import progress_bar
from .data import Table
from .evaluate import evaluate
from .learners import LEARNERS
from .results import Record, Results, column, group, standard_error, table

KEY = ("experiment", "dataset", "method", "fold", "folds", "seed")
METHODS = (
    "default",
    "leave-one-out",
    "evidence",
    "rademacher 4e/n",
    "cross validation",
    "median heuristic",
    "svc grid",
)


def shipped() -> dict[str, Table]:
    """Two attributes of iris, and wine."""
    iris, wine = load_iris(), load_wine()
    return {"iris (2 attributes)": Table(iris.data[:, :2], iris.target), "wine": Table(wine.data, wine.target)}


def run(
    results: Results,
    tables: dict[str, Table],
    *,
    methods: Sequence[str] = METHODS,
    folds: int = 5,
    seed: int = 0,
    progress: bool | None = None,
) -> None:
    """Fill ``results`` with one record for each table, method and fold.

    Features are scaled to [0, 1] on the training rows of each fold.
    """
    for method in methods:
        if method not in LEARNERS:
            raise ValueError(f"Expected methods among {', '.join(LEARNERS)}, got {method!r}.")
    with progress_bar(len(tables) * folds * len(methods), "compare", progress) as bar:
        for name, (x, y) in tables.items():
            classes = np.unique(y)
            splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
            for fold, (train, test) in enumerate(splitter.split(x, y)):
                low, high = x[train].min(axis=0), x[train].max(axis=0)
                scaled = (x - low) / np.where(high > low, high - low, 1.0)
                split = scaled[train], y[train], scaled[test], y[test]
                for method in methods:
                    bar.set_postfix_str(f"{name}, {method}")
                    record: Record = {"experiment": "compare", "dataset": name, "method": method, "fold": fold}
                    record.update(folds=folds, seed=seed)
                    if record not in results:
                        results.add({**record, **evaluate(LEARNERS[method], split, classes)})
                    bar.update()


def summary(records: Sequence[Record]) -> str:
    """One table for each data set: mean over folds, with the standard error of accuracy and NLL."""
    parts = []
    for dataset, chosen in group(records, lambda record: record["dataset"]).items():
        rows = []
        for method, folds in group(chosen, lambda record: record["method"]).items():
            accuracy, nll = 100.0 * column(folds, "accuracy"), column(folds, "nll")
            rows.append([
                f"{method}",
                f"{accuracy.mean():.1f} ± {standard_error(accuracy):.1f}",
                f"{nll.mean():.3f} ± {standard_error(nll):.3f}",
                f"{column(folds, 'calibration_error').mean():.3f}",
                f"{column(folds, 'fit_seconds').mean():.2f}",
            ])  # fmt: skip
        header = ["method", "accuracy %", "NLL", "calibration error", "seconds"]
        parts.append(f"{dataset}\n\n{table(header, rows)}")
    return "\n\n".join(parts)
