r"""How the default classifier is learned: candidates, on rows that are left out of learning, and one pool of them all.

1. **Hyperparameters without their own rows.** Leave-one-out values are honest about the coefficients of an embedding,
   but not about hyperparameters that were learned from the same rows: with many columns and few rows they flatter.
   Rows are therefore split into three parts, and the hyperparameters that predict a part are learned without it. With
   more than :data:`CROSS_FITTED` rows they are learned from a sample, and all other rows are left out of that.
   Partitions are cross-fitted likewise, on more rows (:mod:`kernel_embed.estimators.member_models`), and logistic
   regression in folds of its own (:mod:`kernel_embed.estimators.member_models`).
2. **Coefficients from all rows.** Every embedding is then conditioned on all rows, exactly up to :data:`EXACT` of
   them and through Nyström's features beyond: few points for all, more for the members that count most. Its
   closed-form leave-one-out value at a row that its hyperparameters have not seen is what the finished classifier
   predicts for a new row.
3. **One pool.** On those values each candidate is calibrated, and all are combined in one convex solve.

Learning takes the same time for 10⁴ and 10⁶ rows; conditioning is linear in them.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import LogNormalPrior
from numpy.typing import NDArray
from torch import Tensor

from ..embeddings import ConditionedMulticlass, LinearPredictor, MulticlassEmbedding
from ..kernels import FeatureKernel
from ..kernels.parameters import frozen
from ..objectives import Objective
from ..progress import ProgressBar
from ..resources import few_threads
from ..splits import stratified_folds, stratified_sample
from ..tabular import InputTransform, make_input_transform
from ..tabular.input_transforms import cached_transforms
from .candidates import Candidate, Family, Learned, Relevance, Rows, Search
from .conditioning import PROBES, Table, condition_exactly, condition_through_features, num_points
from .member_models import MOST_NUMBERS, boosted_embedding, fit_logistic
from .pooled import MemberCandidate, PooledPredictor, pooled

FAMILIES: dict[InputTransform, tuple[Family, ...]] = {"squash": ("rbf", "laplace", "linear"), "quantile": ("laplace",)}
NUM_STAGES = sum(map(len, FAMILIES.values())) + 3
"""Of the progress bar."""

WIDE = 300
"""Numbers from which Matérn ½ stands for the Laplace kernel, whose distances are no matrix product."""

NUM_PARTS = 3

FEWEST = 20
"""Different rows from which they are split; fewer have no row to spare, and few hyperparameters to flatter them."""

CROSS_FITTED = 2000
"""Rows up to which hyperparameters are learned in parts; above, on a sample."""

SAMPLE = 700
"""Rows that hyperparameters are learned from, at most."""

PARTITION_ROWS = 20_000
"""Rows that partitions are grown on, at most."""

PARTITION_RIDGE = 3.0
"""η of a partition kernel, around which it is learned."""

EXACT = 5000
"""Rows up to which every embedding is conditioned exactly."""

REFINED = 2
"""Members of largest weight that are conditioned through more than :data:`PROBES` points."""

VALIDATION_ROWS = 10_000
"""Rows that calibrate and pool, at most."""

SAMPLED = 0.6
"""Share of the rows; where hyperparameters were learned from less, the ridge is learned anew."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows that hyperparameters or partitions are learned from, and the validation rows that they have not seen."""

    training_rows: Tensor
    validation_rows: Tensor


def learn_default(
    table: Table,
    objective: Objective[ConditionedMulticlass],
    seed: int,
    bar: ProgressBar,
    num_rows: int | None = None,
) -> PooledPredictor:
    """The default classifier of a table; see the module's text.

    ``num_rows`` says how many rows there are where the table is a sample of them, and others will be added.
    """
    generator = np.random.default_rng(seed)
    n = num_rows or len(table.x)
    parts, partition_parts = _parts(table, n, generator)
    validation_rows = _common([parts, partition_parts] if partition_parts else [parts])
    if len(validation_rows) > VALIDATION_ROWS:
        validation_rows = validation_rows[
            table.rows(stratified_sample(table.labels[validation_rows.cpu().numpy()], VALIDATION_ROWS, generator))
        ]
    size = num_points(n) if n > EXACT else PROBES
    points = table.x[table.rows(stratified_sample(table.labels, min(size, len(table.x) // 2 + 1), generator))]
    few = points[:: math.ceil(len(points) / PROBES)]
    transforms = {
        input_transform: make_input_transform(input_transform, table.x, table.numbers, table.weights).to(table.x)
        for input_transform in FAMILIES
    }
    search = Search(objective, functools.partial(_embedding, table.num_classes))
    learner = _Learner(table, search, transforms, validation_rows, few, exact=n <= EXACT)
    with cached_transforms():
        members = [member for input_transform in FAMILIES for member in learner.members(input_transform, parts, bar)]
        members += learner.partitions(partition_parts, seed, bar)
        members += learner.logistic(partition_parts, seed, bar)
    bar.set_postfix_str("pooling")
    predictor = pooled(table, validation_rows, members)
    if n > EXACT and len(few) < len(points):
        bar.set_postfix_str("more points for the members that count")
        fuller = dataclasses.replace(learner, points=points)
        for k in _heaviest(predictor):
            members[k] = fuller.conditioned_again(members[k], parts)
        predictor = pooled(table, validation_rows, members)
    bar.update()
    return predictor


def _heaviest(predictor: PooledPredictor) -> list[int]:
    """The numbers of the :data:`REFINED` members of largest weight among those that have no features of their own."""
    weights = predictor.pool.weights
    counting = [k for k in weights.argsort(descending=True).tolist() if weights[k] > 0]
    return [k for k in counting if predictor.members[k].candidate.family not in ("linear", "logistic", "partition")][
        :REFINED
    ]


def _parts(table: Table, num_rows: int, generator: np.random.Generator) -> tuple[list[Part], list[Part]]:
    """Parts of the rows for hyperparameters, and for partitions: none where rows are too few to be split."""
    labels, n = table.labels, len(table.x)
    all_rows = np.arange(n)
    if n < FEWEST:
        return [Part(table.rows(all_rows), table.rows(all_rows))], []
    number = stratified_folds(labels, NUM_PARTS, generator)
    split = [(np.flatnonzero(number != k), np.flatnonzero(number == k)) for k in range(NUM_PARTS)]
    split = [(outside, inside) for outside, inside in split if len(inside) and len(outside)]

    def sampled(outside: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        sample: NDArray[np.int64] = outside[stratified_sample(labels[outside], size, generator)]
        return sample

    if num_rows > CROSS_FITTED:
        learned = sampled(split[0][0], min(SAMPLE, n // 2))
        parts = [(learned, np.setdiff1d(all_rows, learned))]
    else:
        parts = [(sampled(outside, SAMPLE), inside) for outside, inside in split]
    partition_parts = [
        (sampled(outside, PARTITION_ROWS), inside)
        for outside, inside in split[: 1 if num_rows > max(EXACT, CROSS_FITTED) else None]
    ]
    return _as_parts(table, parts), _as_parts(table, partition_parts)


def _as_parts(table: Table, pairs: list[tuple[NDArray[np.int64], NDArray[np.int64]]]) -> list[Part]:
    return [Part(table.rows(learned), table.rows(validation_rows)) for learned, validation_rows in pairs]


def _common(partings: Sequence[Sequence[Part]]) -> Tensor:
    """The rows that are validation rows in each of them."""
    validation_rows = [torch.cat([part.validation_rows for part in parts]) for parts in partings]
    return functools.reduce(lambda rows, others: rows[torch.isin(rows, others)], validation_rows).sort().values


def _embedding(num_classes: int, kernel: Kernel, regularization: float, prior: LogNormalPrior) -> MulticlassEmbedding:
    return MulticlassEmbedding(kernel, num_classes, regularization, regularization_prior=prior)


@dataclasses.dataclass(frozen=True)
class _Learner:
    table: Table
    search: Search[MulticlassEmbedding, ConditionedMulticlass]
    transforms: Mapping[InputTransform, torch.nn.Module]
    validation_rows: Tensor
    points: Tensor
    exact: bool

    def members(
        self, input_transform: InputTransform, parts: Sequence[Part], bar: ProgressBar
    ) -> Iterator[MemberCandidate]:
        """All candidates of one input transform."""
        transform, rows = self._transformed(input_transform)
        rows = rows.with_coordinates()
        for family in self._families(input_transform):
            bar.set_postfix_str(f"learning {input_transform} {family}")
            with few_threads(len(parts[0].training_rows)):
                learned = list(self._learn(family, rows, parts))
            for relevance in self._relevances(learned[0], parts):
                bar.set_postfix_str(f"conditioning {input_transform} {family} {relevance}")
                embeddings = tuple(stages[relevance] for stages in learned)
                yield self._conditioned(Candidate(input_transform, family, relevance), embeddings, transform, parts)
            bar.update()

    def partitions(self, parts: Sequence[Part], seed: int, bar: ProgressBar) -> Iterator[MemberCandidate]:
        """The kernel of boosted trees, which see ranks: those hold the order of any numbers in single precision."""
        bar.set_postfix_str("growing partitions")
        if parts:
            transform, rows = self._transformed("quantile")
            embeddings = [boosted_embedding(rows.subset(part.training_rows), seed + k) for k, part in enumerate(parts)]
            yield self._conditioned(Candidate("quantile", "partition", "columns"), embeddings, transform, parts)
        bar.update()

    def logistic(self, parts: Sequence[Part], seed: int, bar: ProgressBar) -> Iterator[MemberCandidate]:
        """Logistic regression of all rows; where they are many, of those that partitions are grown on."""
        bar.set_postfix_str("learning squash logistic")
        if parts and self.table.x.shape[1] <= MOST_NUMBERS:
            learned = None if self.exact else parts[0].training_rows
            with few_threads(len(self.table.x)):
                fitted = fit_logistic(self.table, self.transforms["squash"], self.validation_rows, learned, seed)
            candidate = Candidate("squash", "logistic", "common")
            yield MemberCandidate(candidate, (fitted.embedding,), (fitted.predictor,), fitted.left_out)
        bar.update()

    def conditioned_again(self, one: MemberCandidate, parts: Sequence[Part]) -> MemberCandidate:
        """The same through the points of this learner."""
        return self._conditioned(one.candidate, one.embeddings, self.transforms[one.candidate.input_transform], parts)

    def _transformed(self, input_transform: InputTransform) -> tuple[torch.nn.Module, Rows]:
        table, transform = self.table, self.transforms[input_transform]
        return transform, Rows(transform(table.x), table.y, table.weights, table.groups, table.num_classes)

    def _families(self, input_transform: InputTransform) -> tuple[Family, ...]:
        wide = self.table.x.shape[1] > WIDE
        return tuple("matern" if wide and family == "laplace" else family for family in FAMILIES[input_transform])

    def _learn(self, family: Family, rows: Rows, parts: Sequence[Part]) -> Iterator[Learned[MulticlassEmbedding]]:
        start: Learned[MulticlassEmbedding] | None = None
        for part in parts:
            stages = self.search.learn(family, rows.subset(part.training_rows), start)
            start = start or stages
            yield stages

    def _relevances(self, learned: Learned[MulticlassEmbedding], parts: Sequence[Part]) -> tuple[Relevance, ...]:
        """Of what was learned, all where rows are few; where they are many, the last stage."""
        stages = tuple(learned)
        return stages if len(parts) > 1 or len(self.table.x) < FEWEST else stages[-1:]

    def _conditioned(
        self,
        candidate: Candidate,
        embeddings: Sequence[MulticlassEmbedding],
        transform: torch.nn.Module,
        parts: Sequence[Part],
    ) -> MemberCandidate:
        """Predictors, and leave-one-out values at validation rows, each by an embedding that has not seen the row."""
        table, predictors = self.table, []
        left_out = table.x.new_empty(len(self.validation_rows), table.num_classes)
        with torch.no_grad(), few_threads(len(table.x)):
            for embedding, part in zip(embeddings, parts, strict=True):
                unseen = torch.isin(self.validation_rows, part.validation_rows)
                left_out[unseen], predictor = self._condition(
                    candidate.family, embedding, transform, part, self.validation_rows[unseen]
                )
                predictors.append(predictor)
        return MemberCandidate(candidate, tuple(embeddings), tuple(predictors), left_out)

    def _condition(
        self,
        family: Family,
        embedding: MulticlassEmbedding,
        transform: torch.nn.Module,
        part: Part,
        validation_rows: Tensor,
    ) -> tuple[Tensor, LinearPredictor]:
        table = self.table
        kernel = FeatureKernel(transform, frozen(embedding.kernel))
        whole = MulticlassEmbedding(kernel, table.num_classes).to(table.x).requires_grad_(False)
        weights = table.weights_of(part.training_rows)
        ridge = embedding.regularization.item() * (len(part.training_rows) if weights is None else float(weights.sum()))
        if family == "partition":
            ridge = PARTITION_RIDGE
        if not self.exact:
            return condition_through_features(whole, table, validation_rows, ridge, self.points)
        sampled = family != "linear" and len(part.training_rows) < SAMPLED * len(table.x)
        probes = self.points if sampled or family == "partition" else None
        return condition_exactly(whole, table, validation_rows, ridge, probes)
