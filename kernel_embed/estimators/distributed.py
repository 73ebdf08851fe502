"""The classifier on rows of several processes or machines, started by ``torchrun``, and updates with new rows.

1. The ranks gather a sample of :data:`GATHERED` rows that contains every class. Rank 0 learns the column encoding, the
   kernels and the Nyström points from it, as in one process, and broadcasts them.
2. Every rank computes ZᵀWZ and ZᵀWY of its other rows; these are added over ranks, p² + pm numbers for each kernel.
3. From the totals every rank learns ridges, calibrations and the pool again, on the gathered rows.

If there are at most :data:`GATHERED` rows in all, they are all gathered, and the result is that of one process.

New rows can be added to a fitted classifier. Kernels, ridges, calibrations and pool weights stay fixed; the
coefficients become those of all rows. Members with features add to their sums and do not need the old rows. Exact
members are conditioned again, and switch to features beyond :data:`kernel_embed.estimators.default.EXACT` rows.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import _safe_indexing
from torch import Tensor

from ..embeddings import ConditionedMulticlass, LinearPredictor, MulticlassEmbedding
from ..scale.distributed import collective, reduce_statistics
from ..scale.predictors import MulticlassExpansion, MulticlassFeaturePredictor, expansion
from ..scale.statistics import FeatureStatistics
from ..splits import seed_of, stratified_sample
from ..tabular.encoder import validate_table
from .conditioning import Table, condition_on_sums, num_points, through_features
from .default import EXACT
from .member_models import LogisticPredictor
from .pooled import Member, MemberCandidate, PooledPredictor, pooled
from .prediction import Labels, read_labels

if TYPE_CHECKING:
    from .classifier import MulticlassEmbeddingClassifier


GATHERED = 20_000
"""Rows that are gathered, at most."""


def fit_on_ranks(
    classifier: MulticlassEmbeddingClassifier, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> None:
    """Learn one classifier from the rows of all ranks; ``X`` and ``y`` are those of this rank."""
    if not dist.is_initialized():
        raise RuntimeError(
            "distributed=True needs a process group. Start the ranks with torchrun and call "
            "torch.distributed.init_process_group first."
        )
    X, labels = _read_everywhere(classifier, X, y, sample_weight)
    shares: list[tuple[int, list[Any]]] = _gathered((int(labels.labeled.sum()), labels.classes.tolist()))
    total = sum(rows for rows, _ in shares)
    classes = np.unique(np.concatenate([np.asarray(labels) for _, labels in shares]))
    labeled = np.flatnonzero(labels.labeled)
    generator = np.random.default_rng([seed_of(classifier.random_state) or 0, dist.get_rank()])
    size = len(labeled) if total <= GATHERED else int(np.ceil(GATHERED * len(labeled) / total))
    sampled = labeled[stratified_sample(labels.numbers[labeled], size, generator)]
    samples = _gathered(tuple(_safe_indexing(part, sampled) for part in (X, np.asarray(y), labels.weights)))
    _learn_on_leader(classifier, samples, classes, labels.weighted, total)
    if total > GATHERED:
        rest = np.setdiff1d(labeled, sampled)
        own = read_labels(X, y, sample_weight, classes).subset(rest)
        table = None if len(rest) == 0 else classifier._distinct(classifier._matrix(_safe_indexing(X, rest)), own)
        classifier._take(_with_sums(classifier, table))


def _read_everywhere(
    classifier: MulticlassEmbeddingClassifier, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None
) -> tuple[Any, Labels]:
    """The table and labels of this rank; if the data of any rank are invalid, all ranks raise."""
    problem: Exception | None = None
    try:
        X = validate_table(classifier, X, reset=True)
        labels = read_labels(X, y, sample_weight)
    except (ValueError, TypeError) as error:
        problem = error
    problems = _gathered(None if problem is None else str(problem))
    if problem is not None:
        raise problem
    refused = {rank: text for rank, text in enumerate(problems) if text is not None}
    if refused:
        raise ValueError(f"The data of some ranks are invalid: {refused}. Correct those rows.")
    return X, labels


def _learn_on_leader(
    classifier: MulticlassEmbeddingClassifier, samples: list[Any], classes: NDArray[Any], weighted: bool, total: int
) -> None:
    """Learn on rank 0 from the gathered rows, and broadcast the result to every rank."""
    box: list[Any] = [None]
    if dist.get_rank() == 0:
        X, y = _stacked([sample[0] for sample in samples]), np.concatenate([sample[1] for sample in samples])
        weights = np.concatenate([sample[2] for sample in samples]) if weighted else None
        try:
            classifier._fit(X, y, weights, classes, total)
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
        raise TypeError("distributed=True works for the default classifier, not for one kernel. Use ShardedEmbedding.")
    for member in predictor.members:
        (old,) = member.predictors
        if isinstance(old, LogisticPredictor):
            members.append(_logistic_with_sums(member, old, rest, classifier._table.x[predictor.left_out_rows]))
            continue
        if not isinstance(old, MulticlassFeaturePredictor):
            raise TypeError(
                f"A {type(old).__name__} has no features, so its rows cannot be added over ranks. "
                "Fit it with more rows than features on every rank."
            )  # pragma: no cover
        own = FeatureStatistics(old.embedding)
        if rest is not None:
            own.update(rest.x, rest.y, rest.weights)
        whole = old.statistics + reduce_statistics(own)
        ridge = old.embedding.regularization.item() * old.num_data
        values, new = condition_on_sums(whole, classifier._table, predictor.left_out_rows, ridge)
        members.append(MemberCandidate(member.candidate, member.embeddings, (new,), values))
    return pooled(classifier._table, predictor.left_out_rows, predictor.left_out_parts, members)


def _logistic_with_sums(
    member: Member, old: LogisticPredictor, rest: Table | None, validation_rows: Tensor
) -> MemberCandidate:
    """The same for logistic regression, which leaves validation rows out of its sums."""
    own = FeatureStatistics(old.logits.embedding)
    if rest is not None:
        own = old.statistics_of(rest.x, rest.Y(torch.arange(len(rest.x), device=rest.x.device)), rest.weights)
    new = old.joined(reduce_statistics(own))
    return MemberCandidate(member.candidate, member.embeddings, (new,), new.mean(validation_rows))


def _gathered(value: Any) -> list[Any]:
    """The values of all ranks, on every rank."""
    values: list[Any] = [None] * dist.get_world_size()
    collective("gathering rows", dist.all_gather_object, values, value)
    return values


def _stacked(parts: list[Any]) -> Any:
    """Matrices or data frames, one below the other."""
    if hasattr(parts[0], "iloc"):
        import pandas

        return pandas.concat(parts, ignore_index=True)
    if hasattr(parts[0], "vstack"):
        return functools.reduce(lambda above, below: above.vstack(below), parts)
    return np.concatenate(parts)


@torch.no_grad()
def updated(pooled: PooledPredictor, old: Table, new: Table) -> tuple[PooledPredictor, Table]:
    """The pool updated with new rows, and the table that it still needs."""
    whole = old.joined(new)
    members = tuple(
        dataclasses.replace(
            member, predictors=tuple(_updated(predictor, whole, new) for predictor in member.predictors)
        )
        for member in pooled.members
    )
    needs_rows = any(
        isinstance(predictor, MulticlassExpansion) for member in members for predictor in member.predictors
    )
    pool = PooledPredictor(members, pooled.pool, pooled.left_out, pooled.left_out_rows, pooled.left_out_parts)
    return pool, whole if needs_rows else old


def _updated(predictor: LinearPredictor, whole: Table, new: Table) -> LinearPredictor:
    if isinstance(predictor, MulticlassFeaturePredictor | ConditionedMulticlass):
        return predictor.updated(new.x, new.y, new.weights)
    if isinstance(predictor, LogisticPredictor):
        if len(whole.x) <= EXACT:
            return predictor.refitted(whole)
        return predictor.updated(new.x, new.Y(torch.arange(len(new.x), device=new.x.device)), new.weights)
    if not isinstance(predictor, MulticlassExpansion):
        raise TypeError(f"A {type(predictor).__name__} cannot be updated with more rows. Fit again.")
    embedding = MulticlassEmbedding(predictor.embedding.kernel, predictor.num_classes).to(whole.x)
    before = whole.total_weight - new.total_weight
    embedding.regularization = predictor.embedding.regularization.item() * before / whole.total_weight
    if len(whole.x) <= EXACT:
        conditioned = embedding.condition(whole.x, whole.y, whole.weights)
        return expansion(conditioned.embedding, conditioned.x, conditioned.V)
    rows = stratified_sample(whole.labels, num_points(len(whole.x)), np.random.default_rng(0))
    statistics = through_features(embedding, whole, whole.x[whole.rows(rows)])
    statistics.embedding.regularization = embedding.regularization.detach()
    return statistics.condition()
