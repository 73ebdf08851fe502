r"""How the default classifier is learned: candidates, on rows that are left out of learning, and one pool of them all.

1. **Hyperparameters without their own rows.** Leave-one-out values are honest about the coefficients of an embedding,
   but not about hyperparameters that were learned from the same rows: with many columns and few rows they flatter.
   Rows are therefore split into three parts, and the hyperparameters that predict a part are learned without it. With
   more than :data:`CROSS_FITTED` rows they are learned from a sample, and all other rows are left out of that.
2. **Coefficients from all rows.** Every embedding is then conditioned on all rows, exactly up to :data:`EXACT` of
   them and through Nyström's features beyond. Its closed-form leave-one-out value at a row that its hyperparameters
   have not seen is what the finished classifier would say of a new row.
3. **One pool.** On those values each candidate is calibrated, and all are combined in one convex solve.

Learning takes the same time for 10⁴ and 10⁶ rows; conditioning is linear in them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass, LinearAnswers, MulticlassEmbedding
from ..kernels import FeatureKernel, Warping, make_warp
from ..objectives import Objective, calibrate, pool
from ..progress import ProgressBar
from ..threads import few_threads
from .candidates import Candidate, Family, Learned, Relevance, Rows, Search, relevances
from .conditioning import PROBES, Table, condition_exactly, condition_through_features, num_points
from .pooled import Member, PooledAnswers
from .rows import folds, sample_rows

WARPINGS: tuple[Warping, ...] = ("squash", "quantile")
FAMILIES: tuple[Family, ...] = ("rbf", "laplace", "linear")
NUM_STAGES = len(WARPINGS) * len(FAMILIES) + 1
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

EXACT = 5000
"""Rows up to which every embedding is conditioned exactly."""

JUDGED = 20_000
"""Rows that calibrate and pool, at most."""

SAMPLED = 0.6
"""Share of the rows; where hyperparameters were learned from less, the ridge is learned anew."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The rows that hyperparameters are ``learned`` from, and ``judged`` ones that they have not seen."""

    learned: Tensor
    judged: Tensor


def learn_default(
    table: Table,
    objective: Objective[ConditionedMulticlass],
    seed: int,
    bar: ProgressBar,
    num_rows: int | None = None,
) -> PooledAnswers:
    """The default classifier of a table; see the module's text.

    ``num_rows`` says how many rows there are where the table is a sample of them, and others will be added.
    """
    generator = np.random.default_rng(seed)
    n = num_rows or len(table.x)
    parts = _parts(table, n, generator)
    judged = torch.cat([part.judged for part in parts]).sort().values
    if len(judged) > JUDGED:
        judged = judged[table.rows(sample_rows(table.labels[judged.cpu().numpy()], JUDGED, generator))]
    size = num_points(n) if n > EXACT else PROBES
    points = table.x[table.rows(sample_rows(table.labels, min(size, len(table.x) // 2 + 1), generator))]
    learner = _Learner(table, Search(objective), parts, judged, points, exact=n <= EXACT)
    members = [member for warping in WARPINGS for member in learner.members(warping, bar)]
    bar.set_postfix_str("pooling")
    answers = pooled(table, judged, members)
    bar.update()
    return answers


def _parts(table: Table, num_rows: int, generator: np.random.Generator) -> list[Part]:
    labels, n = table.labels, len(table.x)
    if n < FEWEST:
        return [Part(table.rows(np.arange(n)), table.rows(np.arange(n)))]
    if num_rows > CROSS_FITTED:
        learned = sample_rows(labels, min(SAMPLE, n // 2), generator)
        rest = np.setdiff1d(np.arange(n), learned)
        return [Part(table.rows(learned), table.rows(rest))]
    number = folds(labels, NUM_PARTS, generator)
    parts = []
    for k in range(NUM_PARTS):
        inside, outside = np.flatnonzero(number == k), np.flatnonzero(number != k)
        if len(inside) and len(outside):
            learned = outside[sample_rows(labels[outside], SAMPLE, generator)]
            parts.append(Part(table.rows(learned), table.rows(inside)))
    return parts


@dataclasses.dataclass(frozen=True)
class Unjudged:
    """A candidate with its embeddings and answers, and its leave-one-out values at the judged rows."""

    candidate: Candidate
    embeddings: tuple[MulticlassEmbedding, ...]
    answers: tuple[LinearAnswers, ...]
    left_out: Tensor


@dataclasses.dataclass(frozen=True)
class _Learner:
    table: Table
    search: Search
    parts: Sequence[Part]
    judged: Tensor
    points: Tensor
    exact: bool

    def members(self, warping: Warping, bar: ProgressBar) -> Iterator[Unjudged]:
        """All candidates of one warping."""
        table = self.table
        warp = make_warp(warping, table.x, table.numbers, table.weights).to(table.x)
        rows = Rows(warp(table.x), table.y, table.weights, table.groups, table.num_classes)
        for family in self._families:
            bar.set_postfix_str(f"learning {warping} {family}")
            with few_threads(len(self.parts[0].learned)):
                learned = list(self._learn(family, rows))
            for relevance in self._relevances(learned[0]):
                bar.set_postfix_str(f"answering with {warping} {family} {relevance}")
                embeddings = tuple(found[relevance] for found in learned)
                with torch.no_grad(), few_threads(len(table.x)):
                    values, answers = self._condition(embeddings, warp)
                yield Unjudged(Candidate(warping, family, relevance), embeddings, answers, values)
            bar.update()

    @property
    def _families(self) -> tuple[Family, ...]:
        wide = self.table.x.shape[1] > WIDE
        return tuple("matern" if wide and family == "laplace" else family for family in FAMILIES)

    def _learn(self, family: Family, rows: Rows) -> Iterator[Learned]:
        start: Learned | None = None
        for part in self.parts:
            found = self.search.learn(family, rows.taken(part.learned), start)
            start = start or found
            yield found

    def _relevances(self, learned: Learned) -> tuple[Relevance, ...]:
        """Of what was learned, all where rows are few; where they are many, the last stage."""
        found = tuple(learned)
        return found if len(self.parts) > 1 or len(self.table.x) < FEWEST else found[-1:]

    def _condition(
        self, embeddings: Sequence[MulticlassEmbedding], warp: torch.nn.Module
    ) -> tuple[Tensor, tuple[LinearAnswers, ...]]:
        """Leave-one-out values at the judged rows, each by hyperparameters that have not seen it, and the answers."""
        table, answers = self.table, []
        left_out = table.x.new_empty(len(self.judged), table.num_classes)
        for embedding, part in zip(embeddings, self.parts, strict=True):
            whole = MulticlassEmbedding(FeatureKernel(warp, embedding.kernel), table.num_classes).to(table.x)
            weights = table.weights_of(part.learned)
            ridge = embedding.regularization.item() * (len(part.learned) if weights is None else float(weights.sum()))
            if not self.exact:
                values, answer = condition_through_features(whole, table, self.judged, ridge, self.points)
            else:
                probes = self.points if len(part.learned) < SAMPLED * len(table.x) else None
                values, answer = condition_exactly(whole, table, self.judged, ridge, probes)
            answers.append(answer)
            unseen = torch.isin(self.judged, part.judged)
            left_out[unseen] = values[unseen]
        return left_out, tuple(answers)


@torch.no_grad()
def pooled(table: Table, judged: Tensor, found: Sequence[Unjudged]) -> PooledAnswers:
    """Every candidate calibrated on the ``judged`` rows of the table, and all in one pool."""
    Y, weights = table.Y(judged), table.weights_of(judged)
    calibrations = [calibrate(one.left_out, Y, weights=weights) for one in found]
    log_p = torch.stack(
        [calibration.log_probabilities(one.left_out) for one, calibration in zip(found, calibrations, strict=True)]
    )
    combined = pool(log_p, Y, weights=weights)
    members = tuple(
        Member(
            one.candidate,
            one.embeddings,
            one.answers,
            calibration,
            torch.stack([relevances(embedding, table.groups) for embedding in one.embeddings]).mean(0),
        )
        for one, calibration in zip(found, calibrations, strict=True)
    )
    return PooledAnswers(members, combined, combined.log_probabilities(log_p), judged)
