r"""Risks: means over data of the clipped cross-entropy, eq. (7).

.. math::  \mathcal L_\epsilon(y, \mathbf f(x)) = -\log [f_y(x)]_\epsilon^1, \qquad
           [u]_\epsilon^1 = \min\{\max\{u, \epsilon\}, 1\}                                                  \tag{7}
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass, MulticlassEmbedding, MulticlassPredictor
from ..validation import check_number, check_seed
from .base import Array, Objective, Targets
from .rademacher import RademacherComplexity

Below = Literal["flat", "linear"]


def clipped_cross_entropy(f: Tensor, epsilon: float, below: Below = "flat") -> Tensor:
    """L_ε of eq. (7) for the decision probabilities ``f`` of the true classes.

    Below ε the loss of eq. (7) is flat and a badly predicted point has no gradient. ``below="linear"`` continues it
    along its tangent instead, −log ε + (ε − f)/ε, so that learning can still correct such points.
    """
    loss = -f.clamp(epsilon, 1.0).log()
    return loss if below == "flat" else loss + (epsilon - f).clamp_min(0.0) / epsilon


class ClippedRisk(Objective[ConditionedMulticlass]):
    """A mean of clipped cross-entropies: the threshold ε and the extrapolation below it."""

    def __init__(self, epsilon: float, below: Below) -> None:
        if not 0.0 < check_number("epsilon", epsilon) < 1.0:
            raise ValueError(f"epsilon must lie between 0 and 1, got {epsilon}. A usual value is 1e-3.")
        if below not in ("flat", "linear"):
            raise ValueError(f"below must be 'flat' or 'linear', got {below!r}.")
        self.epsilon = epsilon
        self.below = below

    def losses(self, F: Tensor, y: Tensor) -> Tensor:
        """L_ε(y_i, F_i) for decision probabilities ``F`` ``(*batch, n, m)``; its mean under a soft label."""
        if y.dim() == 2:
            return (y * clipped_cross_entropy(F, self.epsilon, self.below)).sum(-1)
        f_y = F.gather(-1, y.expand(F.shape[:-1]).unsqueeze(-1)).squeeze(-1)
        return clipped_cross_entropy(f_y, self.epsilon, self.below)

    def evaluate(self, attached: ConditionedMulticlass) -> Tensor:
        """(1/n) Σ L_ε(y_i, f(x_i))."""
        require_classes(self, attached)
        return super().evaluate(attached)

    def is_direct(self, embedding: Any) -> bool:
        """For classes only."""
        return bool(self.inputs) and isinstance(embedding, MulticlassEmbedding)

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """(1/n) Σ Y ∘ L_ε(F), and its derivative −(1/n) Y / F where F is not clipped."""
        (F,), xp, epsilon = inputs, data.xp, self.epsilon
        clipped = F.clip(epsilon, 1.0)
        loss, slope = -xp.log(clipped), xp.where(clipped == F, -1.0 / clipped, 0.0)
        if self.below == "linear":
            loss = loss + (epsilon - F).clip(0.0) / epsilon
            slope = slope - xp.where(epsilon >= F, 1.0 / epsilon, 0.0)
        return data.inner(data.shared_Y, loss), (data.shared_Y * slope,)

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

    inputs = ("fitted",)

    def __init__(self, epsilon: float = 1e-15, below: Below = "flat") -> None:
        super().__init__(epsilon, below)


class LeaveOneOutRisk(ClippedRisk):
    """(1/n) Σ L_ε(y_i, f₋ᵢ(x_i)), each point predicted by the embedding without it, in closed form.

    This is eq. (13) with every point its own validation batch, at the cost of one inverse. ε is larger than in
    :class:`EmpiricalRisk`: a wrong point costs at most −log ε, so that a few outliers do not dominate the mean.

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

    inputs = ("leave_one_out",)

    def __init__(self, epsilon: float = 1e-3, below: Below = "flat") -> None:
        super().__init__(epsilon, below)


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
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {validation_fraction}.")
        check_seed(seed)
        self.validation_fraction = validation_fraction
        self.complexity = complexity
        self.seed = seed

    def evaluate(self, attached: ConditionedMulticlass) -> Tensor:
        """q^(V) of eq. (13).

        Raises:
            ValueError: if there are fewer than two rows to split.
        """
        require_classes(self, attached)
        n = attached.num_data
        if n < 2:
            raise ValueError(
                f"A split into training and validation rows needs at least 2 rows, got {n}. Use larger batches."
            )
        num_validation = min(max(round(self.validation_fraction * n), 1), n - 1)
        order = permutation(n, self.seed).to(attached.y.device)
        validation, training = order[:num_validation], order[num_validation:]
        part = attached.restricted(training)
        losses = self.losses(attached.fitted_by(part, training, validation), attached.y[validation])
        weighted = attached.row_weights is not None
        risk = attached.restricted(validation).weighted_mean(losses) if weighted else losses.mean(-1)
        return risk if self.complexity is None else risk + self.complexity.evaluate(part)

    def __repr__(self) -> str:
        below = "" if self.below == "flat" else f", below={self.below!r}"
        return (
            f"BatchValidationRisk(validation_fraction={self.validation_fraction:g}, complexity={self.complexity!r}, "
            f"seed={self.seed}, epsilon={self.epsilon:g}{below})"
        )


def require_classes(caller: object, attached: object) -> None:
    """Raise unless ``attached`` is a multiclass embedding with its data."""
    if isinstance(attached, ConditionedMulticlass):
        return
    name = caller if isinstance(caller, str) else type(caller).__name__
    if isinstance(attached, MulticlassPredictor):
        raise TypeError(
            f"{name} needs the training data, which {type(attached).__name__} does not keep. "
            "Pass the result of embedding.condition(x, y)."
        )
    kind = type(getattr(attached, "embedding", attached)).__name__
    raise TypeError(
        f"{name} needs a MulticlassEmbedding, got {kind}. For other targets use ConditionalEvidence or "
        "CrossValidationRisk."
    )


def permutation(n: int, seed: int) -> Tensor:
    """A permutation of 0 … n − 1 that depends on ``seed`` alone and leaves the global generators unchanged."""
    return torch.randperm(n, generator=torch.Generator().manual_seed(int(seed)))
