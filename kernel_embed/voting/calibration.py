r"""From votes to probabilities: one temperature, fitted on held-out votes.

.. math::  p(c \mid x) = \frac{\exp a f_c(x)}{\sum_{c'} \exp a f_{c'}(x)} ,

with :math:`f_0 = 0` and :math:`f_1 = f` for two classes. Without an offset the most probable class is always the one
that wins the vote. Each label counts as :math:`1 - \varepsilon` of its class and :math:`\varepsilon` spread over all,
:math:`\varepsilon = 1 / (m + 2)`, after Platt, so that votes that separate the classes keep a finite :math:`a`.

The other calibration of the package, :class:`kernel_embed.objectives.SoftmaxCalibration`, is for decision
probabilities: it has class offsets, which can change the winner, and flattens values far outside [0, 1], where most
votes are.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ..softmax import SoftmaxScaling
from .families import Array

SMALLEST, LARGEST = 1e-3, 1e4
"""Bounds of a; below the first, the votes say nothing."""

RIDGE = 1e-15
"""Keeps the curvature off zero where all votes are equal."""


def logits(votes: Array) -> Array:
    """f_c(x) of every class, shape (n, number of classes), from votes of shape (n,) or (n, number of classes)."""
    return np.stack([np.zeros_like(votes), votes], axis=1) if votes.ndim == 1 else votes


def fit_temperature(votes: Array, codes: NDArray[np.int64]) -> float:
    """The a > 0 of least log loss on held-out votes, between two bounds.

    Example:
        >>> import numpy as np
        >>> a = fit_temperature(np.array([-1.0, -1.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 0]))
        >>> bool(0.5 < a < 2)
        True
    """
    f = logits(votes)
    n, m = f.shape
    epsilon = 1.0 / (n + 2)
    targets = np.full((m, n), epsilon / m)
    targets[codes, np.arange(n)] += 1.0 - epsilon
    size = max(float(np.abs(f).max()), np.finfo(np.float64).tiny)  # about one unit of f
    bounds = SMALLEST * size, LARGEST * size
    problem = SoftmaxScaling(f.T[None] / size, targets, np.full(n, 1.0 / n), np.full(1, RIDGE), bounds=bounds)
    return float(np.clip(problem.minimize()[0] / size, SMALLEST, LARGEST))


def probabilities(votes: Array, a: float) -> Array:
    """p(c | x), shape (n, number of classes).

    Example:
        >>> import numpy as np
        >>> probabilities(np.array([0.0, np.log(3.0)]), 1.0).round(2).tolist()
        [[0.5, 0.5], [0.25, 0.75]]
    """
    return np.asarray(softmax(a * logits(votes), axis=1))
