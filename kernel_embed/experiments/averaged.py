"""A classifier averaged over the posterior of its kernel, beside the point estimate under the same objective.

    python -m kernel_embed.experiments.averaged --out results/averaged

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
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedKFold

from ..embeddings import MulticlassEmbedding
from ..kernels import default_kernel
from ..learning import fit
from ..objectives import ConditionalEvidence, Objective, calibrate, default_objective
from ..posteriors import PosteriorWarning, sample_posterior
from . import compare
from .data import Table
from .evaluate import SMALLEST_PROBABILITY, calibration_error
from .results import Record, Results, column, group, table

METHODS = ("evidence: point", "evidence: averaged", "default: point", "default: averaged")
KINDS = {"calibrated": True, "eq. (6)": False}
"""The probabilities that are judged: calibrated on leave-one-out values, or clipped and normalised."""


class AveragedClassifier(ClassifierMixin, BaseEstimator):
    """Probabilities averaged over NUTS draws of the hyperparameters, or those of the highest posterior density.

    Args:
        objective: of the posterior; :class:`kernel_embed.ConditionalEvidence` by default.
        kernel: a function that builds the kernel for the training inputs; :func:`kernel_embed.default_kernel`.
        calibrated: probabilities of each draw calibrated on its leave-one-out values.
        averaged: false for the point estimate.
        num_samples: draws of each chain.
        warmup_steps: draws before them.
        num_chains: chains.
        random_state: seed.
    """

    def __init__(
        self,
        objective: Objective | None = None,
        kernel: Callable[[torch.Tensor], Kernel] = default_kernel,
        *,
        calibrated: bool = True,
        averaged: bool = True,
        num_samples: int = 60,
        warmup_steps: int = 40,
        num_chains: int = 1,
        random_state: int = 0,
    ) -> None:
        self.objective = objective
        self.kernel = kernel
        self.calibrated = calibrated
        self.averaged = averaged
        self.num_samples = num_samples
        self.warmup_steps = warmup_steps
        self.num_chains = num_chains
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> AveragedClassifier:
        """Sample the posterior from its mode, or stop at the mode."""
        self.classes_, numbers = np.unique(np.asarray(y), return_inverse=True)
        x, labels = torch.tensor(np.asarray(X, dtype=np.float64)), torch.tensor(numbers)
        objective = self.objective or ConditionalEvidence()
        embedding = MulticlassEmbedding(self.kernel(x), len(self.classes_))
        embedding.to(x)
        start = embedding.regularization.item()
        self.result_ = fit(embedding, objective, x, labels, progress=False)
        if not self.averaged:
            self.model_: Any = embedding.condition(x, labels)
            return self
        found = {name: value.detach() for name, value in _values(embedding).items()}
        embedding = MulticlassEmbedding(self.kernel(x), len(self.classes_), start)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PosteriorWarning)
            self.model_ = sample_posterior(
                embedding,
                objective,
                x,
                labels,
                num_samples=self.num_samples,
                warmup_steps=self.warmup_steps,
                num_chains=self.num_chains,
                seed=self.random_state,
                initial=found,
                parallel=False,
                progress=False,
            )
        return self

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:
        """Probabilities of ``classes_``."""
        x = torch.tensor(np.asarray(X, dtype=np.float64))
        with torch.no_grad():
            if self.averaged:
                p = self.model_.probabilities(x, calibrated=self.calibrated)
            elif self.calibrated:
                calibration = calibrate(self.model_.leave_one_out(), self.model_.Y)
                p = calibration.probabilities(self.model_.decision_probabilities(x))
            else:
                p = self.model_.probabilities(x)
        return np.asarray(p.numpy())

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable labels."""
        labels: NDArray[Any] = self.classes_[self.predict_proba(X).argmax(axis=1)]
        return labels


def _values(embedding: MulticlassEmbedding) -> dict[str, torch.Tensor]:
    return {"kernel.lengthscale": embedding.kernel.lengthscale, "regularization": embedding.regularization}


def learners() -> dict[str, Callable[[], AveragedClassifier]]:
    """Name → a new classifier: two objectives, each as a point estimate and averaged."""
    objectives = {"evidence": ConditionalEvidence, "default": default_objective}
    return {
        f"{name}: {'averaged' if averaged else 'point'}": lambda o=o, a=averaged: AveragedClassifier(o(), averaged=a)  # type: ignore[misc]
        for name, o in objectives.items()
        for averaged in (False, True)
    }


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
                learner = makers[method]().fit(scaled[train], y[train])
                record["fit_seconds"] = time.perf_counter() - started
                truth = np.searchsorted(learner.classes_, y[test])
                for kind, calibrated in KINDS.items():
                    learner.calibrated = calibrated
                    p = learner.predict_proba(scaled[test])
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
    sys.stdout.write(summary(results.records) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
