r"""The leave-one-out risk of calibrated probabilities: the default objective.

The reported probabilities are :math:`p = \operatorname{softmax}(a h + a' g(h) + b)` of
:mod:`kernel_embed.embeddings.calibration`, fitted on leave-one-out values. The objective is the cross-entropy reached,

.. math::  q(\theta, \lambda) = \min_{a, a' \ge 0,\, b} \; -\frac1n \sum_{i, c} T_{ic} \log p_c(f_{-i}(x_i)) +
           \frac{\kappa}{2n} \lVert b \rVert^2 , \qquad T = \frac{nY + 1/m}{n + 1} .

The problem is convex and solved by Newton's method at every evaluation; at the minimum the derivative with respect to
(θ, λ) is that of the sum alone (envelope theorem). There is no clip, so every point has a gradient.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ..embeddings.calibration import EPSILON, SCALE_RIDGE, as_array, check_penalty, smoothed
from ..softmax import SoftmaxScaling
from .base import Array, Targets
from .risk import ClassObjective


class CalibratedLeaveOneOutRisk(ClassObjective):
    """The cross-entropy of calibrated leave-one-out probabilities.

    Args:
        penalty: κ, the weight of the penalty on class offsets.

    Raises:
        ValueError: if ``penalty`` is not positive and finite.

    Example:
        >>> import gpytorch, kernel_embed as ke
        >>> x, embedding = torch.tensor([[0.0], [9.0]]), ke.MulticlassEmbedding(gpytorch.kernels.RBFKernel(), 2)
        >>> round(CalibratedLeaveOneOutRisk()(embedding, x, torch.tensor([0, 1])).item(), 4)      # log 2
        0.6931
    """

    inputs = ("leave_one_out",)
    _settings = ("penalty",)

    def __init__(self, penalty: float = 1.0) -> None:
        check_penalty(penalty)
        self.penalty = penalty

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """q, and ∂q/∂F = (1/n) (p − T) ∘ (a + a′ g′(h)) h′(F) by the envelope theorem."""
        (F,), xp, share = inputs, data.xp, data.share
        # Classes before rows, as in the inner solver; h/ε is at most 15, so that the exponential is finite.
        tangent = xp.tanh(F.swapaxes(-1, -2) - 0.5)
        h = 0.5 + tangent
        soft = xp.log1p(xp.exp(h / EPSILON))
        g = xp.log(soft)
        T = smoothed(data.Y, data.num_data).swapaxes(-1, -2)
        u, ridge = self._calibration(data, xp.stack([h, g], -3), T)
        a, a_log, b = u[..., 0, None, None], u[..., 1, None, None], u[..., 2:, None]
        logits = a * h + a_log * g + b
        logits = logits - xp.amax(logits, axis=-2, keepdims=True)
        p = xp.exp(logits)
        total = p.sum(-2)[..., None, :]
        p = p / total
        value = -data.inner(share * T, logits - xp.log(total)) + 0.5 * (ridge * u * u).sum(-1)
        # g′(h) = sigmoid(h/ε) / (ε softplus(h/ε)), and sigmoid = 1 − e^(−softplus)
        along = a - a_log * xp.expm1(-soft) / (EPSILON * soft)
        slope = share * (p - T) * along * (1.0 - tangent * tangent)
        return value, (slope.swapaxes(-1, -2),)

    def _calibration(self, data: Targets, X: Array, T: Array) -> tuple[Array, Array]:
        """u = (a, a', b) at the minimum and the ridge on it, in the kind of array of ``X``."""
        *batch, _, m, n = X.shape
        ridge = np.full((*batch, m + 2), self.penalty / data.num_data)
        ridge[..., :2] = SCALE_RIDGE
        share = np.broadcast_to(as_array(data.share), (n,))
        targets = np.broadcast_to(as_array(T), (*batch, m, n))
        solver = SoftmaxScaling(as_array(X), targets, share, ridge)
        u = data.cache["calibration"] = solver.minimize(data.cache.get("calibration"))
        if not isinstance(X, Tensor):
            return u, ridge
        at, penalties = X.new_tensor(u), X.new_tensor(ridge)
        return (_implicit(at, penalties, X, T, data.share) if X.requires_grad else at), penalties


def _implicit(u: Tensor, ridge: Tensor, X: Tensor, T: Tensor, share: Tensor | float) -> Tensor:
    """u with its derivatives in X, those of one Newton step at the minimum: ∂u = −H⁻¹ ∂(∂q/∂u)."""
    m = T.shape[-2]
    offsets = torch.eye(m, dtype=X.dtype, device=X.device).unsqueeze(-1).expand(m, m, X.shape[-1])
    # Φ, (*batch, m + 2, m, n): the two scales and the offsets as functions of class and row
    Phi = torch.cat([X, offsets.expand(*X.shape[:-3], m, m, X.shape[-1])], dim=-3)
    p = torch.einsum("...k,...kcn->...cn", u, Phi).softmax(-2)
    slope = torch.einsum("...kcn,...cn->...k", Phi, share * (p - T)) + ridge * u
    with torch.no_grad():
        centered = Phi - (p.unsqueeze(-3) * Phi).sum(-2, keepdim=True)
        H = torch.einsum("...kcn,...cn,...lcn->...kl", centered, share * p, centered) + torch.diag_embed(ridge)
        free = torch.ones_like(u)
        free[..., :2] = (u[..., :2] > 0.0).to(u)  # a scale at its bound stays there
        H = H * free.unsqueeze(-1) * free.unsqueeze(-2) + torch.diag_embed(1.0 - free)
    step: Tensor = torch.linalg.solve(H, (free * slope).unsqueeze(-1)).squeeze(-1)
    return u - step
