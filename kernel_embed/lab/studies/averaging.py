"""A classifier averaged over the posterior of its kernel, beside the point estimate under the same objective.

Iris (two attributes), wine, 400 digits and breast cancer; folds as in ``kernel-embed compare``. Point estimate and
posterior have the same kernel, the same objective and the same priors, except that sampling needs a prior on λ.
*Sharpened* is the average at the power of the density with the best leave-one-out probabilities.
"""

from __future__ import annotations

import functools
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold

from ...embeddings import ConditionedMulticlass
from ...estimators.classifier import MulticlassEmbeddingClassifier
from ...objectives import ConditionalEvidence, Objective, default_objective
from ...posteriors import PosteriorWarning
from ...posteriors.gibbs import leave_one_out_score
from ...results import Record, column, group, table
from ..compare.comparison import shipped
from ..compare.data import Table, scaled
from ..compare.embedding_classifiers import PosteriorAverageClassifier
from ..compare.tasks import SMALLEST_PROBABILITY, calibration_error
from ..experiment import Experiment, Settings
from ..runner import Case

DATASETS = ("iris", "wine", "digits", "cancer")
FOLDS = 5
POWERS = (1.0, 4.0, 16.0, 64.0)
HOT = "temperature 64"
METHODS = (
    "evidence: point",
    "evidence: averaged",
    "default: point",
    "default: averaged",
    "default: sharpened",
    f"default: {HOT}",
)
LEFT_OUT = "leave-one-out nll"
"""Of averages: leave-one-out predictions of the training rows, averaged over draws."""
KINDS = {"calibrated": True, "eq. (6)": False}
"""The probabilities that are evaluated: calibrated on leave-one-out values, or clipped and normalized."""


Learner = MulticlassEmbeddingClassifier | PosteriorAverageClassifier


def learners() -> dict[str, Callable[[], Learner]]:
    """Name → a new classifier: two objectives, as a point estimate, averaged, sharpened and at a high temperature."""
    makers: dict[str, Callable[[], Learner]] = {}
    objectives: dict[str, Objective[ConditionedMulticlass]] = {
        "evidence": ConditionalEvidence(),
        "default": default_objective(),
    }
    for name, objective in objectives.items():
        makers[f"{name}: point"] = partial(MulticlassEmbeddingClassifier, None, objective, progress=False)
        averaged = partial(
            PosteriorAverageClassifier, None, objective, num_samples=60, warmup_steps=40, max_tree_depth=10
        )
        makers[f"{name}: averaged"] = averaged
        makers[f"{name}: sharpened"] = partial(averaged, powers=POWERS)
        makers[f"{name}: {HOT}"] = partial(averaged, temperature=64.0)
    return makers


def probabilities(learner: Learner, X: NDArray[np.float64], calibrated: bool) -> NDArray[np.float64]:
    """Of a classifier of :func:`learners`, calibrated on leave-one-out values or by eq. (6)."""
    if calibrated:
        return np.asarray(learner.predict_proba(X))
    x = torch.tensor(X)
    with torch.no_grad():
        if isinstance(learner, PosteriorAverageClassifier):
            return np.asarray(learner.posterior_.probabilities(x).numpy())
        return np.asarray(learner.conditioned_.probabilities(x).numpy())


@functools.cache
def tables(num_digits: int = 400, seed: int = 0) -> dict[str, Table]:
    """Iris (two attributes), wine, a random part of the digits, and breast cancer."""
    digits, cancer = load_digits(), load_breast_cancer()
    rows = np.random.default_rng(seed).permutation(len(digits.target))[:num_digits]
    ours = {table.name: Table(table.x.to_numpy(), table.y) for table, _ in shipped()}
    part = {f"digits ({num_digits} rows)": Table(digits.data[rows], digits.target[rows])}
    return {**ours, **part, "cancer": Table(cancer.data, cancer.target)}


def cases(settings: Settings, num_rows: int | None) -> Iterator[Case]:
    """Each method on the folds of the data sets; ``num_folds`` says how many of the five are run."""
    names = settings.selected("datasets", DATASETS, DATASETS[:1] if settings.quick else DATASETS)
    methods = settings.selected("methods", METHODS, METHODS[:2] if settings.quick else METHODS)
    folds = range(min(settings.num_folds or (1 if settings.quick else FOLDS), FOLDS))
    for dataset, fold, method in itertools.product(tables(), folds, methods):
        if dataset.split()[0] in names:
            key: Record = {"experiment": "averaged", "dataset": dataset, "method": method, "fold": fold}
            yield Case(key, partial(_evaluate, dataset, method, fold, num_rows))


def _evaluate(dataset: str, method: str, fold: int, num_rows: int | None) -> Record:
    data, target = tables()[dataset]
    step = 1 if num_rows is None else -(-len(target) // num_rows)
    data, target = data[::step], target[::step]
    train, test = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(data, target))[fold]
    x, y, x_test, y_test = scaled(data[train], target[train], data[test], target[test])
    learner = learners()[method]()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of one chain and sixty draws
        learner.fit(x, y)
    record: Record = {"fit_seconds": time.perf_counter() - start}
    if isinstance(learner, PosteriorAverageClassifier):
        codes = torch.tensor(np.searchsorted(learner.classes_, y))
        record[LEFT_OUT] = leave_one_out_score(learner.posterior_, codes)
    truth = np.searchsorted(learner.classes_, y_test)
    for kind, calibrated in KINDS.items():
        p = probabilities(learner, x_test, calibrated)
        of_truth = np.clip(p[np.arange(len(truth)), truth], SMALLEST_PROBABILITY, 1.0)
        record[f"{kind} nll"] = float(-np.log(of_truth).mean())
        # Text, so that records stay flat: the calibration error belongs to all folds together.
        record[f"{kind} confidence"] = " ".join(f"{c:.6f}" for c in p.max(axis=1))
        record[f"{kind} correct"] = " ".join(str(int(c)) for c in p.argmax(axis=1) == truth)
    return record


def summary(records: Sequence[Record]) -> str:
    """Every method on every table, and what averaging changes."""
    return f"{figures(records)}\n\n{differences(records)}"


def figures(records: Sequence[Record]) -> str:
    """Accuracy, NLL and calibration error over all test rows, the mean of the folds' own errors, left-out NLL."""
    rows = []
    for name, folds in group(records, lambda r: f"{r['dataset']}, {r['method']}").items():
        for kind, calibrated in KINDS.items():
            predictions = [_predictions(record, kind) for record in folds]
            confidence, correct = (np.concatenate(parts) for parts in zip(*predictions, strict=True))
            rows.append([
                f"{name}, {kind}",
                f"{100 * correct.mean():.1f}",
                f"{column(folds, f'{kind} nll').mean():.4f}",
                f"{calibration_error(confidence, correct):.4f}",
                f"{np.mean([calibration_error(*one) for one in predictions]):.4f}",
                f"{column(folds, LEFT_OUT).mean():.4f}" if calibrated and LEFT_OUT in folds[0] else "",
                f"{column(folds, 'fit_seconds').mean():.1f}",
                str(len(folds)),
            ])  # fmt: skip
    header = ["data, method", "accuracy %", "NLL", "calibration error", "of each fold", "left out", "seconds", "folds"]
    return table(header, rows)


def differences(records: Sequence[Record], num_resamples: int = 1000) -> str:
    """An average less the point estimate: NLL with its standard error over folds, calibration error with a bootstrap's.

    The bootstrap draws test rows, the same for both.
    """
    rows = []
    for name, both in group(records, lambda r: f"{r['dataset']}, {str(r['method']).split(':')[0]}").items():
        methods = group(both, lambda r: str(r["method"]).split(": ")[1])
        point = _in_order(methods.pop("point", []))
        for (method, folds), kind in itertools.product(methods.items(), KINDS):
            averaged = _in_order(folds)
            if len(averaged) != len(point):
                continue
            nll = column(averaged, f"{kind} nll") - column(point, f"{kind} nll")
            predictions = [[np.concatenate(parts) for parts in zip(*(_predictions(r, kind) for r in one), strict=True)]
                      for one in (point, averaged)]  # fmt: skip
            n, generator = len(predictions[0][0]), np.random.default_rng(0)
            gaps = [_calibration_gap(predictions, rows) for rows in generator.integers(0, n, (num_resamples, n))]
            rows.append([
                f"{name}: {method}, {kind}",
                f"{nll.mean():+.4f} ± {nll.std(ddof=1) / np.sqrt(len(nll)):.4f}" if len(nll) > 1 else f"{nll[0]:+.4f}",
                f"{_calibration_gap(predictions, np.arange(n)):+.4f} ± {np.std(gaps):.4f}",
            ])  # fmt: skip
    return table(["less point", "NLL", "calibration error"], rows)


def _in_order(records: Sequence[Record]) -> list[Record]:
    return sorted(records, key=lambda record: int(str(record["fold"])))


def _calibration_gap(predictions: list[list[NDArray[Any]]], rows: NDArray[np.int64]) -> float:
    point, averaged = (calibration_error(confidence[rows], correct[rows]) for confidence, correct in predictions)
    return averaged - point


def _predictions(record: Record, kind: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The largest probability of every test row of a fold, and whether its label was right."""
    confidence = np.array(str(record[f"{kind} confidence"]).split(), dtype=np.float64)
    return confidence, np.array(str(record[f"{kind} correct"]).split()) == "1"


AVERAGED = Experiment(
    "averaged", "probabilities averaged over the posterior of the kernel, beside those of the point estimate",
    "an hour", ("experiment", "dataset", "method", "fold"), cases, summary,
    options=frozenset({"num_folds", "datasets", "methods"}), parameters={"num_rows": None},
)  # fmt: skip
