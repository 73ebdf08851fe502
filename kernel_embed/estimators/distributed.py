"""The classifier on rows of several processes or machines, started by ``torchrun``.

1. The ranks gather a sample of :data:`GATHERED` rows that contains every class. Rank 0 learns the column encoding, the
   kernels and the Nyström points from it, as in one process, and broadcasts them.
2. Every rank computes ZᵀWZ and ZᵀWY of its other rows; these are added over ranks, p² + pm numbers for each kernel.
3. From the totals every rank learns ridges, calibrations and the pool again, on the gathered rows.

If there are at most :data:`GATHERED` rows in all, they are all gathered, and the result is that of one process.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing

from ..embeddings import LinearPredictor
from ..scale.distributed import collective, reduce_statistics
from ..scale.statistics import FeatureStatistics, MulticlassFeaturePredictor
from ..splits import seed_of, stratified_sample
from ..tabular.encoder import validate_table
from .conditioning import Table, condition_on_sums
from .member_models import LogisticPredictor
from .pooled import PooledPredictor, pooled
from .targets import Targets, read_labels

if TYPE_CHECKING:
    from .classifier import MulticlassEmbeddingClassifier

GATHERED = 20_000  # rows that are gathered, at most


def fit_on_ranks(
    classifier: MulticlassEmbeddingClassifier, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> None:
    """Learn one classifier from the rows of all ranks; ``X`` and ``y`` are those of this rank."""
    if not dist.is_initialized():
        raise RuntimeError("distributed=True needs a process group. Start the ranks with torchrun and initialize it.")
    X, targets = _read_everywhere(classifier, X, y, sample_weight)
    labeled, weights = targets.labeled, targets.weights
    assert targets.classes is not None
    counts, of_ranks = zip(*_gathered((len(labeled), targets.classes.tolist())), strict=True)
    total, classes = sum(counts), np.unique(np.concatenate([np.asarray(labels) for labels in of_ranks]))
    generator = np.random.default_rng([seed_of(classifier.random_state) or 0, dist.get_rank()])
    size = len(labeled) if total <= GATHERED else int(np.ceil(GATHERED * len(labeled) / total))
    sampled = labeled[stratified_sample(targets.Y[labeled].argmax(1), size, generator)]
    samples = _gathered(
        (_safe_indexing(X, sampled), np.asarray(y)[sampled], None if weights is None else weights[sampled])
    )
    _learn_on_leader(classifier, samples, classes, total)
    if total > GATHERED:
        rest = np.setdiff1d(labeled, sampled)
        own = read_labels(X, y, sample_weight, classes).subset(rest).times(classifier._class_factors)
        table = None if len(rest) == 0 else classifier._distinct(_safe_indexing(X, rest), own)
        classifier._take(_with_sums(classifier, table))


def _read_everywhere(
    classifier: MulticlassEmbeddingClassifier, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Any, Targets]:
    """The table and labels of this rank; if the data of any rank are invalid, all ranks raise."""
    problem: Exception | None = None
    try:
        X = validate_table(classifier, X, reset=True)
        targets = read_labels(X, y, sample_weight)
    except (ValueError, TypeError) as error:
        problem = error
    invalid = {rank: text for rank, text in enumerate(_gathered(problem and str(problem))) if text is not None}
    if problem is not None:
        raise problem
    if invalid:
        raise ValueError(f"The data of some ranks are invalid: {invalid}. Correct those rows.")
    return X, targets


def _learn_on_leader(
    classifier: MulticlassEmbeddingClassifier, samples: list[Any], classes: NDArray[Any], total: int
) -> None:
    """Learn on rank 0 from the gathered rows, and broadcast the result to every rank."""
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        tables, labels, of_rows = zip(*samples, strict=True)
        weights = None
        if any(part is not None for part in of_rows):
            pairs = zip(of_rows, labels, strict=True)
            weights = np.concatenate([np.ones(len(y)) if part is None else part for part, y in pairs])
        try:
            classifier._fit(_stacked(tables), np.concatenate(labels), weights, classes, total)
            box = [vars(classifier)]
        except (ValueError, TypeError) as error:
            box = [error]
    collective("sharing the learned model", dist.broadcast_object_list, box, 0)
    if isinstance(box[0], Exception):
        raise box[0]
    for name, value in box[0].items():
        setattr(classifier, name, value)


@torch.no_grad()
def _with_sums(classifier: MulticlassEmbeddingClassifier, rest: Table | None) -> PooledPredictor:
    """The pool with the statistics of all ranks added; ``rest`` are the other rows of this rank."""
    predictor, members = classifier.conditioned_, []
    if not isinstance(predictor, PooledPredictor):
        raise TypeError("distributed=True is for the default classifier. For one kernel use ShardedEmbedding.")
    validation = classifier._table.subset(predictor.left_out_rows)
    for member in predictor.members:
        (old,) = member.predictors
        new: LinearPredictor
        if isinstance(old, LogisticPredictor):  # which leaves validation rows out of its sums
            own = FeatureStatistics(old.logits.embedding) if rest is None else old.statistics_of(rest)
            new = old.joined(reduce_statistics(own))
            values = new.mean(validation.x)
        elif isinstance(old, MulticlassFeaturePredictor):
            own = FeatureStatistics(old.embedding)
            if rest is not None:
                own.update(rest.x, rest.y, rest.weights)
            ridge = old.embedding.regularization.item() * old.num_data
            whole = old.statistics + reduce_statistics(own)
            values, new = condition_on_sums(whole, validation, ridge)
        else:
            raise TypeError(f"Rows cannot be added over ranks to a {type(old).__name__}. Fit again on all rows.")
        members.append((dataclasses.replace(member, predictors=(new,)), values))
    return pooled(classifier._table, predictor.left_out_rows, predictor.left_out_parts, members)


def _gathered(value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    values: list[Any] = [None] * dist.get_world_size()
    collective("gathering rows", dist.all_gather_object, values, value)
    return values


def _stacked(parts: Sequence[Any]) -> Any:
    """Matrices or data frames, one below the other."""
    if hasattr(parts[0], "iloc"):
        import pandas

        return pandas.concat(parts, ignore_index=True)
    if hasattr(parts[0], "vstack"):
        return functools.reduce(lambda above, below: above.vstack(below), parts)
    return np.concatenate(parts)
