r"""Partition kernels count in how many partitions two points share a cell:

.. math::  \varphi(x) = \tfrac{1}{\sqrt T} \big( \mathbf 1\{x \in C_{tc}\} \big)_{t, c}, \qquad
           k(x, x') = \frac1T \sum_{t=1}^T \mathbf 1\{x, x' \text{ share a cell of partition } t\} .

The cells :math:`C_{tc}` are the leaves of a binary tree: boxes with sides along the axes. With random trees this is the
random forest kernel (Breiman 2000; Davies and Ghahramani 2014), k(x, x) = 1.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ..validation import check_count, check_tensor


@dataclasses.dataclass(frozen=True)
class Tree:
    """The nodes of a binary tree, its root first; a leaf has ``below`` = −1.

    Attributes:
        columns: the column that a node splits, ``(k,)``.
        thresholds: the largest value that goes ``below``, ``(k,)``.
        below: the index of the next node for values up to the threshold, ``(k,)``.
        above: the index of the next node for larger values, ``(k,)``.

    Raises:
        ValueError: if the four tensors differ in length, a branch leads back, or a column is negative.

    Example:
        >>> below, above = torch.tensor([1, -1, -1]), torch.tensor([2, -1, -1])
        >>> tree = Tree(torch.tensor([0, 0, 0]), torch.tensor([0.5, 0.0, 0.0]), below, above)
        >>> Partitions([tree])(torch.tensor([[0.2], [0.7]]))
        tensor([[1., 0.],
                [0., 1.]])
    """

    columns: Tensor
    thresholds: Tensor
    below: Tensor
    above: Tensor

    def __post_init__(self) -> None:
        """Check that children have larger indices than their parent, so that a descent ends."""
        parts = (self.columns, self.thresholds, self.below, self.above)
        if not all(isinstance(part, Tensor) and part.dim() == 1 for part in parts) or len({len(p) for p in parts}) != 1:
            raise ValueError("The four tensors of a tree must have the same length, one entry for each node.")
        for name in ("columns", "below", "above"):
            part = getattr(self, name)
            if part.is_floating_point() or part.is_complex() or part.dtype == torch.bool:
                raise TypeError(f"Expected {name} as whole numbers, got {part.dtype}. Convert them with .long().")
        check_tensor(self.thresholds, "thresholds")
        if len(self.below) == 0:
            raise ValueError("A tree needs at least one node. A single leaf is below = above = [-1].")
        inner = self.below >= 0
        if bool(self.thresholds[inner].isnan().any()):
            raise ValueError("Expected thresholds of numbers, got NaN, which no value is above or below.")
        number = torch.arange(len(self.below), device=self.below.device)[inner]
        for name in ("below", "above"):
            to = getattr(self, name)[inner]
            if not bool(((number < to) & (to < len(self.below))).all()):
                raise ValueError(f"Expected {name} to lead to nodes of larger numbers, got {to.tolist()}.")
        if bool((self.columns[inner] < 0).any()):
            raise ValueError("Column numbers must not be negative.")


class Partitions(torch.nn.Module):
    """φ, from ``(n, d)`` to ``(n, p)`` with p the leaves of all ``trees``.

    Args:
        trees: at least one.

    Raises:
        ValueError: if ``trees`` is not a list of at least one tree.

    Example:
        >>> stump = torch.tensor([0, 0, 0]), torch.tensor([0.5, 0.0, 0.0])
        >>> halves = Tree(*stump, torch.tensor([1, -1, -1]), torch.tensor([2, -1, -1]))
        >>> Partitions([halves]).splits(2)
        tensor([1, 0])
    """

    columns: Tensor
    thresholds: Tensor
    below: Tensor
    above: Tensor
    cells: Tensor
    roots: Tensor
    is_deterministic = True

    def __init__(self, trees: Sequence[Tree]) -> None:
        super().__init__()
        if not isinstance(trees, Sequence) or not trees or not all(isinstance(tree, Tree) for tree in trees):
            raise ValueError(f"Expected a list of trees, got {trees!r}. Give at least one Tree.")
        first = [0, *itertools.accumulate(len(tree.columns) for tree in trees[:-1])]
        is_leaf = torch.cat([tree.below < 0 for tree in trees])
        own = torch.arange(len(is_leaf), device=is_leaf.device)
        # All trees in one list of nodes; a leaf leads to itself.
        for name in ("below", "above"):
            shifted = torch.cat([getattr(tree, name) + start for tree, start in zip(trees, first, strict=True)])
            self.register_buffer(name, torch.where(is_leaf, own, shifted))
        self.register_buffer("columns", torch.where(is_leaf, 0, torch.cat([tree.columns for tree in trees])))
        self.register_buffer("thresholds", torch.cat([tree.thresholds for tree in trees]))
        self.register_buffer("cells", torch.where(is_leaf, is_leaf.cumsum(0) - 1, -1))
        self.register_buffer("roots", torch.tensor(first, device=is_leaf.device))

    @property
    def num_cells(self) -> int:
        """p, the number of leaves of all trees."""
        return int(self.cells.max()) + 1

    def splits(self, num_columns: int) -> Tensor:
        """How often each column is split, ``(num_columns,)``.

        Raises:
            TypeError: if ``num_columns`` is not a whole number.
            ValueError: if it is below 1.
        """
        return torch.bincount(self.columns[self.cells < 0], minlength=check_count("num_columns", num_columns))

    def forward(self, x: Tensor) -> Tensor:
        """φ(x), ``(n, p)``."""
        if x.dim() != 2 or x.shape[1] <= int(self.columns.max()):
            largest = int(self.columns.max())
            raise ValueError(f"Expected points of shape (n, d) with d above {largest}, got {tuple(x.shape)}.")
        # A leaf leads to itself, so that the descent has ended when no node changes.
        children = torch.stack([self.above, self.below], dim=1).flatten()
        node, last = self.roots.expand(len(x), -1), None
        while last is None or not torch.equal(node, last):
            goes_below = x.gather(1, self.columns.take(node)) <= self.thresholds.take(node)
            node, last = children.take(2 * node + goes_below), node
        share = 1.0 / math.sqrt(len(self.roots))
        return x.new_zeros(len(x), self.num_cells).scatter_(1, self.cells.take(node), share)
