r"""Risks: means over data of the clipped cross-entropy, eq. (7).

.. math::  \mathcal L_\epsilon(y, \mathbf f(x)) = -\log [f_y(x)]_\epsilon^1, \qquad
           [u]_\epsilon^1 = \min\{\max\{u, \epsilon\}, 1\}                                                  \tag{7}
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass, MulticlassPredictor
from ..validation import check_number, check_seed
from .base import Objective
from .rademacher import RademacherComplexity

Below = Literal["flat", "linear"]


def clipped_cross_entropy(f_y: Tensor, epsilon: float, below: Below = "flat") -> Tensor:
    """L_ε of eq. (7) for the decision probabilities ``f_y`` of the true classes.

    Below ε the loss of eq. (7) is flat and a badly predicted point has no gradient. ``below="linear"`` continues it
    along its tangent instead, −log ε + (ε − f)/ε, so that learning can still correct such points.
    """
    loss = -f_y.clamp(epsilon, 1.0).log()
    if below == "flat":
        return loss
    return loss + (epsilon - f_y).clamp_min(0.0) / epsilon


class ClippedRisk(Objective[ConditionedMulticlass]):
    """What the risks share: ε, and the way on below it."""

    def __init__(self, epsilon: float, below: Below) -> None:
        if not 0.0 < check_number("epsilon", epsilon) < 1.0:
            raise ValueError(f"Expected epsilon between 0 and 1, got {epsilon}. Give 1e-3, say.")
        if below not in ("flat", "linear"):
            raise ValueError(f"Expected below to be 'flat' or 'linear', got {below!r}. Choose one of the two.")
        self.epsilon = epsilon
        self.below = below

    def losses(self, F: Tensor, y: Tensor) -> Tensor:
        """L_ε(y_i, F_i) for decision probabilities ``F`` ``(*batch, n, m)``; its mean under a soft label."""
        if y.dim() == 2:
            return (y * clipped_cross_entropy(F, self.epsilon, self.below)).sum(-1)
        f_y = F.gather(-1, y.expand(F.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return clipped_cross_entropy(f_y, self.epsilon, self.below)

    def mean_loss(self, F: Tensor, y: Tensor) -> Tensor:
        """Their mean over rows, of shape ``batch``."""
        return self.losses(F, y).mean(dim=-1)

    def __repr__(self) -> str:
        below = "" if self.below == "flat" else f", below={self.below!r}"
        return f"{type(self).__name__}(epsilon={self.epsilon:g}{below})"


class EmpiricalRisk(ClippedRisk):
    """The first term of eq. (12), (1/n) Σ L_ε(y_i, f(x_i)), at the training points themselves.

    Args:
        epsilon: ε of eq. (7).
        below: the loss below ε, ``"flat"`` or ``"linear"``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 1, 1])
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> objective = ke.EmpiricalRisk() + ke.RademacherComplexity("4e/n")
        >>> objective
        EmpiricalRisk(epsilon=1e-15) + RademacherComplexity(rate='4e/n')
        >>> objective(embedding, x, y).backward()
    """

    def __init__(self, epsilon: float = 1e-15, below: Below = "flat") -> None:
        super().__init__(epsilon, below)

    def evaluate(self, bound: ConditionedMulticlass) -> Tensor:
        """(1/n) Σ L_ε(y_i, P_i) with P = KV."""
        require_classes(self, bound)
        return bound.weighted_mean(self.losses(bound.P, bound.y))


class LeaveOneOutRisk(ClippedRisk):
    """(1/n) Σ L_ε(y_i, f₋ᵢ(x_i)), each point predicted by the embedding that has not seen it, in closed form.

    This is eq. (13) with every point its own validation batch, at the cost of one inverse. ε is larger than in
    :class:`EmpiricalRisk`: a wrong point costs at most −log ε, so that a few outliers do not rule the mean.

    Args:
        epsilon: ε of eq. (7).
        below: the loss below ε, ``"flat"`` or ``"linear"``.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(20, 2), torch.arange(20) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> bool(ke.LeaveOneOutRisk()(embedding, x, y) > ke.EmpiricalRisk()(embedding, x, y))
        True
    """

    def __init__(self, epsilon: float = 1e-3, below: Below = "flat") -> None:
        super().__init__(epsilon, below)

    def evaluate(self, bound: ConditionedMulticlass) -> Tensor:
        """(1/n) Σ L_ε(y_i, Y_i − V_i / [A⁻¹]_ii)."""
        require_classes(self, bound)
        return bound.weighted_mean(self.losses(bound.leave_one_out(), bound.y))


class BatchValidationRisk(ClippedRisk):
    """Eq. (13): the batch is split; one part trains the embedding, the other measures its risk.

    Args:
        validation_fraction: the share of rows that validate.
        complexity: a term τ r of eq. (13), evaluated on the training part.
        seed: of the permutation that splits the rows, the same for every call with as many rows.
        epsilon: ε of eq. (7).
        below: the loss below ε, see :func:`clipped_cross_entropy`.

    Raises:
        TypeError: if ``validation_fraction`` is not a number, or ``seed`` not a whole number.
        ValueError: if ``validation_fraction`` is not between 0 and 1.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.rand(20, 2), torch.arange(20) % 2
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.BatchValidationRisk(validation_fraction=0.3)(embedding, x, y).dim()
        0
    """

    def __init__(
        self,
        validation_fraction: float = 0.5,
        complexity: RademacherComplexity | None = None,
        seed: int = 0,
        epsilon: float = 1e-15,
        below: Below = "flat",
    ) -> None:
        super().__init__(epsilon, below)
        if not 0.0 < check_number("validation_fraction", validation_fraction) < 1.0:
            raise ValueError(f"Expected validation_fraction between 0 and 1, got {validation_fraction}. Give 0.2, say.")
        check_seed(seed)
        self.validation_fraction = validation_fraction
        self.complexity = complexity
        self.seed = seed

    def evaluate(self, bound: ConditionedMulticlass) -> Tensor:
        """q^(V) of eq. (13).

        Raises:
            ValueError: if there are fewer than two rows to split.
        """
        require_classes(self, bound)
        n = bound.num_data
        if n < 2:
            raise ValueError(
                f"Expected at least 2 rows to split into training and validation, got {n}. Give larger batches."
            )
        held_out = min(max(round(self.validation_fraction * n), 1), n - 1)
        order = permutation(n, self.seed).to(bound.y.device)
        validation, training = order[:held_out], order[held_out:]
        part = bound.restricted(training)
        losses = self.losses(bound.fitted_by(part, training, validation), bound.y[validation])
        risk = bound.restricted(validation).weighted_mean(losses) if bound.row_weights is not None else losses.mean(-1)
        return risk if self.complexity is None else risk + self.complexity.evaluate(part)

    def __repr__(self) -> str:
        below = "" if self.below == "flat" else f", below={self.below!r}"
        return (
            f"BatchValidationRisk(validation_fraction={self.validation_fraction:g}, complexity={self.complexity!r}, "
            f"seed={self.seed}, epsilon={self.epsilon:g}{below})"
        )


def require_classes(asker: object, bound: object) -> None:
    """Raise unless ``bound`` is a multiclass embedding with its data, for objectives that count classes."""
    if isinstance(bound, ConditionedMulticlass):
        return
    name = asker if isinstance(asker, str) else type(asker).__name__
    if isinstance(bound, MulticlassPredictor):
        raise TypeError(
            f"Expected a MulticlassEmbedding with its data for {name}, got "
            f"{type(bound).__name__}, which does not hold them. Give what embedding.condition(x, y) returns."
        )
    kind = type(getattr(bound, "embedding", bound)).__name__
    raise TypeError(
        f"Expected a MulticlassEmbedding for {name}, got {kind}. For other targets use "
        "ConditionalEvidence or CrossValidationRisk."
    )


def permutation(n: int, seed: int) -> Tensor:
    """A permutation of 0 … n − 1 that depends on ``seed`` alone, and leaves the global generators alone."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(int(seed)))
