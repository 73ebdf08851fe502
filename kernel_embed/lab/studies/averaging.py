"""A classifier averaged over the posterior of its kernel, compared with the point estimate under the same objective.

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

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.model_selection import StratifiedKFold

from ...estimators.classifier import MulticlassEmbeddingClassifier
from ...objectives import ConditionalEvidence, default_objective
from ...posteriors import PosteriorWarning
from ...results import Record, column, group, standard_error, table
from ..compare.comparison import shipped
from ..compare.embedding_classifiers import PosteriorAverageClassifier
from ..compare.reading import scaled
from ..compare.tasks import SMALLEST_PROBABILITY, calibration_error
from ..experiment import Experiment, Settings
from ..runner import Case

DATASETS = ("iris", "wine", "digits", "cancer")
FOLDS = 5
Learner = MulticlassEmbeddingClassifier | PosteriorAverageClassifier
_average = partial(PosteriorAverageClassifier, None, num_samples=60, warmup_steps=40, max_tree_depth=10)
LEARNERS: dict[str, Callable[[], Learner]] = {
    "evidence: point": lambda: MulticlassEmbeddingClassifier(None, ConditionalEvidence(), progress=False),
    "evidence: averaged": lambda: _average(objective=ConditionalEvidence()),
    "default: point": lambda: MulticlassEmbeddingClassifier(None, default_objective(), progress=False),
    "default: averaged": lambda: _average(objective=default_objective()),
    "default: sharpened": lambda: _average(objective=default_objective(), powers=(1.0, 4.0, 16.0, 64.0)),
}


@functools.cache
def tables(num_digits: int = 400) -> dict[str, tuple[NDArray[np.float64], NDArray[np.generic]]]:
    """Iris (two attributes), wine, a random part of the digits, and breast cancer."""
    digits, cancer = load_digits(), load_breast_cancer()
    rows = np.random.default_rng(0).permutation(len(digits.target))[:num_digits]
    ours = {table.name: (table.x.to_numpy(), table.y) for table, _ in shipped()}
    part = {f"digits ({num_digits} rows)": (digits.data[rows], digits.target[rows])}
    return {**ours, **part, "cancer": (cancer.data, cancer.target)}


def cases(settings: Settings, num_rows: int | None) -> Iterator[Case]:
    """Each method on the folds of the data sets; ``num_folds`` says how many of the five are run."""
    names = settings.selected("datasets", DATASETS, DATASETS[:1] if settings.quick else DATASETS)
    every = tuple(LEARNERS)
    methods = settings.selected("methods", every, every[:2] if settings.quick else every)
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
    learner, start = LEARNERS[method](), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PosteriorWarning)  # of one chain and sixty draws
        learner.fit(x, y)
    seconds = time.perf_counter() - start
    truth, p = np.searchsorted(learner.classes_, y_test), np.asarray(learner.predict_proba(x_test))
    of_truth = np.clip(p[np.arange(len(truth)), truth], SMALLEST_PROBABILITY, 1.0)
    # Text, so that records stay flat: the calibration error belongs to all folds together.
    return {
        "fit_seconds": seconds,
        "nll": float(-np.log(of_truth).mean()),
        "confidence": " ".join(f"{c:.6f}" for c in p.max(axis=1)),
        "correct": " ".join(str(int(c)) for c in p.argmax(axis=1) == truth),
    }


def summary(records: Sequence[Record]) -> str:
    """Accuracy, NLL and calibration error over all test rows; NLL less that of the point estimate, paired by fold."""
    rows = []
    in_order = sorted(records, key=lambda record: int(str(record["fold"])))
    by_method = group(in_order, lambda r: f"{r['dataset']}, {r['method']}")
    for name, own in by_method.items():
        point = by_method.get(f"{str(name).rpartition(':')[0]}: point", [])
        confidence, correct = (
            np.array(" ".join(str(r[field]) for r in own).split(), float) for field in ("confidence", "correct")
        )
        difference = ""
        if len(point) == len(own) and point is not own:
            gaps = column(own, "nll") - column(point, "nll")
            difference = f"{gaps.mean():+.4f}" + (f" ± {standard_error(gaps):.4f}" if len(gaps) > 1 else "")
        rows.append([
            str(name),
            f"{100 * correct.mean():.1f}",
            f"{column(own, 'nll').mean():.4f}",
            difference,
            f"{calibration_error(confidence, correct == 1):.4f}",
            f"{column(own, 'fit_seconds').mean():.1f}",
            str(len(own)),
        ])  # fmt: skip
    return table(["data, method", "accuracy %", "NLL", "less point", "calibration error", "seconds", "folds"], rows)


AVERAGED = Experiment(
    "averaged", "probabilities averaged over the posterior of the kernel, and those of the point estimate",
    "an hour", ("experiment", "dataset", "method", "fold"), cases, summary,
    options=frozenset({"num_folds", "datasets", "methods"}), parameters={"num_rows": None},
)  # fmt: skip
