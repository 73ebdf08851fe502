"""Permutations among neighbors: rows are exchanged only with rows of similar z.

The part of x and y that z explains but a regression has missed changes slowly with z. A permutation inside small blocks
of neighbors preserves it and destroys the rest, so that it is not mistaken for dependence given z. The blocks come from
splitting the rows repeatedly in two, at a random place along a random direction.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BLOCK = 3
"""The least rows of a block; it has fewer than twice as many."""
LARGEST = 6
"""The same for the largest blocks."""
NUM_PARTITIONS = 10


def block_size(n: int, p: int, freedom: float) -> int:
    """The least rows of a block, after regressions on z with these degrees of freedom.

    A regression with few degrees of freedom can only have missed functions of z that change slowly, which larger blocks
    preserve as well; and in a larger block fewer rows stay in place.

    Example:
        >>> block_size(80, 1, 2.0), block_size(80, 1, 5.0), block_size(80, 1, 30.0)
        (6, 4, 3)
    """
    return min(max(int(n / (4.0 * p * freedom)), BLOCK), LARGEST)


def local_permutations(z: Tensor, num_permutations: int, generator: torch.Generator, block_size: int = BLOCK) -> Tensor:
    """Permutations ``(B, n)`` of the rows of ``z`` (``(n, p)``) inside blocks of neighbors.

    Where z has few distinct rows, equal rows form the blocks.

    Example:
        >>> z = torch.arange(100.0).unsqueeze(-1)
        >>> moved = local_permutations(z, 50, torch.Generator().manual_seed(0))
        >>> bool((moved.sort(-1).values == torch.arange(100)).all()), int((moved - torch.arange(100)).abs().max()) < 10
        (True, True)
    """
    n = len(z)
    if is_grouped(z):
        blocks = z.unique(dim=0, return_inverse=True)[1].unsqueeze(0).numpy(force=True)
    else:
        blocks = partitions(z, min(NUM_PARTITIONS, num_permutations), generator, block_size)
    keys = torch.rand(num_permutations, n, generator=generator, dtype=torch.float64).numpy()
    orders = np.empty((num_permutations, n), dtype=np.int64)
    for g, block in enumerate(blocks):
        own = slice(g, None, len(blocks))
        # NumPy sorts ten times as fast as torch here.
        orders[own, np.argsort(block, kind="stable")] = np.argsort(block + keys[own], axis=-1)
    return torch.from_numpy(orders).to(z.device)


def is_grouped(z: Tensor) -> bool:
    """Whether so many rows of ``z`` are equal that permutations among equal rows suffice."""
    most = len(z) // BLOCK
    if any(len(column.unique()) > most for column in z.unbind(-1)):
        return False
    return len(z.unique(dim=0)) <= most


def partitions(z: Tensor, count: int, generator: torch.Generator, block_size: int = BLOCK) -> NDArray[np.int64]:
    """The block of each row, ``(count, n)``, in random partitions into blocks of neighbors.

    A block has at least ``block_size`` rows, and fewer than twice as many.
    """
    n, p = z.shape
    points = z.numpy(force=True)
    line = np.arange(count)[:, None]
    order = np.tile(np.argsort(points[:, 0], kind="stable"), (count, 1))
    block = np.zeros((count, n), dtype=np.int64)  # of the rows in this order, ascending
    while True:
        number = int(block.max()) + 1
        size = np.bincount((block + number * line).ravel(), minlength=count * number).reshape(count, number)
        if int(size.max()) < 2 * block_size:
            blocks = np.empty_like(block)
            blocks[line, order] = block
            return blocks
        if p > 1:  # sort by block, and inside a block along its direction
            direction = torch.randn(count, number, p, generator=generator, dtype=torch.float64).numpy()
            along = np.einsum("cnp,cnp->cn", points[order], direction[line, block])
            along = (along - along.min()) / max(np.ptp(along), np.finfo(along.dtype).tiny)
            order = order[line, np.argsort(block + 0.999 * along, axis=-1, kind="stable")]
        # cut each block at random, with enough rows on both sides and near the middle of a large one
        share = torch.rand(count, number, generator=generator, dtype=torch.float64).numpy()
        low = np.maximum(block_size, (0.35 * size).astype(np.int64))
        cut = np.where(size < 2 * block_size, size, low + (share * (size - 2 * low + 1)).astype(np.int64))
        begins = np.zeros((count, n + 1), dtype=np.int64)
        first = np.cumsum(size, axis=-1) - size
        begins[line, first] = begins[line, first + cut] = 1
        block = np.cumsum(begins[:, :n], axis=-1) - 1
