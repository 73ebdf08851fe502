r"""A learned embedding with few points in place of all data, for fast prediction.

The function :math:`f = \sum_i V_i k(x_i, \cdot)` is projected on the span of k(s, ·) for a subset S,

.. math::  f_S = \sum_{s \in S} B_s k(s, \cdot), \qquad B = K_{SS}^{-1} f(S), \qquad
           \lVert f - f_S \rVert^2_{\mathcal H} = \lVert f \rVert^2 - \lVert f_S \rVert^2 ,

the nearest function in that span. ``"greedy"`` adds the point that lowers the distance most: with the
residual r = f − f_S and the power :math:`\pi(x)^2 = k(x, x) - \mathbf k_S(x)^\top K_{SS}^{-1} \mathbf k_S(x)`, the one
where :math:`\lVert r(x) \rVert^2 / \pi(x)^2` is largest, which is exactly the decrease. ``"herding"`` chooses S by
kernel herding (Chen et al., 2010), whose points follow the density of x and do not look at f. Either way the basis is
orthogonalized as it grows (a Cholesky factor built column by column): O(n s²) time, O(n s) memory.
"""

from __future__ import annotations

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from ..embeddings import ConditionedEmbedding, ConditionedMulticlass, Expansion, MulticlassExpansion
from ..kernels import gram
from ..kernels.parameters import frozen
from ..validation import check_count

Choice = Literal["greedy", "herding"]


@dataclasses.dataclass(frozen=True)
class CompressionReport:
    """The loss by compression.

    Attributes:
        num_points: s, the points kept; fewer than requested where they already give f exactly.
        relative_norm: ‖f − f_S‖ / ‖f‖ in the kernel's Hilbert space.
        largest_difference: of a decision probability (a regression value, for other targets) at the data.
        accuracy: of the embedding on ``x``, ``y``, or on its own data; ``None`` for other targets.
        compressed_accuracy: of the few points, on the same.

    Example:
        >>> round(CompressionReport(20, 0.01, 0.02, accuracy=0.95, compressed_accuracy=0.94).accuracy_loss, 4)
        0.01
    """

    num_points: int
    relative_norm: float
    largest_difference: float
    accuracy: float | None = None
    compressed_accuracy: float | None = None

    @property
    def accuracy_loss(self) -> float | None:
        """The decrease of the accuracy."""
        if self.accuracy is None or self.compressed_accuracy is None:
            return None
        return self.accuracy - self.compressed_accuracy


@torch.no_grad()
def compress(
    conditioned: ConditionedEmbedding,
    num_points: int,
    choice: Choice = "greedy",
    x: Tensor | None = None,
    y: Tensor | None = None,
) -> tuple[Expansion, CompressionReport]:
    """Approximate a conditioned embedding by a few of its points, and report the loss of accuracy.

    Args:
        conditioned: what ``embedding.condition(x, y)`` returned, without batch dimensions.
        num_points: s, the points to keep.
        choice: ``"greedy"`` or ``"herding"``.
        x: points on which to measure accuracy; the training data by default.
        y: their labels.

    Raises:
        ValueError: if ``num_points`` is not from 1 to n, ``choice`` is unknown, only one of ``x`` and ``y`` is given,
            the embedding has a batch shape, or the kernel is zero on the data.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.rand(300, 2), ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2)
        >>> few, report = compress(embedding.condition(x, (x.sum(-1) > 1).long()), 20)
        >>> few.points.shape, abs(report.accuracy_loss) < 0.05
        (torch.Size([20, 2]), True)
    """
    if len(conditioned.embedding.batch_shape) > 0:
        raise ValueError(
            f"Expected an embedding without batch shape, got {tuple(conditioned.embedding.batch_shape)}. "
            "Compress each kernel of the batch alone."
        )
    n, num_points = conditioned.num_data, check_count("num_points", num_points, -(2**31))
    if not 1 <= num_points <= n:
        raise ValueError(f"Expected num_points from 1 to the {n} rows of the data, got {num_points}.")
    if choice not in ("greedy", "herding"):
        raise ValueError(f"Expected choice 'greedy' or 'herding', got {choice!r}.")
    if (x is None) != (y is None):
        raise ValueError("To measure the accuracy on other data, pass both x and y.")
    basis = _NewtonBasis(conditioned, num_points)
    basis.select(num_points, herding=choice == "herding")
    if not basis.rows:
        raise ValueError("All values of the kernel are zero on these data. Use another kernel.")
    kind = MulticlassExpansion if isinstance(conditioned, ConditionedMulticlass) else Expansion
    few = kind(frozen(conditioned.embedding), conditioned.x[basis.rows], basis.coefficients())
    squared = conditioned.squared_norm
    missing = (squared - basis.c.square().sum()).clamp_min(0.0)
    difference = (few.mean(conditioned.x) - conditioned.P).abs().max().item()
    report = CompressionReport(len(basis.rows), (missing / squared).sqrt().item(), difference)
    if isinstance(conditioned, ConditionedMulticlass):
        x, y = (conditioned.x, conditioned.y) if x is None or y is None else (x, y.to(conditioned.y.device))
        before, after = ((one.mean(x).argmax(-1) == y).double().mean().item() for one in (conditioned, few))
        report = dataclasses.replace(report, accuracy=before, compressed_accuracy=after)
    return few, report


class _NewtonBasis:
    """Orthonormal functions spanning k(s, ·) for the selected s, by their values N at the data."""

    def __init__(self, conditioned: ConditionedEmbedding, size: int) -> None:
        self.kernel, self.x, self.residual = conditioned.embedding.kernel, conditioned.x, conditioned.P.clone()
        self.power = conditioned.system.diagonal().clone()  # π², at first k(x, x)
        self.smallest = 100 * torch.finfo(self.power.dtype).eps * self.power.amax()
        self.N = self.x.new_zeros(self.x.shape[0], size)
        self.c = self.x.new_zeros(size, self.residual.shape[-1])
        self.rows: list[int] = []

    def select(self, size: int, herding: bool) -> None:
        """Add the row with the highest score, ``size`` times or until nothing is left to gain."""
        means = drawn = torch.zeros_like(self.power)
        if herding:
            means = torch.cat([gram(self.kernel, rows, self.x).mean(-1) for rows in self.x.split(1024)]).to(self.x)
        for step in range(size):
            # herding: the point where the mean embedding exceeds that of the points drawn so far most
            score = means - drawn / (step + 1) if herding else self.residual.square().sum(-1) / self.power
            score = torch.where(self.power > self.smallest, score, -torch.inf)
            j = int(score.argmax())
            if not float(score[j]) > (-torch.inf if herding else 0.0):
                break
            drawn = drawn + self.add(j)

    def add(self, j: int) -> Tensor:
        """Add row j to the subset; returns its column of K."""
        step = len(self.rows)
        column = gram(self.kernel, self.x, self.x[j : j + 1]).to(self.x).squeeze(-1)
        root = self.power[j].sqrt()
        v = (column - self.N[:, :step] @ self.N[j, :step]) / root
        self.c[step] = self.residual[j] / root
        self.residual -= v.unsqueeze(-1) * self.c[step]
        self.power = (self.power - v.square()).clamp_min(0.0)
        self.power[j] = 0.0
        self.N[:, step] = v
        self.rows.append(j)
        return column

    def coefficients(self) -> Tensor:
        """B: with L = N at the selected rows, K_SS = LLᵀ and B = L⁻ᵀ c."""
        s = len(self.rows)
        B: Tensor = torch.linalg.solve_triangular(self.N[self.rows, :s].mT, self.c[:s], upper=True)
        return B
