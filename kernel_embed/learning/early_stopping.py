r"""Early stopping on held-out rows, the default for networks.

A network fits the leave-one-out predictions of its own training rows almost perfectly, because its features are learned
from the row that is left out. So a fifth of the rows takes no part in learning, and the search keeps the point where
their Brier score or squared error is lowest,

.. math::
    \frac1h \sum_{i \in H} \lVert y_i - \hat V^\top k(x_i) \rVert^2,

with :math:`\hat V` from the other rows, and ends when it has not fallen for a while.
"""

from __future__ import annotations

import dataclasses
import math
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ..embeddings import ConditionalEmbedding
from ..kernels.classes import evaluation_mode
from ..runtime import collected_warnings
from ..splits import proportional_sample
from .loss import Data, LocalProcess, ProcessGroup
from .parameters import ParameterVector
from .result import StopEarly, Visit

SHARE = 0.2  # of the rows, held out
FEWEST_ROWS = 50  # with fewer, none is held out by default
PATIENCE = 10  # records without improvement after which a search ends


@dataclasses.dataclass(frozen=True)
class HeldOut:
    """Rows that take no part in learning, and those that they are predicted from."""

    x: Tensor
    y: Tensor
    rows: Tensor  # the numbers of those held out, in increasing order
    others: Tensor
    group: LocalProcess  # the embedding with the weights and groups of the others
    num_rows: int  # how many of the others are used for predictions

    @property
    def rest(self) -> tuple[Tensor, Tensor]:
        """The rows to learn from."""
        return self.x[self.others], self.y[self.others.to(self.y.device)]

    @torch.no_grad()
    def loss(self, embedding: ConditionalEmbedding) -> float:
        """The Brier score or squared error of the held-out rows, with dropout off; ∞ where it does not exist."""
        with evaluation_mode(embedding):
            x, y = self.rest
            attached = embedding.attach(x[: self.num_rows], y[: self.num_rows])
            predicted = attached.representation(self.x[self.rows]) @ attached.coefficients
            Y = embedding.targets(self.y[self.rows.to(self.y.device)], self.x)
            error = float((predicted - Y).square().sum(-1).mean())
        return error if math.isfinite(error) else math.inf

    def is_best(self, vector: ParameterVector, visit: Visit, history: list[dict[str, float]]) -> bool:
        """Whether the visit that was just recorded has the lowest held-out loss, which is added to the record."""
        now = vector.get()
        vector.set(visit.point)
        try:
            with collected_warnings():
                loss = self.loss(cast(ConditionalEmbedding, vector.module))
        finally:
            vector.set(now)
        best = min((record["held_out"] for record in history[:-1]), default=math.inf)
        history[-1]["held_out"] = loss
        return loss < best

    def check_patience(self, history: list[dict[str, float]]) -> None:
        """End a start whose held-out loss has not fallen for a while."""
        losses, number = [record["held_out"] for record in history], history[-1]["start"]
        first = next(i for i, record in enumerate(history) if record["start"] == number)
        if len(losses) - 1 - max(first, int(np.argmin(losses))) >= PATIENCE:
            raise StopEarly(f"stopped early: the held-out loss did not fall for {PATIENCE} records")


def hold_out(group: ProcessGroup, data: Data, batch_size: int | None, seed: int | None) -> HeldOut | None:
    """Held-out rows, whole groups or in proportion to the classes; ``None`` where there are no targets.

    With mini-batches, predictions use as many rows as a batch has, because a system of all rows may not fit.
    """
    if not isinstance(group, LocalProcess) or not isinstance(group.module, ConditionalEmbedding) or data.whole is None:
        return None
    x, y, _ = data.whole
    if y is None or len(x) < 2:
        return None
    units = group.units(x, y)
    labels = y.detach().cpu().numpy() if y.dim() == 1 else np.zeros(len(x))
    others = proportional_sample(labels, round((1.0 - SHARE) * len(x)), seed or 0)  # has rows of every class
    if units is not None and units.labels is not None:
        of_group = units.labels.cpu().numpy()
        order = np.random.default_rng(seed or 0).permutation(of_group.max() + 1)[of_group]  # groups, shuffled
        others = np.flatnonzero(order < np.quantile(order, 1.0 - SHARE))
    rows = np.setdiff1d(np.arange(len(x)), others)
    if not len(rows) or not len(others):
        return None
    num_rows = len(others) if batch_size is None else max(batch_size, 2)
    held_out, rest = (torch.as_tensor(numbers, device=x.device) for numbers in (rows, others))
    return HeldOut(x, y, held_out, rest, group.restricted(rest), num_rows)
