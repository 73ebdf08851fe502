r"""A learned embedding with few points in place of all data, for fast prediction.

The function :math:`f = \sum_i V_i k(x_i, \cdot)` is projected on the span of k(s, ·) for a subset S,

.. math::  f_S = \sum_{s \in S} B_s k(s, \cdot), \qquad B = K_{SS}^{-1} f(S), \qquad
           \lVert f - f_S \rVert^2_{\mathcal H} = \lVert f \rVert^2 - \lVert f_S \rVert^2 .

``"greedy"`` adds the point that lowers this distance most, the one where :math:`\lVert r(x) \rVert^2 / \pi(x)^2` is
largest, with r = f − f_S and :math:`\pi(x)^2 = k(x, x) - \mathbf k_S(x)^\top K_{SS}^{-1} \mathbf k_S(x)`. ``"herding"``
chooses points that follow the density of x (Chen et al., 2010). Either way the basis is orthogonalized as it grows:
O(n s²) time, O(n s) memory.
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
    """How a compressed embedding differs from the original one.

    Attributes:
        num_points: s, the points kept; fewer than requested where they already give f exactly.
        relative_norm: ‖f − f_S‖ / ‖f‖ in the kernel's Hilbert space.
        largest_difference: of a decision probability or a regression value at the data.
        accuracy: of the embedding on ``x``, ``y``, or on its own data; ``None`` for other targets.
        compressed_accuracy: of the few points, on the same.

    Example:
        >>> CompressionReport(20, 0.01, 0.02, accuracy=0.75, compressed_accuracy=0.5).accuracy_loss
        0.25
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
        ValueError: if an argument is out of its range, the embedding has a batch shape, or the kernel is zero.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> conditioned = ke.ConditionalEmbedding(gpytorch.kernels.RBFKernel()).condition(torch.eye(4), torch.ones(4))
        >>> compress(conditioned, 2)[1].num_points
        2
    """
    conditioned.embedding.check_single()
    n, num_points = conditioned.num_data, check_count("num_points", num_points, -(2**31))
    if not 1 <= num_points <= n:
        raise ValueError(f"Expected num_points from 1 to the {n} rows of the data, got {num_points}.")
    if choice not in ("greedy", "herding"):
        raise ValueError(f"Expected choice 'greedy' or 'herding', got {choice!r}.")
    if (x is None) != (y is None):
        raise ValueError("To measure the accuracy on other data, pass both x and y.")
    rows, N, c = _newton_basis(conditioned, num_points, herding=choice == "herding")
    if not rows:
        raise ValueError("All values of the kernel are zero on these data. Use another kernel.")
    # With L = N at the selected rows, K_SS = LLᵀ and B = L⁻ᵀ c.
    B = torch.linalg.solve_triangular(N[rows].mT, c, upper=True)
    kind = MulticlassExpansion if isinstance(conditioned, ConditionedMulticlass) else Expansion
    few = kind(frozen(conditioned.embedding), conditioned.x[rows], B)
    squared = conditioned.squared_norm
    missing = (squared - c.square().sum()).clamp_min(0.0)
    difference = (few.mean(conditioned.x) - conditioned.P).abs().max().item()
    report = CompressionReport(len(rows), (missing / squared).sqrt().item(), difference)
    if isinstance(conditioned, ConditionedMulticlass):
        x, y = (conditioned.x, conditioned.y) if x is None or y is None else (x, y.to(conditioned.y.device))
        before, after = ((one.mean(x).argmax(-1) == y).double().mean().item() for one in (conditioned, few))
        report = dataclasses.replace(report, accuracy=before, compressed_accuracy=after)
    return few, report


def _newton_basis(conditioned: ConditionedEmbedding, size: int, herding: bool) -> tuple[list[int], Tensor, Tensor]:
    """At most ``size`` rows, orthonormal functions that span their k(s, ·), at the data: N, and c = ⟨N, f⟩."""
    kernel, x, residual = conditioned.embedding.kernel, conditioned.x, conditioned.P.clone()
    power = conditioned.system.diagonal().clone()  # π², at first k(x, x)
    smallest = 100 * torch.finfo(power.dtype).eps * power.amax()
    N, c, rows = x.new_zeros(len(x), size), x.new_zeros(size, residual.shape[-1]), list[int]()
    means = drawn = torch.zeros_like(power)
    if herding:
        means = torch.cat([gram(kernel, some, x).mean(-1) for some in x.split(1024)]).to(x)
    for step in range(size):
        # herding: the point where the mean embedding exceeds that of the points drawn so far most
        score = means - drawn / (step + 1) if herding else residual.square().sum(-1) / power
        score = torch.where(power > smallest, score, -torch.inf)
        j = int(score.argmax())
        if not float(score[j]) > (-torch.inf if herding else 0.0):
            break
        column, root = gram(kernel, x, x[j : j + 1]).to(x).squeeze(-1), power[j].sqrt()
        N[:, step] = v = (column - N[:, :step] @ N[j, :step]) / root
        c[step] = residual[j] / root
        residual -= v.unsqueeze(-1) * c[step]
        power = (power - v.square()).clamp_min(0.0)
        power[j] = 0.0
        drawn = drawn + column
        rows.append(j)
    return rows, N[:, : len(rows)], c[: len(rows)]
