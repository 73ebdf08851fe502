r"""How the default classifier is learned: cross-fitted candidates, combined in one pool.

1. **Cross-fitted hyperparameters.** Leave-one-out values account for the fit of the coefficients, but not for
   hyperparameters learned from the same rows: with many columns and few rows they are too optimistic. Rows are
   therefore split into three parts, and the hyperparameters that predict a part are learned without it. With more than
   :data:`CROSS_FITTED` rows they are learned from a sample, and all other rows are used for validation. Partitions are
   cross-fitted in the same way, on more rows, and logistic regression in its own folds
   (:mod:`kernel_embed.estimators.member_models`).
2. **Coefficients from all rows.** Every embedding is then conditioned on all rows, exactly up to :data:`EXACT` rows and
   through Nyström features beyond: few points for all members, more for those of largest weight. Its closed-form
   leave-one-out value at a row that was not used for its hyperparameters imitates the prediction for a new row.
3. **One pool.** Each candidate is calibrated on these values, and all are combined by one convex problem.

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
from gpytorch.priors import Prior
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
"""Steps of the progress bar."""

WIDE = 300
"""Number of inputs from which Matérn ½ replaces the Laplace kernel, whose distances are not a matrix product."""

NUM_PARTS = 3
FEWEST_PLACES = 2 * NUM_PARTS
"""Number of distinct inputs or groups from which rows are split, which never separates rows of one of them."""

FEWEST = 20
"""Number of distinct rows from which they are split.

With fewer, no row can be spared, and there is little to overfit.
"""

CROSS_FITTED = 2000
"""Number of rows up to which hyperparameters are cross-fitted in parts; above, they are learned on a sample."""

SAMPLE = 700
"""Rows that hyperparameters are learned from, at most."""

PARTITION_ROWS = 20_000
"""Rows that partitions are grown on, at most."""

PARTITION_RIDGE = 3.0
"""The center of the prior on the ridge η of a partition kernel."""

EXACT = 5000
"""Rows up to which every embedding is conditioned exactly."""

REFINED = 2
"""Members of largest weight that are conditioned through more than :data:`PROBES` points."""

VALIDATION_ROWS = 10_000
"""Rows that calibrate and pool, at most."""

SAMPLED = 0.6
"""Fraction of the rows; if hyperparameters were learned from less, the ridge is learned again."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows that hyperparameters or partitions are learned from, and the validation rows."""

    training_rows: Tensor
    validation_rows: Tensor


def learn_default(
    table: Table,
    objective: Objective[ConditionedMulticlass],
    seed: int,
    bar: ProgressBar,
    num_rows: int | None = None,
) -> PooledPredictor:
    """Learn the default classifier; see the module docstring.

    ``num_rows`` is the total number of rows if the table is only a sample of them.
    """
    generator = np.random.default_rng(seed)
    n = num_rows or len(table.x)
    parts, partition_parts = _parts(table, n, generator)
    validation_rows = _common([parts, partition_parts] if partition_parts else [parts])
    if len(validation_rows) > VALIDATION_ROWS:
        part = table.subset(validation_rows)
        validation_rows = validation_rows[
            table.rows(stratified_sample(part.labels, VALIDATION_ROWS, generator, part.places))
        ]
    inside = [torch.isin(validation_rows, part.validation_rows) for part in max(parts, partition_parts, key=len)]
    part_numbers = torch.stack(inside).int().argmax(0)
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
    predictor = pooled(table, validation_rows, part_numbers, members)
    if n > EXACT and len(few) < len(points):
        bar.set_postfix_str("more points for the members that count")
        fuller = dataclasses.replace(learner, points=points)
        for k in _heaviest(predictor):
            members[k] = fuller.conditioned_again(members[k], parts)
        predictor = pooled(table, validation_rows, part_numbers, members)
    bar.update()
    return predictor


def _heaviest(predictor: PooledPredictor) -> list[int]:
    """Indices of the :data:`REFINED` members of largest weight among those without explicit features."""
    weights = predictor.pool.weights
    counting = [k for k in weights.argsort(descending=True).tolist() if weights[k] > 0]
    return [k for k in counting if predictor.members[k].candidate.family not in ("linear", "logistic", "partition")][
        :REFINED
    ]


def _parts(table: Table, num_rows: int, generator: np.random.Generator) -> tuple[list[Part], list[Part]]:
    """The parts of the rows for hyperparameters, and for partitions; none if there are too few rows to split."""
    labels, places, n = table.labels, table.places, len(table.x)
    all_rows = np.arange(n)
    if n < FEWEST or (places is not None and len(np.unique(places)) < FEWEST_PLACES):
        return [Part(table.rows(all_rows), table.rows(all_rows))], []
    number = stratified_folds(labels, NUM_PARTS, generator, places)
    split = [(np.flatnonzero(number != k), np.flatnonzero(number == k)) for k in range(NUM_PARTS)]
    split = [(outside, inside) for outside, inside in split if len(inside) and len(outside)]

    def sampled(outside: NDArray[np.int64], size: int) -> NDArray[np.int64]:
        of_rows = None if places is None else places[outside]
        sample: NDArray[np.int64] = outside[stratified_sample(labels[outside], size, generator, of_rows)]
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
    """The rows that are validation rows in every part."""
    validation_rows = [torch.cat([part.validation_rows for part in parts]) for parts in partings]
    return functools.reduce(lambda rows, others: rows[torch.isin(rows, others)], validation_rows).sort().values


def _embedding(num_classes: int, kernel: Kernel, regularization: float, prior: Prior) -> MulticlassEmbedding:
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
        """All candidates with one input transform."""
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
        """The kernel of boosted trees on ranks, which keep the order of all values even in single precision."""
        bar.set_postfix_str("growing partitions")
        if parts:
            transform, rows = self._transformed("quantile")
            embeddings = [boosted_embedding(rows.subset(part.training_rows), seed + k) for k, part in enumerate(parts)]
            yield self._conditioned(Candidate("quantile", "partition", "columns"), embeddings, transform, parts)
        bar.update()

    def logistic(self, parts: Sequence[Part], seed: int, bar: ProgressBar) -> Iterator[MemberCandidate]:
        """Logistic regression on all rows, or on the rows of the partitions if there are many."""
        bar.set_postfix_str("learning squash logistic")
        if parts and self.table.x.shape[1] <= MOST_NUMBERS:
            learned = None if self.exact else parts[0].training_rows
            with few_threads(len(self.table.x)):
                fitted = fit_logistic(self.table, self.transforms["squash"], self.validation_rows, learned, seed)
            candidate = Candidate("squash", "logistic", "common")
            yield MemberCandidate(candidate, (fitted.embedding,), (fitted.predictor,), fitted.left_out)
        bar.update()

    def conditioned_again(self, one: MemberCandidate, parts: Sequence[Part]) -> MemberCandidate:
        """The members conditioned again, through the points of this learner."""
        return self._conditioned(one.candidate, one.embeddings, self.transforms[one.candidate.input_transform], parts)

    def _transformed(self, input_transform: InputTransform) -> tuple[torch.nn.Module, Rows]:
        table, transform = self.table, self.transforms[input_transform]
        x = transform(table.x)
        return transform, Rows(x, table.y, table.weights, table.groups, table.num_classes, units=table.units)

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
        """The mean relevances of all stages, or of the last stage if there are many rows."""
        stages = tuple(learned)
        return stages if len(parts) > 1 or len(self.table.x) < FEWEST else stages[-1:]

    def _conditioned(
        self,
        candidate: Candidate,
        embeddings: Sequence[MulticlassEmbedding],
        transform: torch.nn.Module,
        parts: Sequence[Part],
    ) -> MemberCandidate:
        """Predictors, and leave-one-out values at validation rows, each by an embedding learned without the row."""
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
