r"""The leave-one-out risk of calibrated probabilities: the default objective.

Decision probabilities :math:`f` are estimates that may leave [0, 1]. The probabilities reported in the end are

.. math::  p(x) = \operatorname{softmax}(a\, f(x) + b),

with a scale :math:`a` and class offsets :math:`b` fitted on leave-one-out values, which need no held-out data. The
objective is the cross-entropy those probabilities reach,

.. math::  q(\theta, \lambda) = \min_{a, b} \; -\frac1n \sum_{i, c} T_{ic} \log p_c(f_{-i}(x_i)) +
           \frac{\kappa}{2n} \lVert b \rVert^2 , \qquad T = \frac{nY + 1}{n + m} .

The targets T are the one-hot labels with one more imagined observation of each class, Laplace's rule; without it
:math:`a` would grow without limit on data that are separated perfectly. The problem is convex in (a, b) and solved by
Newton's method at every evaluation; at the minimum the derivative for (θ, λ) is that of the sum alone (envelope
theorem). There is no clip, so every point has a gradient.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from ..embeddings import ConditionedMulticlass
from .base import Objective

NEWTON_STEPS = 50


@dataclasses.dataclass(frozen=True)
class SoftmaxCalibration:
    """p = softmax(a f + b): ``scale`` a of shape ``batch``, ``offset`` b of shape ``(*batch, m)``."""

    scale: Tensor
    offset: Tensor

    def log_probabilities(self, F: Tensor) -> Tensor:
        """log p for decision probabilities ``F`` of shape ``(*batch, n, m)``."""
        return (self.scale[..., None, None] * F + self.offset.unsqueeze(-2)).log_softmax(dim=-1)

    def probabilities(self, F: Tensor) -> Tensor:
        """p for decision probabilities ``F``."""
        return self.log_probabilities(F).exp()


def smoothed(Y: Tensor) -> Tensor:
    """T = (nY + 1) / (n + m), Laplace's rule for one-hot labels ``Y`` of shape ``(n, m)``."""
    n, m = Y.shape[-2:]
    return (n * Y + 1.0) / (n + m)


def calibrate(F: Tensor, Y: Tensor, penalty: float = 1.0) -> SoftmaxCalibration:
    """The (a, b) that minimise q above for decision probabilities ``F`` of shape ``(*batch, n, m)`` and one-hot ``Y``.

    Newton's method with step halving on m + 1 numbers; ``F`` is not differentiated.
    """
    n, m = F.shape[-2:]
    F, T = F.detach(), smoothed(Y.detach()).expand(F.shape)
    u = torch.cat([F.new_full((*F.shape[:-2], 1), 4.0), F.new_zeros(*F.shape[:-2], m)], dim=-1)
    ridge = F.new_full((m + 1,), penalty / n)
    ridge[0] = torch.finfo(F.dtype).eps ** 0.5 / n  # a of perfectly separated data is finite, but hardly held back
    value, gradient, hessian = _derivatives(F, T, u, ridge)
    for _ in range(NEWTON_STEPS):
        step = torch.linalg.solve(hessian, gradient)
        decrement = (step * gradient).sum(-1)
        if not bool((decrement > 1e-14).any()):
            break
        size = torch.ones_like(value)
        for _ in range(30):
            trial = u - size.unsqueeze(-1) * step
            new_value, new_gradient, new_hessian = _derivatives(F, T, trial, ridge)
            worse = new_value > value - 1e-4 * size * decrement
            if not bool(worse.any()):
                break
            size = torch.where(worse, 0.5 * size, size)
        u, value, gradient, hessian = trial, new_value, new_gradient, new_hessian
    return SoftmaxCalibration(u[..., 0], u[..., 1:])


def _derivatives(F: Tensor, T: Tensor, u: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient and Hessian in u = (a, b) of the penalised mean cross-entropy."""
    n = F.shape[-2]
    log_p = SoftmaxCalibration(u[..., 0], u[..., 1:]).log_probabilities(F)
    p = log_p.exp()
    value = -(T * log_p).sum((-2, -1)) / n + 0.5 * (ridge * u.square()).sum(-1)
    residual = p - T
    gradient = torch.cat([(residual * F).sum((-2, -1)).unsqueeze(-1), residual.sum(-2)], dim=-1) / n + ridge * u
    mean = (p * F).sum(-1, keepdim=True)
    centred = p * (F - mean)  # ∂p/∂a
    hessian = F.new_empty(*u.shape, u.shape[-1])
    hessian[..., 0, 0] = (centred * F).sum((-2, -1))
    hessian[..., 0, 1:] = hessian[..., 1:, 0] = centred.sum(-2)
    hessian[..., 1:, 1:] = torch.diag_embed(p.sum(-2)) - p.mT @ p
    return value, gradient, hessian / n + torch.diag(ridge)


class CalibratedLeaveOneOutRisk(Objective):
    """The cross-entropy of calibrated leave-one-out probabilities, min over (a, b); see the module's text.

    Args:
        penalty: κ, the strength of the pull of the class offsets towards zero.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, y = torch.tensor([[0.0], [0.5], [2.0], [2.5]]), torch.tensor([0, 0, 1, 1])
        >>> embedding = ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), num_classes=2)
        >>> ke.CalibratedLeaveOneOutRisk()(embedding, x, y).backward()
    """

    def __init__(self, penalty: float = 1.0) -> None:
        if not penalty > 0:
            raise ValueError(f"Expected a positive penalty, got {penalty}.")
        self.penalty = penalty

    def evaluate(self, conditioned: ConditionedMulticlass) -> Tensor:
        """q(θ, λ)."""
        F = conditioned.leave_one_out()
        n = F.shape[-2]
        calibration = calibrate(F, conditioned.Y, self.penalty)
        loss = -(smoothed(conditioned.Y) * calibration.log_probabilities(F)).sum((-2, -1)) / n
        return loss + 0.5 * self.penalty / n * calibration.offset.square().sum(-1)

    def __repr__(self) -> str:
        return f"CalibratedLeaveOneOutRisk(penalty={self.penalty:g})"
