r"""Draws as a batch dimension: one embedding whose parameters have shape ``(S, …)`` predicts for S draws at once.

All formulas of this library support leading dimensions, and so do GPyTorch's kernels. A feature map does not: if draws
concern its weights, or a kernel gives other values for a batch than alone, draws are evaluated one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Generic

import gpytorch
import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..kernels import gram
from .potential import E_co, Potential

BLOCK_ENTRIES = 2**24
"""Entries of the Gram matrices of draws in memory at once: 128 MiB in float64."""


class EmbeddingDraws(Generic[E_co]):
    """Embeddings with all draws ``u`` ``(S, dimension)`` in order, built during iteration.

    With ``is_batched`` each has a leading batch dimension of draws; otherwise each has one draw and no such dimension.
    """

    def __init__(self, potential: Potential[E_co], u: Tensor) -> None:
        self.potential, self.u = potential, u
        self.is_batched = _is_batchable(potential, u)

    def pieces(self) -> tuple[Tensor, ...]:
        """The draws of each embedding, ``(b, dimension)``."""
        n = self.potential.x.shape[-2]
        block = max(1, BLOCK_ENTRIES // max(1, n * n)) if self.is_batched else 1
        return tuple(self.u.split(block))

    def __iter__(self) -> Iterator[E_co]:
        for piece in self.pieces():
            yield _load(self.potential, piece) if self.is_batched else load_one(self.potential, piece[0])


def _is_batchable(potential: Potential, u: Tensor) -> bool:
    """Whether a batch of draws gives the same Gram matrices as each draw alone."""
    embedding = potential.embedding
    owners = {name.rpartition(".")[0] for name in potential.vector.named}
    if not all(isinstance(embedding.get_submodule(owner), gpytorch.Module) for owner in owners):
        return False
    rows = potential.x[: min(5, potential.x.shape[-2])]
    pair = u[[0, -1]]
    try:
        with torch.no_grad():
            together = gram(_load(potential, pair).kernel, rows)
            alone = torch.stack([gram(load_one(potential, draw).kernel, rows) for draw in pair])
    except (RuntimeError, ValueError, IndexError):
        return False
    return together.shape == alone.shape and torch.allclose(together, alone, rtol=1e-6, atol=1e-9)


def _load(potential: Potential[E_co], u: Tensor) -> E_co:
    """A copy of the embedding with the draws ``u`` ``(S, dimension)`` as its leading batch dimension."""
    embedding = _copy(potential)
    count = u.shape[0]
    sampled = potential.pieces(u)
    for name, parameter in list(embedding.named_parameters()):
        owner, _, leaf = name.rpartition(".")
        module = embedding.get_submodule(owner)
        if not isinstance(module, gpytorch.Module):
            continue
        value = sampled.get(name, parameter.detach().expand(count, *parameter.shape))
        module._parameters[leaf] = torch.nn.Parameter(value.to(parameter).clone(), requires_grad=False)
    for module in embedding.modules():
        if isinstance(module, Kernel) and hasattr(module, "_batch_shape"):
            module._batch_shape = torch.Size([count]) + module._batch_shape
    return embedding


def load_one(potential: Potential[E_co], u: Tensor) -> E_co:
    """A copy of the embedding with one draw."""
    embedding = _copy(potential)
    named = dict(embedding.named_parameters())
    with torch.no_grad():
        for name, value in potential.pieces(u).items():
            named[name].copy_(value)
    return embedding


def _copy(potential: Potential[E_co]) -> E_co:
    potential.vector.clear_gradient()
    embedding = copy.deepcopy(potential.embedding)
    embedding.requires_grad_(False)
    return embedding
