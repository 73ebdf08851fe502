"""A pool of several embeddings, with the prediction methods of one embedding."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor

from ..embeddings import LinearPredictor, MulticlassEmbedding, MulticlassPredictor
from ..objectives import LogarithmicPool, SoftmaxCalibration, calibrate, pool
from ..tabular.input_transforms import cached_transforms
from .candidates import Candidate, relevances
from .conditioning import Table, ridge_of
from .member_models import LogisticPredictor


@dataclasses.dataclass(frozen=True)
class PlainSoftmax:
    """No calibration: the cross-entropy of these logits was minimized already.

    Example:
        >>> PlainSoftmax().log_probabilities(torch.zeros(1, 2)).exp()
        tensor([[0.5000, 0.5000]])
    """

    def log_probabilities(self, F: Tensor) -> Tensor:
        """log softmax(F), ``(n, m)``."""
        return F.log_softmax(dim=-1)


@dataclasses.dataclass(frozen=True)
class MemberCandidate:
    """A candidate with its embeddings and predictors, and its out-of-sample values at the validation rows."""

    candidate: Candidate
    embeddings: tuple[MulticlassEmbedding, ...]
    predictors: tuple[LinearPredictor, ...]
    left_out: Tensor

    def calibration(self, Y: Tensor, weights: Tensor | None) -> SoftmaxCalibration | PlainSoftmax:
        """The map from values to probabilities."""
        if self.candidate.family == "logistic":
            return PlainSoftmax()
        return calibrate(self.left_out, Y, weights=weights)

    def relevances(self, groups: Tensor) -> Tensor:
        """The relevance of each column of the table."""
        of_each = [
            predictor.relevances(groups) if isinstance(predictor, LogisticPredictor) else relevances(embedding, groups)
            for embedding, predictor in zip(self.embeddings, self.predictors, strict=True)
        ]
        return torch.stack(of_each).mean(0)


@dataclasses.dataclass(frozen=True)
class Member:
    """A learned candidate: the mean of the predictions of one or several embeddings, with its calibration.

    Attributes:
        candidate: which kernel.
        embeddings: on transformed rows; one for each cross-fitting part.
        predictors: the same with data, as functions of encoded rows.
        calibration: from decision probabilities, or the logits of logistic regression, to probabilities.
        relevances: of each column of the table.

    Example:
        >>> import kernel_embed as ke
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = ke.MulticlassEmbeddingClassifier(max_evaluations=3, progress=False).fit(X[::5], y[::5])
        >>> classifier.conditioned_.members[0].relevances.shape
        torch.Size([4])
    """

    candidate: Candidate
    embeddings: tuple[MulticlassEmbedding, ...]
    predictors: tuple[LinearPredictor, ...]
    calibration: SoftmaxCalibration | PlainSoftmax
    relevances: Tensor

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log p(x) at checked points, from the mean of f(x) over the embeddings: ``(t, m)``."""
        F = [predictor.evaluate(x) for predictor in self.predictors]
        return self.calibration.log_probabilities(F[0] if len(F) == 1 else torch.stack(F).mean(0))


class PooledPredictor(MulticlassPredictor):
    """A logarithmic pool of members; see :mod:`kernel_embed.objectives.pool`.

    Attributes:
        members: the candidates that take part.
        pool: their weights, and the offsets of the classes.
        left_out: leave-one-out log probabilities of training rows, by hyperparameters learned without them,
            ``(n', m)``.
        left_out_rows: the numbers of those rows.
        left_out_parts: which embedding of a member was learned without each of them.

    Example:
        >>> import kernel_embed as ke
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> classifier = ke.MulticlassEmbeddingClassifier(max_evaluations=3, progress=False).fit(X[::5], y[::5])
        >>> len(classifier.conditioned_.members) == len(classifier.conditioned_.pool.weights)
        True
    """

    def __init__(
        self,
        members: tuple[Member, ...],
        pool: LogarithmicPool,
        left_out: Tensor,
        left_out_rows: Tensor,
        left_out_parts: Tensor,
    ) -> None:
        self.members, self.pool = members, pool
        self.left_out, self.left_out_rows, self.left_out_parts = left_out, left_out_rows, left_out_parts

    def __repr__(self) -> str:
        shares = zip(self.members, self.pool.weights.tolist(), strict=True)
        return f"<PooledPredictor: {', '.join(f'{weight:.2f} {member.candidate}' for member, weight in shares)}>"

    @property
    def num_classes(self) -> int:
        """m."""
        return len(self.pool.offset)

    @property
    def relevances(self) -> Tensor:
        """The relevance of each column, averaged over members by weight, ``(G,)``; those of one member sum to 1."""
        weights = self.pool.weights / self.pool.weights.sum().clamp_min(1e-12)
        shares = torch.stack([member.relevances / member.relevances.sum() for member in self.members])
        return weights.to(shares) @ shares

    def prepare(self) -> PooledPredictor:
        """Resolve the kernels now, and not at the first prediction."""
        for member in self._active:
            for predictor in member.predictors:
                predictor.prepare()
        return self

    def refitted(self, table: Table, rows: Tensor, part: int) -> PooledPredictor:
        """The pool with the embeddings of one part, conditioned only on some rows of the ``table`` it was fitted to."""
        subset = table.subset(rows)
        members = tuple(
            dataclasses.replace(
                member, predictors=(refitted(member.predictors[min(part, len(member.predictors) - 1)], table, subset),)
            )
            for member in self._active
        )
        pool = LogarithmicPool(self.pool.weights[self.pool.weights > 0], self.pool.offset)
        return PooledPredictor(members, pool, self.left_out, self.left_out_rows, self.left_out_parts)

    @property
    def _active(self) -> list[Member]:
        return [member for member, w in zip(self.members, self.pool.weights.tolist(), strict=True) if w > 0]

    def log_probabilities(self, x: Tensor) -> Tensor:
        """log p(x): ``(t, m)``."""
        return self._log_probabilities(self.members[0].predictors[0].representation.check(x))

    def _log_probabilities(self, x: Tensor) -> Tensor:
        with cached_transforms():
            log_p = [member.log_probabilities(x) for member in self._active]
        if not log_p:
            return self.pool.offset.log_softmax(-1).expand(len(x), -1)
        weights = self.pool.weights[self.pool.weights > 0]
        return LogarithmicPool(weights, self.pool.offset).log_probabilities(torch.stack(log_p))

    def probabilities(self, x: Tensor) -> Tensor:
        """p(x), calibrated: ``(t, m)``."""
        return self.log_probabilities(x).exp()

    def evaluate(self, x: Tensor) -> Tensor:
        """:meth:`probabilities` at points that are checked already."""
        return self._log_probabilities(x).exp()

    def mean(self, x: Tensor) -> Tensor:
        """E[Y | X = x] for one-hot targets, the probabilities themselves: ``(t, m)``."""
        return self.probabilities(x)


def refitted(predictor: LinearPredictor, table: Table, subset: Table) -> LinearPredictor:
    """A predictor that was conditioned on ``table``, conditioned on a ``subset`` with the same ridge."""
    if isinstance(predictor, LogisticPredictor):
        return predictor.refitted(subset)
    kernel = predictor.embedding.kernel  # type: ignore[attr-defined]
    embedding = MulticlassEmbedding(kernel, table.num_classes).to(table.x).requires_grad_(False)
    embedding.regularization = ridge_of(predictor, table) / subset.total_weight
    return embedding.attach(subset.x, subset.y, subset.weights)


@torch.no_grad()
def pooled(
    table: Table, validation_rows: Tensor, parts: Tensor, candidates: Sequence[MemberCandidate]
) -> PooledPredictor:
    """Calibrate every candidate on the validation rows, of these ``parts``, and combine them in one pool."""
    Y, weights = table.Y(validation_rows), table.weights_of(validation_rows)
    calibrations = [one.calibration(Y, weights) for one in candidates]
    log_p = torch.stack(
        [calibration.log_probabilities(one.left_out) for one, calibration in zip(candidates, calibrations, strict=True)]
    )
    combined = pool(log_p, Y, weights=weights)
    members = tuple(
        Member(one.candidate, one.embeddings, one.predictors, calibration, one.relevances(table.groups))
        for one, calibration in zip(candidates, calibrations, strict=True)
    )
    return PooledPredictor(members, combined, combined.log_probabilities(log_p), validation_rows, parts).prepare()
