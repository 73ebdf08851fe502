"""Permutations among neighbors: rows change places only with rows whose z is close to theirs.

Whatever of x and y is still explained by z after a regression changes slowly with z, if at all. A permutation inside
small blocks of neighbors keeps that part and breaks the rest, so that it is not taken for dependence given z. Blocks
come from splitting the rows in two at a random place along a random direction, again and again.
"""

from __future__ import annotations

import torch
from torch import Tensor

BLOCK = 3
"""Rows of a block, at least; at most twice as many less one."""
NUM_PARTITIONS = 10


def local_permutations(z: Tensor, num_permutations: int, generator: torch.Generator) -> Tensor:
    """Permutations ``(B, n)`` of the rows of ``z`` (``(n, p)``) inside blocks of neighbors.

    Where z has few different rows, the rows that are equal are the blocks.

    Example:
        >>> z = torch.arange(100.0).unsqueeze(-1)
        >>> moved = local_permutations(z, 50, torch.Generator().manual_seed(0))
        >>> bool((moved.sort(-1).values == torch.arange(100)).all()), int((moved - torch.arange(100)).abs().max()) < 10
        (True, True)
    """
    n = z.shape[0]
    if are_groups(z):
        blocks = z.unique(dim=0, return_inverse=True)[1].unsqueeze(0)
    else:
        blocks = partitions(z, min(NUM_PARTITIONS, num_permutations), generator)
    which = torch.arange(num_permutations, device=z.device) % blocks.shape[0]
    keys = torch.rand(num_permutations, n, generator=generator, dtype=torch.float64).to(z.device)
    moved = (blocks[which] + keys).argsort(dim=-1)
    home = blocks.argsort(dim=-1, stable=True)[which]
    return torch.empty_like(moved).scatter_(-1, home, moved)


def are_groups(z: Tensor) -> bool:
    """Whether so many rows of ``z`` are equal that permutations among equal ones are enough."""
    return bool(z.unique(dim=0).shape[0] * BLOCK <= z.shape[0])


def partitions(z: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Which block each row belongs to, ``(count, n)``, in so many random partitions into blocks of neighbors."""
    n, p = z.shape
    block = torch.zeros(count, n, dtype=torch.long, device=z.device)
    place = torch.arange(n, device=z.device).expand(count, n)
    while True:
        number = int(block.max()) + 1
        size = torch.zeros(count, number, dtype=torch.long, device=z.device)
        size.scatter_add_(-1, block, torch.ones_like(block))
        if int(size.max()) < 2 * BLOCK:
            return block
        direction = torch.randn(count, number, p, generator=generator, dtype=torch.float64).to(z)
        along = (z * direction.gather(1, block.unsqueeze(-1).expand(-1, -1, p))).sum(-1)
        order = along.argsort(dim=-1)
        order = order.gather(-1, block.gather(-1, order).argsort(dim=-1, stable=True))
        # where a block is cut: anywhere that leaves enough on both sides, near the middle of a large one
        share = torch.rand(count, number, generator=generator, dtype=torch.float64).to(z)
        low = torch.maximum(torch.full_like(size, BLOCK), (0.35 * size).long())
        cut = torch.where(size < 2 * BLOCK, size, low + (share * (size - 2 * low + 1)).long())
        own = block.gather(-1, order)
        rank = place - (size.cumsum(-1) - size).gather(-1, own)
        halves = 2 * own + (rank >= cut.gather(-1, own)).long()
        _, dense = halves.unique(return_inverse=True)
        block = torch.empty_like(block).scatter_(-1, order, dense)
