r"""Rows on several processes or machines, through ``torch.distributed``.

Rank r holds the rows :math:`Z_r, Y_r`. Only sums over rows and n × m values are communicated:

.. math::  Z^\top Z = \sum_r Z_r^\top Z_r, \qquad Z^\top Y = \sum_r Z_r^\top Y_r, \qquad P = (Z_r W)_r .

Every rank then evaluates the same objective, and the mean over ranks of the gradients is the gradient over all rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch
import torch.distributed as dist
from linear_operator.utils.errors import NanError
from torch import Tensor

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding
from ..embeddings.conditional import check_labels
from ..kernels import explicit_features, has_explicit_features
from ..kernels.parameters import frozen
from ..linalg import FeatureSystem, Shards
from ..validation import check_features
from .statistics import FeatureStatistics

Group = dist.ProcessGroup | None
T = TypeVar("T")
Arguments = ParamSpec("Arguments")


def collective(what: str, call: Callable[Arguments, T], *args: Arguments.args, **kwargs: Arguments.kwargs) -> T:
    """``call(...)``, with a clear error when another rank is gone."""
    try:
        return call(*args, **kwargs)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise RuntimeError(
            f"Expected all ranks to take part in {what}, but the connection failed: {reason} Another rank ended or did "
            "not answer in time; its own output says why. Start all ranks again to resume from the checkpoint."
        ) from error


def check_process_group() -> None:
    """Raise unless this process is one of several ranks."""
    if not dist.is_initialized():
        raise RuntimeError("There is no process group. Start the ranks with torchrun and call init_process_group.")


def _check_equal_widths(equal: bool) -> None:
    if not equal:
        raise ValueError("Expected the same number of features on every rank. Give every rank the same columns.")


class RankShards(Shards):
    """The rows of this rank and of the others, through collectives; ``num_rows`` is −1 if the rows here are invalid."""

    def __init__(self, num_rows: int, device: torch.device, group: Group = None) -> None:
        self.group, self.rank, self.size = group, dist.get_rank(group), dist.get_world_size(group)
        counts = torch.zeros(self.size, dtype=torch.int64, device=device)
        counts[self.rank] = num_rows
        self.counts: list[int] = self.sum(counts).tolist()
        invalid = [rank for rank, count in enumerate(self.counts) if count <= 0]
        if invalid and num_rows > 0:
            raise ValueError(f"There are no rows, or invalid rows, on ranks {invalid}. See their error messages.")
        self.start = sum(self.counts[: self.rank])

    def total(self, num_rows: int) -> int:
        """n, the rows of all ranks."""
        return sum(self.counts)

    def sum(self, part: Tensor) -> Tensor:
        """The sum over ranks of ``part``, by ``all_reduce``."""
        whole = part.contiguous().clone()
        collective("a sum over ranks", dist.all_reduce, whole, group=self.group)
        return whole

    def own(self, whole: Tensor, dim: int = -2) -> Tensor:
        """The rows of this rank out of those of all ranks."""
        return whole.narrow(dim, self.start, self.counts[self.rank])

    def gather(self, part: Tensor, dim: int = -2) -> Tensor:
        """The rows of all ranks: a sum in which every rank contributes its own."""
        shape = list(part.shape)
        shape[dim] = sum(self.counts)
        whole = part.new_zeros(shape)
        whole.narrow(dim, self.start, self.counts[self.rank]).copy_(part)
        return self.sum(whole)


class ShardedEmbedding:
    """An embedding that all ranks learn together, each with its own rows.

    It takes the place of the embedding in ``fit(sharded, objective, x, y)`` and, followed by
    ``sharded.reduce_gradients()``, in ``objective(sharded, x, y).backward()``.

    Args:
        embedding: a multiclass embedding whose kernel has explicit features; its values become those of rank 0.
        group: a process group; the default one if ``None``.

    Raises:
        RuntimeError: if there is no process group.
        ValueError: if the kernel has no explicit features.

    Example:
        >>> import kernel_embed as ke
        >>> def learn(embedding, x, y):                   # called on every rank under torchrun, with its own rows
        ...     sharded = ShardedEmbedding(embedding)
        ...     ke.fit(sharded, ke.LeaveOneOutRisk(), x, y)
        ...     return sharded.condition(x, y)
    """

    def __init__(self, embedding: MulticlassEmbedding, group: Group = None) -> None:
        check_process_group()
        if not has_explicit_features(embedding.kernel):
            kind = type(embedding.kernel).__name__
            raise ValueError(f"Expected a kernel with explicit features, got {kind}. Use RandomFeatures, say.")
        self.module, self.group, self.leads = embedding, group, dist.get_rank(group) == 0
        self._leader = dist.get_global_rank(group, 0) if group is not None else 0
        for tensor in [*embedding.parameters(), *embedding.buffers()]:
            collective("sharing parameters", dist.broadcast, tensor.data, self._leader, group=group)

    def attach(self, x: Tensor, y: Tensor | None = None) -> ShardedMulticlass:
        """The embedding with the rows of all ranks, differentiable; ``x`` and ``y`` are those of this one.

        If one rank rejects its rows, all ranks raise, so that none waits for it.
        """
        return _shard(self.module, x, y, self.group)

    def condition(self, x: Tensor, y: Tensor) -> ShardedMulticlass:
        """The same with a frozen copy of the embedding."""
        return _shard(frozen(self.module), x, y, self.group)

    def total_rows(self, num_rows: int) -> int:
        """n, the rows of all ranks, when this rank has ``num_rows``."""
        return RankShards(num_rows, self.module.raw_regularization.device, self.group).total(num_rows)

    def reduce_gradients(self) -> None:
        """Replace the gradients of the parameters by their mean over ranks: the gradient of the objective."""
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        if not gradients:
            return
        flat = torch.cat([g.reshape(-1) for g in gradients])  # one message
        collective("the mean of gradients", dist.all_reduce, flat, group=self.group)
        flat /= dist.get_world_size(self.group)
        for gradient, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
            gradient.copy_(mean.view_as(gradient))

    def from_leader(self, value: T) -> T:
        """``value`` of rank 0, on all ranks."""
        box = [value]
        collective("sharing the checkpoint", dist.broadcast_object_list, box, self._leader, group=self.group)
        return box[0]


class ShardedMulticlass(ConditionedMulticlass):
    """An embedding with the rows of all ranks: ``y``, ``Y``, ``V`` and ``P`` are of all, ``x`` of this rank."""

    def __init__(self, embedding: MulticlassEmbedding, x: Tensor, y: Tensor, Z: Tensor, shards: RankShards) -> None:
        self._shards = shards
        ridge = self.num_data * embedding.regularization.to(x)
        super().__init__(embedding, x, shards.gather(y, dim=-1), FeatureSystem(Z, ridge, shards=shards))

    @property
    def num_data(self) -> int:
        """n, the rows of all ranks."""
        return sum(self._shards.counts)


def _shard(embedding: MulticlassEmbedding, x: Tensor, y: Tensor | None, group: Group) -> ShardedMulticlass:
    problem: Exception | None = None
    try:
        x = check_features(x)
        labels = check_labels(x, y, embedding.num_classes)
        Z = explicit_features(embedding.kernel, x)
        if Z is None or not bool(torch.isfinite(Z).all()):
            problem = NanError("Expected finite features, got NaN or infinite ones on this rank. Check its rows.")
    except (ValueError, TypeError) as error:
        problem = error
    device = embedding.raw_regularization.device
    shards = RankShards(len(x) if problem is None else -1, device, group)
    if problem is not None:
        raise problem
    assert Z is not None
    widths = shards.sum(torch.tensor([Z.shape[-1], Z.shape[-1] ** 2], device=device))
    _check_equal_widths(int(widths[1]) * shards.size == int(widths[0]) ** 2)
    return ShardedMulticlass(embedding, x, labels, Z.to(x), shards)


def reduce_statistics(statistics: FeatureStatistics, group: Group = None) -> FeatureStatistics:
    """The statistics of the rows of all ranks, the same on every rank; a rank without rows may take part.

    Args:
        statistics: of the rows of this rank.
        group: a process group; the default one if ``None``.

    Raises:
        ValueError: if the kernels of the ranks differ.

    Example:
        >>> import kernel_embed as ke
        >>> def answers_of_all(embedding, x, y):          # called on every rank under torchrun, with its own rows
        ...     return reduce_statistics(ke.scale.accumulate(embedding, x, y)).condition()
    """
    check_process_group()
    device = statistics.embedding.raw_regularization.device
    kernel = statistics.embedding.kernel
    marks = [value.detach().double().sum() for value in kernel.state_dict().values() if value.numel()]
    mark = torch.stack([m.to(device) for m in marks]).sum() if marks else torch.zeros((), device=device).double()
    shape = (0, 0) if statistics.C is None else tuple(statistics.C.shape)
    span = torch.stack([mark, -mark, *(torch.tensor(float(s), dtype=torch.float64, device=device) for s in shape)])
    diagonal = torch.tensor([statistics.largest_diagonal], dtype=torch.float64, device=device)
    for tensor in (span, diagonal):
        collective("reducing statistics", dist.all_reduce, tensor, dist.ReduceOp.MAX, group=group)
    if float(span[0]) != -float(span[1]):
        raise ValueError(
            "Expected the same kernel on every rank, got different parameters. Use ShardedEmbedding(embedding)."
        )
    p, m = int(span[2]), int(span[3])
    if p == 0:
        raise ValueError("There are no rows on any rank.")
    if statistics.G is not None and statistics.C is not None and len(statistics.G) == p:
        G, C = statistics.G.clone(), statistics.C.clone()
    else:  # NaN tells all ranks that the numbers of features differ
        fill = 0.0 if statistics.G is None else torch.nan
        G, C = (torch.full((p, width), fill, dtype=torch.float64, device=device) for width in (p, m))
    n = torch.tensor([statistics.num_data], dtype=torch.float64, device=device)
    for tensor in (G, C, n):
        collective("reducing statistics", dist.all_reduce, tensor, group=group)
    _check_equal_widths(not bool(torch.isnan(G).any()))
    total = FeatureStatistics(statistics.embedding)
    total.merge(G, C, float(n), float(diagonal))
    return total
