"""More rows for a classifier that has learned, without starting over.

Kernels, ridges, calibrations and the weights of the pool are held; coefficients become those of all rows. Members
through features add to their sums, and never see old rows again. Exact members are conditioned anew, and turn to
features where there are more than :data:`kernel_embed.estimators.default.EXACT` rows.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from ..embeddings import ConditionedMulticlass, LinearPredictor, MulticlassEmbedding
from ..scale.predictors import MulticlassExpansion, MulticlassFeaturePredictor, expansion
from ..splits import stratified_sample
from .conditioning import Table, num_points, through_features
from .default import EXACT
from .logistic import LogisticPredictor
from .pooled import PooledPredictor


@torch.no_grad()
def updated(pooled: PooledPredictor, old: Table, new: Table) -> tuple[PooledPredictor, Table]:
    """The pool of the rows of both tables, and the table that it still needs."""
    whole = old.joined(new)
    members = tuple(
        dataclasses.replace(member, answers=tuple(_updated(answers, whole, new) for answers in member.answers))
        for member in pooled.members
    )
    held = any(isinstance(answers, MulticlassExpansion) for member in members for answers in member.answers)
    return PooledPredictor(members, pooled.pool, pooled.left_out, pooled.left_out_rows), whole if held else old


def _updated(answers: LinearPredictor, whole: Table, new: Table) -> LinearPredictor:
    if isinstance(answers, MulticlassFeaturePredictor | ConditionedMulticlass):
        return answers.updated(new.x, new.y, new.weights)
    if isinstance(answers, LogisticPredictor):
        if len(whole.x) <= EXACT:
            return answers.refitted(whole)
        return answers.updated(new.x, new.Y(torch.arange(len(new.x), device=new.x.device)), new.weights)
    if not isinstance(answers, MulticlassExpansion):
        raise TypeError(f"Expected a member that can take rows, got {type(answers).__name__}. Fit anew.")
    embedding = MulticlassEmbedding(answers.embedding.kernel, answers.num_classes).to(whole.x)
    before = whole.total_weight - new.total_weight
    embedding.regularization = answers.embedding.regularization.item() * before / whole.total_weight
    if len(whole.x) <= EXACT:
        conditioned = embedding.condition(whole.x, whole.y, whole.weights)
        return expansion(conditioned.embedding, conditioned.x, conditioned.V)
    rows = stratified_sample(whole.labels, num_points(len(whole.x)), np.random.default_rng(0))
    statistics = through_features(embedding, whole, whole.x[whole.rows(rows)])
    statistics.embedding.regularization = embedding.regularization.detach()
    return statistics.condition()
