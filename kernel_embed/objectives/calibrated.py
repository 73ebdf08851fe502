r"""The leave-one-out risk of calibrated probabilities: the default objective.

Decision probabilities :math:`f` are least-squares estimates, which may leave [0, 1]. The probabilities reported in the
end are a softmax of them on two scales, their own and the logarithmic one,

.. math::  p(x) = \operatorname{softmax}\big( a h + a' g(h) + b \big), \qquad
           h = \tfrac12 + \tanh(f(x) - \tfrac12), \quad
           g(h) = \log \operatorname{softplus}(h / \epsilon), \; \epsilon = 0.1,

with :math:`a, a' \ge 0` and class offsets :math:`b` fitted on leave-one-out values, which need no held-out data. Where
:math:`f` are probabilities of two classes, none below 0.2, :math:`a' = 1` returns them to within 0.02; with more
classes it flattens them (0.95 of ten becomes 0.525), and a larger :math:`a'` makes up for it. :math:`h` keeps a value
of :math:`f` far outside [0, 1], where nothing was learned, from being taken for certainty. The objective is the
cross-entropy reached,

.. math::  q(\theta, \lambda) = \min_{a, a', b} \; -\frac1n \sum_{i, c} T_{ic} \log p_c(f_{-i}(x_i)) +
           \frac{\kappa}{2n} \lVert b \rVert^2 , \qquad T = \frac{nY + 1}{n + m} .

The targets T are the one-hot labels with one more imagined observation of each class, Laplace's rule; without it
:math:`a` would grow without limit on data that are separated perfectly. The problem is convex in (a, a', b) and solved
by Newton's method at every evaluation; at the minimum the derivative for (θ, λ) is that of the sum alone (envelope
theorem). There is no clip, so every point has a gradient.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor
from torch.nn.functional import softplus

from ..embeddings import ConditionedMulticlass
from ..validation import check_finite, check_number, check_tensor
from .base import Objective
from .risk import require_classes

EPSILON = 0.1
NEWTON_STEPS = 50
HELD_AT_ZERO = 1e8
SMALLEST_PENALTY = 1e-12
"""Below it the offsets are not determined: the cross-entropy does not change when all of them rise together."""


@dataclasses.dataclass(frozen=True)
class SoftmaxCalibration:
    """p = softmax(a h + a' g(h) + b): ``scales`` (a, a') of shape ``(*batch, 2)``, ``offset`` b ``(*batch, m)``."""

    scales: Tensor
    offset: Tensor

    def log_probabilities(self, F: Tensor) -> Tensor:
        """log p for decision probabilities ``F`` of shape ``(*batch, n, m)``."""
        a, a_log = self.scales[..., 0, None, None], self.scales[..., 1, None, None]
        h = saturated(F)
        return (a * h + a_log * log_scale(h) + self.offset.unsqueeze(-2)).log_softmax(dim=-1)

    def probabilities(self, F: Tensor) -> Tensor:
        """p for decision probabilities ``F``."""
        return self.log_probabilities(F).exp()


def saturated(F: Tensor) -> Tensor:
    """h = ½ + tanh(f − ½): nearly f inside [0, 1], and between −½ and 3⁄2 everywhere."""
    return 0.5 + torch.tanh(F - 0.5)


def log_scale(h: Tensor) -> Tensor:
    """g(h) = log softplus(h/ε): the logarithm for h well above ε, linear for negative h."""
    return softplus(h / EPSILON).log()


def smoothed(Y: Tensor) -> Tensor:
    """T = (nY + 1) / (n + m), Laplace's rule for one-hot labels ``Y`` of shape ``(n, m)``."""
    n, m = Y.shape[-2:]
    return (n * Y + 1.0) / (n + m)


def calibrate(F: Tensor, Y: Tensor, penalty: float = 1.0) -> SoftmaxCalibration:
    """The (a, a', b) that minimise q above for decision probabilities ``F`` ``(*batch, n, m)`` and one-hot ``Y``.

    Newton's method with step halving on m + 2 numbers; a scale that would be negative is held at zero. ``F`` is not
    differentiated.

    Example:
        >>> F = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)
        >>> Y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        >>> calibrate(F, Y).probabilities(F).argmax(dim=-1)
        tensor([0, 0, 1, 1])
    """
    _check_calibration(F, Y, penalty)
    return _calibrate(F, Y.to(F), penalty)


def _check_calibration(F: Tensor, Y: Tensor, penalty: float) -> None:
    for name, values in (("F", F), ("Y", Y)):
        check_tensor(values, name)
        check_finite(values, name)
    if F.dim() < 2 or 0 in F.shape or not F.is_floating_point():
        raise ValueError(
            f"Expected F as decision probabilities of shape (*batch, n, m), got {tuple(F.shape)} in {F.dtype}. Give "
            "conditioned.leave_one_out()."
        )
    if Y.dim() != 2 or Y.shape != F.shape[-2:]:
        raise ValueError(
            f"Expected Y as one-hot labels of shape {tuple(F.shape[-2:])}, as F, got {tuple(Y.shape)}. Give "
            "conditioned.Y."
        )
    if not SMALLEST_PENALTY <= check_number("penalty", penalty) < math.inf:
        raise ValueError(
            f"Expected a positive, finite penalty of at least {SMALLEST_PENALTY:g}, got {penalty}. 1 is usual."
        )


def check_penalty(penalty: float) -> None:
    """Raise unless ``penalty`` is large enough for the offsets to be determined."""
    if not SMALLEST_PENALTY <= check_number("penalty", penalty) < math.inf:
        raise ValueError(
            f"Expected a positive, finite penalty, got {penalty}. 1 is usual, and {SMALLEST_PENALTY:g} the least."
        )


def _calibrate(F: Tensor, Y: Tensor, penalty: float) -> SoftmaxCalibration:
    n, m = F.shape[-2:]
    F, T = F.detach(), smoothed(Y.detach()).expand(F.shape)
    h = saturated(F)
    features = torch.stack([h, log_scale(h)], dim=-1)
    ridge = F.new_full((*F.shape[:-2], m + 2), penalty / n)
    ridge[..., :2] = torch.finfo(F.dtype).eps ** 0.5  # scales are hardly held back, but the Hessian stays regular
    u = F.new_zeros(ridge.shape)
    u, value = _newton(features, T, u, ridge)
    infeasible = (u[..., :2] < 0).any(-1)
    if bool(infeasible.any()):
        # Convex, with two bounds: the minimum is the lowest of those with a, a' or both held at zero that respect them.
        value = torch.where(infeasible, torch.inf, value)
        first = int((u[..., 1] < 0).sum() > (u[..., 0] < 0).sum())
        for held in ((first,), (1 - first,), (0, 1)):
            if not bool(_wants(features, T, u, ridge, infeasible, value).any()):
                break
            held_ridge = ridge.clone()
            held_ridge[..., list(held)] = HELD_AT_ZERO
            trial, trial_value = _newton(features, T, u.clamp_min(0.0), held_ridge)
            allowed = infeasible & (trial[..., :2] > -1e-6).all(-1) & (trial_value < value)
            u, value = torch.where(allowed.unsqueeze(-1), trial, u), torch.where(allowed, trial_value, value)
    return SoftmaxCalibration(u[..., :2].clamp_min(0.0), u[..., 2:])


def _wants(features: Tensor, T: Tensor, u: Tensor, ridge: Tensor, infeasible: Tensor, value: Tensor) -> Tensor:
    """Where the search over held scales has to go on: no point found yet, or one that a held scale would leave."""
    slope = _derivatives(features, T, u.clamp_min(0.0), ridge)[1][..., :2]
    return infeasible & (torch.isinf(value) | ((u[..., :2] < 1e-6) & (slope < -1e-9)).any(-1))


def _newton(features: Tensor, T: Tensor, u: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor]:
    """Minimise the penalised cross-entropy over u = (a, a', b) from ``u``; the minimiser and its value."""
    value, gradient, hessian = _derivatives(features, T, u, ridge)
    eps = torch.finfo(T.dtype).eps
    for _ in range(NEWTON_STEPS):
        step = torch.linalg.solve(hessian, gradient)
        decrement = (step * gradient).sum(-1)
        if not bool((decrement > max(1e-14, eps)).any()):
            break
        size = torch.ones_like(value)
        for _ in range(30):
            trial = u - size.unsqueeze(-1) * step
            new_value, new_gradient, new_hessian = _derivatives(features, T, trial, ridge)
            # Less than the rounding error of the value is no rise.
            worse = new_value > value - 1e-4 * size * decrement + 4.0 * eps * value.abs()
            if not bool(worse.any()):
                break
            size = torch.where(worse, 0.5 * size, size)
        u, value, gradient, hessian = trial, new_value, new_gradient, new_hessian
    return u, value


def _derivatives(features: Tensor, T: Tensor, u: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient and Hessian in u = (a, a', b); ``features`` is ``(*batch, n, m, 2)``."""
    n = T.shape[-2]
    log_p = ((features @ u[..., None, :2, None]).squeeze(-1) + u[..., None, 2:]).log_softmax(dim=-1)
    p = log_p.exp()
    value = -(T * log_p).sum((-2, -1)) / n + 0.5 * (ridge * u.square()).sum(-1)
    residual = p - T
    slope = (residual.unsqueeze(-1) * features).sum((-3, -2))
    gradient = torch.cat([slope, residual.sum(-2)], dim=-1) / n + ridge * u
    mean = (p.unsqueeze(-1) * features).sum(-2, keepdim=True)
    centred = p.unsqueeze(-1) * (features - mean)  # ∂p/∂(a, a')
    hessian = T.new_empty(*u.shape, u.shape[-1])
    hessian[..., :2, :2] = torch.einsum("...ncj,...nck->...jk", centred, features)
    hessian[..., 2:, :2] = centred.sum(-3)
    hessian[..., :2, 2:] = hessian[..., 2:, :2].mT
    hessian[..., 2:, 2:] = torch.diag_embed(p.sum(-2)) - p.mT @ p
    return value, gradient, hessian / n + torch.diag_embed(ridge)


class CalibratedLeaveOneOutRisk(Objective[ConditionedMulticlass]):
    """The cross-entropy of calibrated leave-one-out probabilities; see the module's text.

    Args:
        penalty: κ, the strength of the pull of the class offsets towards zero.

    Example:
        >>> import gpytorch, kernel_embed as ke
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
        F = bound.leave_one_out()
        n = F.shape[-2]
        calibration = _calibrate(F, bound.Y, self.penalty)
        loss = -(smoothed(bound.Y) * calibration.log_probabilities(F)).sum((-2, -1)) / n
        return loss + 0.5 * self.penalty / n * calibration.offset.square().sum(-1)

    def __repr__(self) -> str:
        return f"CalibratedLeaveOneOutRisk(penalty={self.penalty:g})"
