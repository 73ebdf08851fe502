"""A pool of several embeddings, with the prediction methods of one embedding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..embeddings import (
    ConditionedMulticlass,
    LinearPredictor,
    MulticlassEmbedding,
    MulticlassExpansion,
    MulticlassPredictor,
)
from ..objectives import LogarithmicPool, SoftmaxCalibration, calibrate, pool
from ..scale.statistics import MulticlassFeaturePredictor
from ..splits import stratified_sample
from ..tabular.input_transforms import cached_transforms
from .candidates import Candidate
from .conditioning import Table, is_exact, num_points, ridge_of, through_features
from .member_models import LogisticPredictor
from .repeated_inputs import RepeatedInputs, repeated_inputs


@dataclasses.dataclass(frozen=True)
class Member:
    """A learned candidate: the mean of the predictions of one or several embeddings, with its calibration."""

    candidate: Candidate
    embeddings: tuple[MulticlassEmbedding, ...]  # on transformed rows, one for each cross-fitting part
    predictors: tuple[LinearPredictor, ...]  # the same with data, as functions of encoded rows
    relevances: Tensor  # of each column of the table, (G,)
    calibration: SoftmaxCalibration | None = None  # None for logits, whose cross-entropy was minimized already

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log p(x) at checked points, from the mean of f(x) over the embeddings: ``(t, m)``."""
        F = [predictor.evaluate(x) for predictor in self.predictors]
        return self.calibrated(F[0] if len(F) == 1 else torch.stack(F).mean(0))

    def calibrated(self, F: Tensor) -> Tensor:
        """log p(x) ``(t, m)`` from decision probabilities, which are calibrated, or from logits, by softmax."""
        return F.log_softmax(dim=-1) if self.calibration is None else self.calibration.log_probabilities(F)


class PooledPredictor(MulticlassPredictor):
    """A logarithmic pool of members; see :mod:`kernel_embed.objectives.pool`.

    ``left_out`` are log probabilities ``(n', m)`` of the training rows ``left_out_rows``, by models without them;
    ``left_out_parts`` says which embedding of a member was learned without each. ``repeats`` is for inputs
    that occur in training.
    """

    def __init__(
        self,
        members: Sequence[Member],
        pool: LogarithmicPool,
        left_out: Tensor,
        rows: Tensor,
        parts: Tensor,
        repeats: RepeatedInputs | None = None,
    ) -> None:
        self.members, self.pool, self.repeats = tuple(members), pool, repeats
        self.left_out, self.left_out_rows, self.left_out_parts = left_out, rows, parts

    def __repr__(self) -> str:
        shares = zip(self.members, self.pool.weights.tolist(), strict=True)
        return f"<PooledPredictor: {', '.join(f'{weight:.2f} {member.candidate}' for member, weight in shares)}>"

    @property
    def num_classes(self) -> int:
        """m, the number of classes."""
        return len(self.pool.offset)

    @property
    def relevances(self) -> Tensor:
        """The relevance of each column, averaged over members by weight, ``(G,)``; those of one member sum to 1."""
        weights = self.pool.weights / self.pool.weights.sum().clamp_min(1e-12)
        shares = torch.stack([member.relevances / member.relevances.sum() for member in self.members])
        return weights.to(shares) @ shares

    def evaluate(self, x: Tensor) -> Tensor:
        """p(x) at points that are checked already: ``(t, m)``."""
        members, pool = self.active
        if not members:
            return pool.offset.softmax(-1).expand(len(x), -1)
        with cached_transforms():
            log_p = torch.stack([member.log_probabilities(x) for member in members])
        p = pool.log_probabilities(log_p).exp()
        return p if self.repeats is None else self.repeats.mixed(x, p)

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for one-hot targets, the probabilities: ``(t, m)``."""
        return self.evaluate(self.members[0].predictors[0].representation.check(x))

    def probabilities(self, x: Tensor) -> Tensor:
        """p(x), calibrated: ``(t, m)``."""
        return self.mean(x)

    @property
    def active(self) -> tuple[list[Member], LogarithmicPool]:
        """The members of positive weight, and the pool of these."""
        weights = self.pool.weights
        members = [member for member, weight in zip(self.members, weights.tolist(), strict=True) if weight > 0]
        return members, LogarithmicPool(weights[weights > 0], self.pool.offset)

    def refitted(self, table: Table, rows: Tensor, part: int) -> PooledPredictor:
        """The pool with the embeddings of one part, conditioned only on some rows of the ``table`` it was fitted to."""
        subset, (active, pool), members = table.subset(rows), self.active, []
        for member in active:
            own = member.predictors[min(part, len(member.predictors) - 1)]
            members.append(dataclasses.replace(member, predictors=(refitted(own, table, subset),)))
        return PooledPredictor(members, pool, self.left_out, self.left_out_rows, self.left_out_parts)

    @torch.no_grad()
    def updated(self, old: Table, new: Table) -> tuple[PooledPredictor, Table]:
        """The pool with rows added to those of ``old``, and the table that it still needs.

        Members with features add to their sums and do not need the old rows. Exact members are conditioned again, and
        switch to features beyond :data:`kernel_embed.estimators.conditioning.EXACT` rows.
        """
        whole = old.joined(new)
        members = [
            dataclasses.replace(member, predictors=tuple(_updated(one, old, new, whole) for one in member.predictors))
            for member in self.members
        ]
        needs_rows = any(isinstance(one, MulticlassExpansion) for member in members for one in member.predictors)
        pool = PooledPredictor(members, self.pool, self.left_out, self.left_out_rows, self.left_out_parts, self.repeats)
        return pool, whole if needs_rows else old


def refitted(predictor: LinearPredictor, table: Table, subset: Table) -> LinearPredictor:
    """A predictor that was conditioned on ``table``, conditioned on other rows with the same ridge."""
    if isinstance(predictor, LogisticPredictor):
        return predictor.refitted(subset)
    return _with_ridge(predictor, table, subset).attach(subset.x, subset.y, subset.weights)


def _with_ridge(predictor: LinearPredictor, table: Table, rows: Table) -> MulticlassEmbedding:
    """The embedding of a predictor on ``table``, with the λ of the same ridge for other ``rows``."""
    kernel = predictor.embedding.kernel  # type: ignore[attr-defined]
    embedding = MulticlassEmbedding(kernel, table.num_classes).to(table.x).requires_grad_(False)
    embedding.regularization = ridge_of(predictor, table) / rows.total_weight
    return embedding


def _updated(predictor: LinearPredictor, old: Table, new: Table, whole: Table) -> LinearPredictor:
    if isinstance(predictor, MulticlassFeaturePredictor | ConditionedMulticlass):
        return predictor.updated(new.x, new.y, new.weights)
    if isinstance(predictor, LogisticPredictor):
        exact = is_exact(len(whole.x))
        return predictor.refitted(whole) if exact else predictor.joined(predictor.statistics_of(new))
    if not isinstance(predictor, MulticlassExpansion):
        raise TypeError(f"A {type(predictor).__name__} cannot be updated with more rows. Fit again.")
    embedding = _with_ridge(predictor, old, whole)
    if is_exact(len(whole.x)):
        return embedding.attach(whole.x, whole.y, whole.weights).expansion()
    rows = stratified_sample(whole.labels, num_points(len(whole.x)), np.random.default_rng(0))
    statistics = through_features(embedding, whole, whole.x[whole.rows(rows)])
    statistics.embedding.regularization = embedding.regularization.detach()
    return statistics.condition()


@torch.no_grad()
def pooled(
    table: Table, validation_rows: Tensor, parts: Tensor, members: Sequence[tuple[Member, Tensor]]
) -> PooledPredictor:
    """Calibrate members on their out-of-sample values at the validation rows, of these ``parts``, and combine them."""
    Y, weights = table.Y(validation_rows), table.weights_of(validation_rows)
    calibrated, of_members = [], []
    for member, values in members:
        if not isinstance(member.predictors[0], LogisticPredictor):
            member = dataclasses.replace(member, calibration=calibrate(values, Y, weights=weights))
        calibrated.append(member)
        of_members.append(member.calibrated(values))
    log_p = torch.stack(of_members)
    combined = pool(log_p, Y, weights=weights)
    left_out = combined.log_probabilities(log_p)
    repeats = repeated_inputs(table, validation_rows, left_out)
    predictor = PooledPredictor(calibrated, combined, left_out, validation_rows, parts, repeats)
    for member in predictor.active[0]:
        for one in member.predictors:
            one.prepare()  # resolves the kernels now, and not at the first prediction
    return predictor
