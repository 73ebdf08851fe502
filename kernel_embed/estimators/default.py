r"""How the default classifier is learned: cross-fitted candidates, combined in one pool.

1. **Cross-fitted hyperparameters.** Leave-one-out values account for the fit of the coefficients, but not for
   hyperparameters learned from the same rows. Rows are therefore split into three parts, and the hyperparameters that
   predict a part are learned without it; with more than :data:`CROSS_FITTED` rows they are learned from a sample.
2. **Coefficients from all rows.** Every embedding is then conditioned on all rows, exactly up to
   :data:`kernel_embed.estimators.conditioning.EXACT` rows and through Nyström features beyond.
3. **One pool.** Each candidate is calibrated on its left-out values, and all are combined by one convex problem.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import torch
from gpytorch.kernels import Kernel
from gpytorch.priors import Prior
from torch import Tensor

from ..embeddings import MulticlassEmbedding
from ..kernels import FeatureKernel
from ..kernels.parameters import frozen
from ..objectives import default_objective
from ..runtime import ProgressBar, few_threads
from ..splits import Integers, stratified_folds, stratified_sample
from ..tabular import InputTransform, make_input_transform
from ..tabular.input_transforms import cached_transforms
from ..validation import check_memory
from .candidates import Candidate, Family, Search, is_wide, narrow_coordinates, relevances
from .conditioning import PROBES, Table, condition, is_exact, num_points, thinned
from .member_models import MOST_NUMBERS, boosted_embedding, fit_logistic
from .pooled import Member, PooledPredictor, pooled

FAMILIES: dict[InputTransform, tuple[Family, ...]] = {"squash": ("rbf", "laplace", "linear"), "quantile": ("laplace",)}
NUM_STAGES = sum(map(len, FAMILIES.values())) + 3  # steps of the progress bar
WIDE = 300  # inputs from which Matérn ½ replaces the Laplace kernel, whose distances are not a matrix product
NUM_PARTS = 3
FEWEST_PLACES = 2 * NUM_PARTS  # distinct inputs or groups, which a split never separates, from which rows are split
FEWEST = 20  # distinct rows from which they are split; with fewer, no row can be spared, and there is little to overfit
CROSS_FITTED = 2000  # rows up to which hyperparameters are cross-fitted in parts; above, they are learned on a sample
SAMPLE = 700  # rows that hyperparameters are learned from, at most
PARTITION_ROWS = 20_000  # rows that partitions are grown on, at most
PARTITION_RIDGE = 3.0  # the ridge η of a partition kernel, multiples of which are tried
REFINED = 2  # members of largest weight that are conditioned through more than PROBES points
VALIDATION_ROWS = 10_000  # rows that calibrate and pool, at most
SAMPLED = 0.6  # fraction of the rows; if hyperparameters were learned from less, the ridge is learned again

TALL_COPIES, WIDE_COPIES = 8, 15  # measured peak memory in copies of the table, for 10⁶ × 20 and 150 × 20,000
IN_PARTS = "Give fewer columns or rows; with partial_fit, or torchrun and distributed=True, rows can come in parts."

Part = tuple[Tensor, Tensor]  # rows that hyperparameters or partitions are learned from, and validation rows


def check_room(n: int, num_columns: int, device: str | None) -> None:
    """Reject data that would not fit in memory: copies of the table, and matrices of exact embeddings."""
    like = torch.empty(0, dtype=torch.float64, device=device or "cpu")
    check_memory(n, like, 1, IN_PARTS, num_columns, TALL_COPIES if n > num_columns else WIDE_COPIES)
    if is_exact(n):
        check_memory(n, like, 1, IN_PARTS)


def learn_default(table: Table, seed: int, bar: ProgressBar, num_rows: int | None = None) -> PooledPredictor:
    """Learn the default classifier; ``num_rows`` is the number of all rows if the table is a sample of them."""
    generator = np.random.default_rng(seed)
    n = num_rows or len(table.x)
    parts, partition_parts = _parts(table, n, generator)
    # The rows that are validation rows for hyperparameters and for partitions
    rows = [torch.cat([part[1] for part in of_kind]) for of_kind in (parts, partition_parts) if of_kind]
    validation_rows = functools.reduce(lambda some, others: some[torch.isin(some, others)], rows).sort().values
    if len(validation_rows) > VALIDATION_ROWS:
        part = table.subset(validation_rows)
        sample = stratified_sample(part.labels, VALIDATION_ROWS, generator, part.places)
        validation_rows = validation_rows[table.rows(sample)]
    inside = [torch.isin(validation_rows, part[1]) for part in max(parts, partition_parts, key=len)]
    part_numbers = torch.stack(inside).int().argmax(0)
    size = PROBES if is_exact(n) else num_points(n)
    points = table.x[table.rows(stratified_sample(table.labels, min(size, len(table.x) // 2 + 1), generator))]
    few = thinned(points)
    transforms = {
        name: make_input_transform(name, table.x, table.numbers, table.weights).to(table.x) for name in FAMILIES
    }

    def embedding(kernel: Kernel, regularization: float, prior: Prior) -> MulticlassEmbedding:
        return MulticlassEmbedding(kernel, table.num_classes, regularization, regularization_prior=prior)

    search = Search(default_objective(), embedding)
    learner = _Learner(table, search, transforms, validation_rows, few, is_exact(n), bar)
    with cached_transforms():
        members = [member for name in FAMILIES for member in learner.kernels(name, parts)]
        members += learner.partitions(partition_parts, seed)
        members += learner.logistic(partition_parts, seed)
    bar.set_postfix_str("pooling")
    predictor = pooled(table, validation_rows, part_numbers, members)
    if not is_exact(n) and len(few) < len(points):
        bar.set_postfix_str("more points for the members that count")
        learner = dataclasses.replace(learner, points=points)
        weights = predictor.pool.weights
        heaviest = [
            k
            for k in weights.argsort(descending=True).tolist()
            if weights[k] > 0 and members[k][0].candidate.family not in ("linear", "logistic", "partition")
        ]
        for k in heaviest[:REFINED]:
            member = members[k][0]
            members[k] = learner.conditioned(member.candidate, member.embeddings, parts)
        predictor = pooled(table, validation_rows, part_numbers, members)
    bar.update()
    return predictor


def _parts(table: Table, num_rows: int, generator: np.random.Generator) -> tuple[list[Part], list[Part]]:
    """The parts of the rows for hyperparameters, and for partitions; none if there are too few rows to split."""
    labels, places, n = table.labels, table.places, len(table.x)
    if n < FEWEST or (places is not None and len(np.unique(places)) < FEWEST_PLACES):
        every = table.rows(np.arange(n))
        return [(every, every)], []
    number = stratified_folds(labels, NUM_PARTS, generator, places)
    split = [(np.flatnonzero(number != k), np.flatnonzero(number == k)) for k in range(NUM_PARTS)]
    split = [(outside, inside) for outside, inside in split if len(inside) and len(outside)]

    def sampled(outside: Integers, size: int) -> Integers:
        of_rows = None if places is None else places[outside]
        return np.asarray(outside[stratified_sample(labels[outside], size, generator, of_rows)])

    if num_rows > CROSS_FITTED:
        learned = sampled(split[0][0], min(SAMPLE, n // 2))
        parts = [(learned, np.setdiff1d(np.arange(n), learned))]
    else:
        parts = [(sampled(outside, SAMPLE), inside) for outside, inside in split]
    few = num_rows <= CROSS_FITTED or is_exact(num_rows)
    partition_parts = [(sampled(outside, PARTITION_ROWS), inside) for outside, inside in split[: None if few else 1]]

    def tensors(pairs: Sequence[tuple[Integers, Integers]]) -> list[Part]:
        return [(table.rows(learned), table.rows(rows)) for learned, rows in pairs]

    return tensors(parts), tensors(partition_parts)


@dataclasses.dataclass(frozen=True)
class _Learner:
    """Members with their out-of-sample values at the validation rows."""

    table: Table
    search: Search
    transforms: Mapping[InputTransform, torch.nn.Module]
    validation_rows: Tensor
    points: Tensor
    exact: bool
    bar: ProgressBar

    def kernels(self, name: InputTransform, parts: Sequence[Part]) -> Iterator[tuple[Member, Tensor]]:
        """All candidate kernels with one input transform."""
        rows = self._transformed(name)
        if is_wide(rows):
            rows = dataclasses.replace(rows, coordinates=narrow_coordinates(rows.x))
        for usual in FAMILIES[name]:
            family: Family = "matern" if usual == "laplace" and rows.x.shape[1] > WIDE else usual
            self.bar.set_postfix_str(f"learning {name} {family}")
            with few_threads(len(parts[0][0])):
                learned = [self.search.learn(family, rows.subset(parts[0][0]))]
                learned += [self.search.learn(family, rows.subset(training), learned[0]) for training, _ in parts[1:]]
            stages = tuple(learned[0])
            for relevance in (
                stages if len(parts) > 1 or len(rows.x) < FEWEST else stages[-1:]
            ):  # of many rows, the last
                self.bar.set_postfix_str(f"conditioning {name} {family} {relevance}")
                yield self.conditioned(Candidate(name, family, relevance), [one[relevance] for one in learned], parts)
            self.bar.update()

    def partitions(self, parts: Sequence[Part], seed: int) -> Iterator[tuple[Member, Tensor]]:
        """The kernel of boosted trees on ranks, which keep the order of all values even in single precision."""
        self.bar.set_postfix_str("growing partitions")
        if parts:
            rows = self._transformed("quantile")
            embeddings = [boosted_embedding(rows.subset(part[0]), seed + k) for k, part in enumerate(parts)]
            yield self.conditioned(Candidate("quantile", "partition", "columns"), embeddings, parts)
        self.bar.update()

    def logistic(self, parts: Sequence[Part], seed: int) -> Iterator[tuple[Member, Tensor]]:
        """Logistic regression on all rows, or on the rows of the partitions if there are many."""
        self.bar.set_postfix_str("learning squash logistic")
        table = self.table
        if parts and table.x.shape[1] <= MOST_NUMBERS:
            training_rows = None if self.exact else parts[0][0]
            with few_threads(len(table.x)):
                embedding, predictor, left_out = fit_logistic(
                    table, self.transforms["squash"], self.validation_rows, training_rows, seed
                )
            candidate, relevance = Candidate("squash", "logistic", "common"), predictor.relevances(table.groups)
            yield Member(candidate, (embedding,), (predictor,), relevance), left_out
        self.bar.update()

    def _transformed(self, name: InputTransform) -> Table:
        return dataclasses.replace(self.table, x=self.transforms[name](self.table.x))

    def conditioned(
        self, candidate: Candidate, embeddings: Sequence[MulticlassEmbedding], parts: Sequence[Part]
    ) -> tuple[Member, Tensor]:
        """The member with its leave-one-out values, each by an embedding that was learned without the row."""
        table, family, predictors = self.table, candidate.family, []
        left_out = table.x.new_empty(len(self.validation_rows), table.num_classes)
        with torch.no_grad(), few_threads(len(table.x)):
            for embedding, (training, validation) in zip(embeddings, parts, strict=True):
                kernel = FeatureKernel(self.transforms[candidate.input_transform], frozen(embedding.kernel))
                whole = MulticlassEmbedding(kernel, table.num_classes).to(table.x).requires_grad_(False)
                weights = table.weights_of(training)
                ridge = embedding.regularization.item() * (len(training) if weights is None else float(weights.sum()))
                if family == "partition":
                    ridge = PARTITION_RIDGE
                sampled = family != "linear" and len(training) < SAMPLED * len(table.x)
                points = self.points if sampled or family == "partition" or not self.exact else None
                unseen = torch.isin(self.validation_rows, validation)
                rows = self.validation_rows[unseen]
                left_out[unseen], predictor = condition(whole, table, rows, ridge, points, self.exact)
                predictors.append(predictor)
        relevance = torch.stack([relevances(embedding, table.groups) for embedding in embeddings]).mean(0)
        return Member(candidate, tuple(embeddings), tuple(predictors), relevance), left_out
