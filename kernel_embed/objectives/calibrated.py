r"""The leave-one-out risk of calibrated probabilities: the default objective.

The probabilities reported in the end are :math:`p = \operatorname{softmax}(a h + a' g(h) + b)` of
:mod:`kernel_embed.embeddings.calibration`, with :math:`a, a' \ge 0` and class offsets :math:`b` fitted on leave-one-out
values. The objective is the cross-entropy reached,

.. math::  q(\theta, \lambda) = \min_{a, a', b} \; -\frac1n \sum_{i, c} T_{ic} \log p_c(f_{-i}(x_i)) +
           \frac{\kappa}{2n} \lVert b \rVert^2 , \qquad T = \frac{nY + 1/m}{n + 1} .

The problem is convex in (a, a', b) and solved by Newton's method at every evaluation; at the minimum the derivative for
(θ, λ) is that of the sum alone (envelope theorem). There is no clip, so every point has a gradient.
"""

from __future__ import annotations

from torch import Tensor

from ..embeddings import ConditionedMulticlass
from ..embeddings.calibration import SCALE_RIDGE, check_penalty, fitted, smoothed
from .base import Objective
from .risk import require_classes


class CalibratedLeaveOneOutRisk(Objective[ConditionedMulticlass]):
    """The cross-entropy of calibrated leave-one-out probabilities; see the module's text.

    Args:
        penalty: κ, the strength of the pull of the class offsets towards zero.

    Raises:
        TypeError: if ``penalty`` is not a number.
        ValueError: if it is not positive and finite.

    Example:
        >>> import torch, gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [0.5], [2.0], [2.5]]), torch.tensor([0, 0, 1, 1])
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.CalibratedLeaveOneOutRisk()(embedding, x, y).backward()
    """

    def __init__(self, penalty: float = 1.0) -> None:
        check_penalty(penalty)
        self.penalty = penalty

    def evaluate(self, bound: ConditionedMulticlass) -> Tensor:
        """q(θ, λ)."""
        require_classes(self, bound)
        F, n = bound.leave_one_out(), bound.total_weight
        calibration = fitted(F, bound.Y, self.penalty, bound.row_weights)
        losses = -(smoothed(bound.Y, n) * calibration.log_probabilities(F)).sum(-1)
        penalty = self.penalty / n * calibration.offset.square().sum(-1)
        # All that was minimized, so that the envelope theorem holds to rounding.
        return bound.weighted_mean(losses) + 0.5 * (penalty + SCALE_RIDGE * calibration.scales.square().sum(-1))

    def __repr__(self) -> str:
        return f"CalibratedLeaveOneOutRisk(penalty={self.penalty:g})"
