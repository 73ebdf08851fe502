r"""From votes to probabilities: one temperature, fitted on held-out votes.

.. math::  p(c \mid x) = \frac{\exp a f_c(x)}{\sum_{c'} \exp a f_{c'}(x)} ,

with :math:`f_0 = 0` and :math:`f_1 = f` for two classes. Without an offset the most probable class is always the one
that wins the vote. Each label counts as :math:`1 - \varepsilon` of its class and :math:`\varepsilon` spread over all,
:math:`\varepsilon = 1 / (m + 2)`, after Platt, so that votes that separate the classes keep a finite :math:`a`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp, softmax

from .families import Array

SMALLEST, LARGEST = 1e-3, 1e4
"""Bounds of a; below the first, the votes say nothing."""


def logits(votes: Array) -> Array:
    """f_c(x) of every class, shape (n, number of classes), from votes of shape (n,) or (n, number of classes)."""
    return np.stack([np.zeros_like(votes), votes], axis=1) if votes.ndim == 1 else votes


def fit_temperature(votes: Array, codes: NDArray[np.int64]) -> float:
    """The a > 0 of least log loss on held-out votes.

    Example:
        >>> import numpy as np
        >>> a = fit_temperature(np.array([-1.0, -1.0, 1.0, 1.0, 1.0]), np.array([0, 0, 1, 1, 0]))
        >>> bool(0.5 < a < 2)
        True
    """
    f = logits(votes)
    m, num_classes = f.shape
    epsilon = 1.0 / (m + 2)
    targets = np.full((m, num_classes), epsilon / num_classes)
    targets[np.arange(m), codes] += 1.0 - epsilon
    linear = float((targets * f).sum())

    def loss(log_a: float) -> float:
        a = float(np.exp(log_a))
        return float(logsumexp(a * f, axis=1).sum() - a * linear)

    found = minimize_scalar(loss, bounds=(np.log(SMALLEST), np.log(LARGEST)), method="bounded")
    return float(np.exp(found.x))


def probabilities(votes: Array, a: float) -> Array:
    """p(c | x), shape (n, number of classes).

    Example:
        >>> import numpy as np
        >>> probabilities(np.array([0.0, np.log(3.0)]), 1.0).round(2).tolist()
        [[0.5, 0.5], [0.25, 0.75]]
    """
    return np.asarray(softmax(a * logits(votes), axis=1))


def deal_folds(codes: NDArray[np.int64], folds: int, seed: int | None) -> NDArray[np.int64]:
    """A fold for every point, the classes dealt out evenly.

    Example:
        >>> import numpy as np
        >>> deal_folds(np.array([0, 0, 0, 1, 1, 1]), 3, seed=0).tolist().count(0)
        2
    """
    rng = np.random.default_rng(seed)
    fold = np.zeros(len(codes), dtype=np.int64)
    dealt = 0
    for c in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == c))
        fold[members] = (np.arange(len(members)) + dealt) % folds
        dealt += len(members)
    return fold
