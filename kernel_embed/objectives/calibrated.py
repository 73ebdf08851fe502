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
           \frac{\kappa}{2n} \lVert b \rVert^2 , \qquad T = \frac{nY + 1/m}{n + 1} .

The targets T are the one-hot labels with one more imagined observation, shared by all classes; without it
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
from ..validation import check_finite, check_number, check_tensor, check_weights
from .base import Objective
from .risk import require_classes

EPSILON = 0.1
NEWTON_STEPS = 50
SCALE_RIDGE = math.sqrt(torch.finfo(torch.float64).eps)
"""Scales are hardly held back, but the Hessian stays regular."""
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


def smoothed(Y: Tensor, n: float) -> Tensor:
    """T = (nY + 1/m) / (n + 1), Perks's rule for one-hot or soft labels ``Y`` ``(…, m)`` of n rows."""
    return (n * Y + 1.0 / Y.shape[-1]) / (n + 1.0)


def calibrate(F: Tensor, Y: Tensor, penalty: float = 1.0, weights: Tensor | None = None) -> SoftmaxCalibration:
    """The (a, a', b) that minimize q above for decision probabilities ``F`` ``(*batch, n, m)`` and one-hot ``Y``.

    Newton's method with step halving on m + 2 numbers; a scale that would be negative is held at zero. ``F`` is not
    differentiated. ``weights`` ``(n,)`` say how many rows each row stands for.

    Example:
        >>> F = torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9], [0.5, 0.5]], dtype=torch.float64)
        >>> Y = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
        >>> calibrate(F, Y).probabilities(F).argmax(dim=-1)
        tensor([0, 0, 1, 1])
    """
    _check_calibration(F, Y, penalty)
    return _calibrate(F, Y.to(F), penalty, check_weights(F, weights))


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


def _calibrate(F: Tensor, Y: Tensor, penalty: float, weights: Tensor | None = None) -> SoftmaxCalibration:
    m, n = F.shape[-1], F.shape[-2] if weights is None else float(weights.sum())
    dtype, F = F.dtype, F.detach().double()  # m + 2 numbers, whose digits the value of the objective needs
    T = smoothed(Y.detach().double(), n).expand(F.shape)
    share = F.new_full((F.shape[-2], 1), 1.0 / n) if weights is None else (weights.double() / n).unsqueeze(-1)
    h = saturated(F)
    features = torch.stack([h, log_scale(h)], dim=-1)
    ridge = F.new_full((*F.shape[:-2], m + 2), penalty / n)
    ridge[..., :2] = SCALE_RIDGE
    u = _newton(features, T, share, ridge).to(dtype)
    return SoftmaxCalibration(u[..., :2], u[..., 2:])


def _newton(features: Tensor, T: Tensor, share: Tensor, ridge: Tensor) -> Tensor:
    """The u = (a, a', b) that minimizes the penalized cross-entropy with a, a' ≥ 0, by projected Newton steps.

    A scale at zero that would go below is held there: its row and column of the Hessian become those of the identity.
    """
    u = torch.zeros_like(ridge)
    u[..., 1] = 1.0  # near probabilities of two classes
    value, gradient, hessian = _derivatives(features, T, share, u, ridge)
    eps = torch.finfo(T.dtype).eps
    for _ in range(NEWTON_STEPS):
        held = torch.zeros_like(u, dtype=torch.bool)
        held[..., :2] = (u[..., :2] <= 0) & (gradient[..., :2] > 0)
        free = gradient.masked_fill(held, 0.0)
        matrix = hessian.masked_fill(held.unsqueeze(-1) | held.unsqueeze(-2), 0.0) + torch.diag_embed(held.to(u))
        step = torch.linalg.solve(matrix, free)
        if not bool(((step * free).sum(-1) > max(1e-14, eps)).any()):
            u = u - step  # so near the minimum a full step squares the distance
            u[..., :2].clamp_min_(0.0)
            break
        size = torch.ones_like(value)
        for _ in range(30):
            trial = u - size.unsqueeze(-1) * step
            trial[..., :2].clamp_min_(0.0)
            new_value, new_gradient, new_hessian = _derivatives(features, T, share, trial, ridge)
            # Less than the rounding error of the value is no rise.
            worse = new_value > value - 1e-4 * (free * (u - trial)).sum(-1) + 4.0 * eps * value.abs()
            if not bool(worse.any()):
                break
            size = torch.where(worse, 0.5 * size, size)
        u, value, gradient, hessian = trial, new_value, new_gradient, new_hessian
    return u


def _derivatives(features: Tensor, T: Tensor, share: Tensor, u: Tensor, ridge: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Value, gradient and Hessian in u = (a, a', b), for ``features`` ``(*batch, n, m, 2)`` and w/Σw as ``share``."""
    log_p = ((features @ u[..., None, :2, None]).squeeze(-1) + u[..., None, 2:]).log_softmax(dim=-1)
    p = log_p.exp()
    value = -(share * T * log_p).sum((-2, -1)) + 0.5 * (ridge * u.square()).sum(-1)
    residual = share * (p - T)
    slope = (residual.unsqueeze(-1) * features).sum((-3, -2))
    gradient = torch.cat([slope, residual.sum(-2)], dim=-1) + ridge * u
    mean = (p.unsqueeze(-1) * features).sum(-2, keepdim=True)
    shared = share * p
    centred = shared.unsqueeze(-1) * (features - mean)  # w ∂p/∂(a, a')
    hessian = T.new_empty(*u.shape, u.shape[-1])
    hessian[..., :2, :2] = torch.einsum("...ncj,...nck->...jk", centred, features)
    hessian[..., 2:, :2] = centred.sum(-3)
    hessian[..., :2, 2:] = hessian[..., 2:, :2].mT
    hessian[..., 2:, 2:] = torch.diag_embed(shared.sum(-2)) - shared.mT @ p
    return value, gradient, hessian + torch.diag_embed(ridge)


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
        F, n = bound.leave_one_out(), bound.total_weight
        calibration = _calibrate(F, bound.Y, self.penalty, bound.row_weights)
        losses = -(smoothed(bound.Y, n) * calibration.log_probabilities(F)).sum(-1)
        penalty = self.penalty / n * calibration.offset.square().sum(-1)
        # All that was minimized, so that the envelope theorem holds to rounding.
        return bound.weighted_mean(losses) + 0.5 * (penalty + SCALE_RIDGE * calibration.scales.square().sum(-1))

    def __repr__(self) -> str:
        return f"CalibratedLeaveOneOutRisk(penalty={self.penalty:g})"
