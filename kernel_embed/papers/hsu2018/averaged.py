"""A classifier averaged over the posterior of its kernel, beside the point estimate under the same objective.

    python -m kernel_embed.papers.hsu2018.averaged --out results/averaged

Iris (two attributes), wine, and 400 digits; folds as in ``kernel-embed compare``. Point estimate and posterior have the
same kernel, the same priors and the same objective; only the averaging differs.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from ...comparison import study as compare
from ...comparison.data import Table
from ...comparison.evaluate import SMALLEST_PROBABILITY, calibration_error
from ...comparison.posterior_average import PosteriorAverageClassifier
from ...estimators.classifier import MulticlassEmbeddingClassifier
from ...objectives import ConditionalEvidence, default_objective
from ...posteriors import PosteriorWarning
from ...results import Record, Results, column, group, table

METHODS = ("evidence: point", "evidence: averaged", "default: point", "default: averaged")
KINDS = {"calibrated": True, "eq. (6)": False}
"""The probabilities that are judged: calibrated on leave-one-out values, or clipped and normalised."""


def learners() -> dict[str, Callable[[], Any]]:
    """Name → a new classifier: two objectives, each as a point estimate and averaged."""
    makers: dict[str, Callable[[], Any]] = {}
    for name, objective in {"evidence": ConditionalEvidence(), "default": default_objective()}.items():
        makers[f"{name}: point"] = partial(MulticlassEmbeddingClassifier, None, objective, progress=False)
        makers[f"{name}: averaged"] = partial(
            PosteriorAverageClassifier, None, objective, num_samples=60, warmup_steps=40, max_tree_depth=10
        )
    return makers


def probabilities(learner: Any, X: NDArray[np.float64], calibrated: bool) -> NDArray[np.float64]:
    """Of a classifier of :func:`learners`, calibrated on leave-one-out values or by eq. (6)."""
    if calibrated:
        return np.asarray(learner.predict_proba(X))
    x = torch.tensor(X)
    with torch.no_grad():
        averaged = isinstance(learner, PosteriorAverageClassifier)
        return np.asarray((learner.posterior_ if averaged else learner.conditioned_).probabilities(x).numpy())


def tables(num_digits: int = 400, seed: int = 0) -> dict[str, Table]:
    """Iris (two attributes), wine, and a random part of the digits."""
    digits = load_digits()
    rows = np.random.default_rng(seed).permutation(len(digits.target))[:num_digits]
    shipped = {table.name: Table(table.x, table.y) for table, _ in compare.shipped()}
    return {**shipped, f"digits ({num_digits} rows)": Table(digits.data[rows], digits.target[rows])}


def run(
    results: Results, chosen: dict[str, Table], methods: Sequence[str], *, folds: int = 5, num_folds: int = 5
) -> None:
    """One record for each table, method and fold, up to ``num_folds`` of the ``folds``."""
    makers = learners()
    for dataset, (x, y) in chosen.items():
        splits = list(StratifiedKFold(folds, shuffle=True, random_state=0).split(x, y))[:num_folds]
        for fold, (train, test) in enumerate(splits):
            low, high = x[train].min(axis=0), x[train].max(axis=0)
            scaled = (x - low) / np.where(high > low, high - low, 1.0)
            for method in methods:
                record: Record = {"experiment": "averaged", "dataset": dataset, "method": method, "fold": fold}
                if record in results:
                    continue
                started = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", PosteriorWarning)  # of one chain and sixty draws
                    learner = makers[method]().fit(scaled[train], y[train])
                record["fit_seconds"] = time.perf_counter() - started
                truth = np.searchsorted(learner.classes_, y[test])
                for kind, calibrated in KINDS.items():
                    p = probabilities(learner, scaled[test], calibrated)
                    of_truth = np.clip(p[np.arange(len(truth)), truth], SMALLEST_PROBABILITY, 1.0)
                    record[f"{kind} nll"] = float(-np.log(of_truth).mean())
                    # Text, so that records stay flat: the calibration error belongs to all folds together.
                    record[f"{kind} confidence"] = " ".join(f"{c:.6f}" for c in p.max(axis=1))
                    record[f"{kind} correct"] = " ".join(str(int(c)) for c in p.argmax(axis=1) == truth)
                results.add(record)


def summary(records: Sequence[Record]) -> str:
    """Accuracy, NLL and calibration error over all test rows of all folds, and the mean of the folds' own errors."""
    rows = []
    for name, folds in group(records, lambda r: f"{r['dataset']}, {r['method']}").items():
        for kind in KINDS:
            judged = [_judged(record, kind) for record in folds]
            confidence, correct = (np.concatenate(parts) for parts in zip(*judged, strict=True))
            rows.append([
                f"{name}, {kind}",
                f"{100 * correct.mean():.1f}",
                f"{column(folds, f'{kind} nll').mean():.4f}",
                f"{calibration_error(confidence, correct):.4f}",
                f"{np.mean([calibration_error(*one) for one in judged]):.4f}",
                f"{column(folds, 'fit_seconds').mean():.1f}",
                str(len(folds)),
            ])  # fmt: skip
    header = ["data, method", "accuracy %", "NLL", "calibration error", "of each fold", "seconds", "folds"]
    return table(header, rows)


def differences(records: Sequence[Record], num_resamples: int = 1000) -> str:
    """Averaged less point, of NLL with its standard error over folds, of the calibration error with one by bootstrap.

    The bootstrap draws test rows, the same for both.
    """
    rows = []
    for name, both in group(records, lambda r: f"{r['dataset']}, {str(r['method']).split(':')[0]}").items():
        methods = group(both, lambda r: str(r["method"]).split(": ")[1])
        if set(methods) != {"point", "averaged"} or len(methods["point"]) != len(methods["averaged"]):
            continue
        point, averaged = (sorted(methods[m], key=lambda r: int(str(r["fold"]))) for m in ("point", "averaged"))
        for kind in KINDS:
            nll = column(averaged, f"{kind} nll") - column(point, f"{kind} nll")
            judged = [[np.concatenate(parts) for parts in zip(*(_judged(r, kind) for r in one), strict=True)]
                      for one in (point, averaged)]  # fmt: skip
            n, generator = len(judged[0][0]), np.random.default_rng(0)
            gaps = [_calibration_gap(judged, rows) for rows in generator.integers(0, n, (num_resamples, n))]
            rows.append([
                f"{name}, {kind}",
                f"{nll.mean():+.4f} ± {nll.std(ddof=1) / np.sqrt(len(nll)):.4f}" if len(nll) > 1 else f"{nll[0]:+.4f}",
                f"{_calibration_gap(judged, np.arange(n)):+.4f} ± {np.std(gaps):.4f}",
            ])  # fmt: skip
    return table(["averaged less point", "NLL", "calibration error"], rows)


def _calibration_gap(judged: list[list[NDArray[Any]]], rows: NDArray[np.int64]) -> float:
    point, averaged = (calibration_error(confidence[rows], correct[rows]) for confidence, correct in judged)
    return averaged - point


def _judged(record: Record, kind: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The largest probability of every test row of a fold, and whether its label was right."""
    confidence = np.array(str(record[f"{kind} confidence"]).split(), dtype=np.float64)
    return confidence, np.array(str(record[f"{kind} correct"]).split()) == "1"


def main() -> int:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("results/averaged"))
    parser.add_argument("--folds", type=int, default=5, help="how many of the five to run")
    parser.add_argument("--datasets", nargs="+", default=["iris", "wine", "digits"])
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    options = parser.parse_args()
    results = Results(options.out / "results.json", ("experiment", "dataset", "method", "fold"))
    chosen = {name: t for name, t in tables().items() if name.split()[0] in options.datasets}
    run(results, chosen, options.methods, num_folds=options.folds)
    sys.stdout.write(f"{summary(results.records)}\n\n{differences(results.records)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
