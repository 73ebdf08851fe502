"""A fitted vote: the kernels and points with votes, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from .families import Array, KernelFamily, Points, SharedWork
from .problem import Votes

ROWS = 4096
"""Points evaluated at a time, so that memory does not grow with the number of predictions."""


class SparseVote:
    """f(x) = Σ α_{k,j} K_k(x, x_j) for one or more sets of votes on the same points.

    Args:
        family: the kernels.
        votes: one set of votes per output.
        x: the points the votes refer to, of which those without votes are dropped.

    Raises:
        ValueError: if a vote belongs to a point that ``x`` does not have.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.voting import KernelFamily, polynomial_kernels
        >>> votes = Votes(np.array([1]), np.array([2]), np.array([0.5]))
        >>> f = SparseVote(KernelFamily(polynomial_kernels([1, 2])), [votes], np.array([[0.0], [1.0], [2.0]]))
        >>> f(np.array([[1.0]])).tolist(), f.points.tolist(), f.support.tolist()
        ([[4.5]], [[2.0]], [2])
    """

    def __init__(self, family: KernelFamily, votes: Sequence[Votes], x: Points) -> None:
        self.family, self.num_outputs = family, len(votes)
        self.support: NDArray[np.int64] = np.unique(np.concatenate([part.point for part in votes]))
        x = family.points(x)
        if len(self.support) and self.support[-1] >= len(x):
            raise ValueError(f"Expected votes of the {len(x)} points, got one of point {self.support[-1]}. Give all.")
        self.points = x[self.support].copy()
        self._parts: dict[int, tuple[NDArray[np.int64], Array]] = {}
        for k in np.unique(np.concatenate([part.kernel for part in votes])):
            weights = np.zeros((len(self.support), len(votes)))
            for c, part in enumerate(votes):
                chosen = part.kernel == k
                weights[np.searchsorted(self.support, part.point[chosen]), c] = part.weight[chosen]
            used = np.flatnonzero((weights != 0).any(axis=1))
            self._parts[int(k)] = (used, weights[used])

    def __call__(self, x: Points) -> Array:
        """f at every point of x, shape (n, number of outputs)."""
        x = self.family.points(x)
        f = np.zeros((len(x), self.num_outputs))
        for start in range(0, len(x), ROWS):
            part = x[start : start + ROWS]
            shared = SharedWork(part, self.points)
            for k, (used, weights) in self._parts.items():
                f[start : start + ROWS] += self.family.checked(k, shared, used) @ weights
        return f

    def norms(self, output: int) -> Array:
        """Σ_j |α_{k,j}| of one output, per kernel."""
        total = np.zeros(len(self.family))
        for k, (_, weights) in self._parts.items():
            total[k] = np.abs(weights[:, output]).sum()
        return total

    def total_weight(self, k: int) -> float:
        """Σ_j |α_{k,j}| of kernel k over all outputs."""
        return float(np.abs(self._parts[k][1]).sum()) if k in self._parts else 0.0

    def num_votes(self, k: int) -> int:
        """The number of votes of kernel k over all outputs."""
        return int((self._parts[k][1] != 0).sum()) if k in self._parts else 0
