r"""A logarithmic pool of several classifiers, fitted as one convex problem.

.. math::  p(x) = \operatorname{softmax}\Big( \sum_k \omega_k \log p_k(x) + b \Big), \qquad \omega \ge 0

with weights that minimize the out-of-sample cross-entropy of the members,

.. math::  \min_{\omega \ge 0,\, b} \; -\frac1n \sum_{i, c} T_{ic} \log p_c(x_i) +
           \frac{\kappa K}{2n} \lVert \omega - \tfrac1K \mathbf 1 \rVert^2 + \frac{1}{2n} \lVert b \rVert^2 .

The second term pulls towards the geometric mean of the members, with the weight of about one observation.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from ..embeddings.calibration import SCALE_RIDGE, as_array, smoothed
from ..softmax import SoftmaxScaling
from ..validation import check_at_least, check_finite, check_tensor

PULL = 0.3  # κ, chosen on the development tables


@dataclasses.dataclass(frozen=True)
class LogarithmicPool:
    """A logarithmic pool.

    Attributes:
        weights: ω, ``(K,)``.
        offset: b, ``(m,)``.

    Example:
        >>> LogarithmicPool(torch.ones(1), torch.zeros(2)).log_probabilities(torch.tensor([[[0.9, 0.1]]]).log()).exp()
        tensor([[0.9000, 0.1000]])
    """

    weights: Tensor
    offset: Tensor

    def log_probabilities(self, log_p: Tensor) -> Tensor:
        """log p from those of the members, ``(K, n, m)``: ``(n, m)``."""
        return (torch.einsum("k,knm->nm", self.weights, log_p) + self.offset).log_softmax(dim=-1)


def pool(log_p: Tensor, Y: Tensor, pull: float = PULL, weights: Tensor | None = None) -> LogarithmicPool:
    """The pool of K members by their probabilities for n rows.

    Args:
        log_p: log probabilities out of sample, such as leave-one-out values, ``(K, n, m)``.
        Y: one-hot or soft labels, ``(n, m)``.
        pull: κ.
        weights: how many rows each row stands for, ``(n,)``.

    Raises:
        ValueError: if the shapes are others, a value is not finite, or ``pull`` is negative.

    Example:
        >>> Y = torch.eye(2, dtype=torch.float64).repeat(50, 1)
        >>> pool(torch.stack([0.8 * Y + 0.1, 0.9 - 0.8 * Y]).log(), Y).weights > 0.05      # right and wrong
        tensor([ True, False])
    """
    check_tensor(log_p, "log_p")
    check_tensor(Y, "Y")
    check_at_least(0.0, pull=pull)
    if log_p.dim() != 3 or Y.shape != log_p.shape[1:] or log_p.numel() == 0:
        shapes = f"{tuple(log_p.shape)} and {tuple(Y.shape)}"
        raise ValueError(f"Expected log_p of shape (K, n, m) and Y of shape (n, m), got {shapes}.")
    check_finite(log_p, "log_p")
    check_finite(Y, "Y")
    K, n, m = log_p.shape
    total = float(n if weights is None else weights.sum())
    share = np.full(n, 1.0 / total) if weights is None else as_array(weights) / total
    ridge, center = np.full(K + m, 1.0 / total), np.zeros(K + m)
    ridge[:K], center[:K] = max(pull * K / total, SCALE_RIDGE), 1.0 / K
    T = as_array(smoothed(Y.detach().double(), total).mT)
    solution = log_p.new_tensor(SoftmaxScaling(as_array(log_p.mT), T, share, ridge, center).minimize(center))
    return LogarithmicPool(solution[:K], solution[K:])
