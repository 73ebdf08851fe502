r"""Predictions of a fitted vote: labels ±1, the sparse sum of kernel functions, winners and probabilities.

With :math:`f_0 = 0` and :math:`f_1 = f` for two classes, probabilities need one inverse temperature a, fitted on
held-out votes:

.. math::  p(c \mid x) = \frac{\exp a f_c(x)}{\sum_{c'} \exp a f_{c'}(x)} .

Without an offset the most probable class is always the one that wins the vote. Each label counts as
:math:`1 - \varepsilon` of its class and :math:`\varepsilon` spread over all, :math:`\varepsilon = 1 / (m + 2)`, after
Platt, so that votes that separate the classes keep a finite :math:`a`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import softmax
from torch import Tensor

from ..softmax import SoftmaxScaling
from ..validation import check_dense
from .families import Array, KernelFamily, Points
from .problem import Votes

BATCH_SIZE = 4096  # points evaluated at a time, so that memory does not grow with the number of predictions
MIN_SCALE, MAX_SCALE = 1e-3, 1e4  # bounds of a; below the first, the votes carry no information
RIDGE = 1e-15  # keeps the curvature positive when all votes are equal


def check_classes(y: ArrayLike, num_points: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes of the labels ``y``, at least two, and the class number of each point."""
    if isinstance(y, Tensor):
        check_dense(y, "y")
        y = y.detach().cpu().numpy()
    labels = np.asarray(y)
    if labels.ndim != 1 or len(labels) != num_points:
        raise ValueError(f"y must be a vector of {num_points} labels, one per point; its shape is {labels.shape}.")
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y must have at least two classes; it has one class: {classes.tolist()}.")
    return classes, codes


def one_against_rest(codes: NDArray[np.int64], num_classes: int) -> list[Array]:
    """Labels ±1, one array per vote: a single vote for two classes, one per class against the rest for more."""
    targets = [1] if num_classes == 2 else range(num_classes)
    return [np.where(codes == target, 1.0, -1.0) for target in targets]


def winners(f: Array) -> NDArray[np.int64]:
    """The class with the most votes along the last dimension; a single vote is for class 1 if it is positive."""
    return (f[..., 0] > 0).astype(np.int64) if f.shape[-1] == 1 else f.argmax(axis=-1)


class SparseVote:
    """f(x) = Σ α_{k,j} K_k(x, x_j) for one or more sets of votes on the points ``x``; only those that vote are kept."""

    def __init__(self, family: KernelFamily, votes: Sequence[Votes], x: Points) -> None:
        self.family = family
        self.support: NDArray[np.int64] = np.unique(np.concatenate([part.point for part in votes]))
        x = family.points(x)
        if len(self.support) and self.support[-1] >= len(x):
            raise ValueError(f"The votes refer to point {self.support[-1]}, but x has only {len(x)} points.")
        self.points = x[self.support].copy()
        self.weights = np.zeros((len(family), len(self.support), len(votes)))
        """α of each kernel, point and output."""
        for c, part in enumerate(votes):
            self.weights[part.kernel, np.searchsorted(self.support, part.point), c] = part.weight

    def __call__(self, x: Points) -> Array:
        """f at every point of x, shape (n, number of outputs)."""
        x = self.family.points(x)
        f = np.zeros((len(x), self.weights.shape[2]))
        columns = [np.flatnonzero(weights.any(axis=1)) for weights in self.weights]
        for start in range(0, len(x), BATCH_SIZE):
            part = slice(start, start + BATCH_SIZE)
            matrices = self.family.matrices(x[part], self.points, columns)
            for K, weights, own in zip(matrices, self.weights, columns, strict=True):
                f[part] += K @ weights[own]
        return f


def fit_temperature(votes: Array, codes: NDArray[np.int64]) -> float:
    """The a > 0 with the lowest log loss on held-out votes, between two bounds."""
    f = _logits(votes)
    n, m = f.shape
    epsilon = 1.0 / (n + 2)
    targets = np.full((m, n), epsilon / m)
    targets[codes, np.arange(n)] += 1.0 - epsilon
    size = max(float(np.abs(f).max()), np.finfo(np.float64).tiny)  # about one unit of f
    bounds = MIN_SCALE * size, MAX_SCALE * size
    problem = SoftmaxScaling(f.T[None] / size, targets, np.full(n, 1.0 / n), np.full(1, RIDGE), bounds=bounds)
    return float(np.clip(problem.minimize()[0] / size, MIN_SCALE, MAX_SCALE))


def probabilities(votes: Array, a: float) -> Array:
    """p(c | x), shape (n, number of classes)."""
    return np.asarray(softmax(a * _logits(votes), axis=1))


def _logits(votes: Array) -> Array:
    """f_c(x), shape (n, number of classes), from votes of shape (n,) or (n, number of classes)."""
    return np.stack([np.zeros_like(votes), votes], axis=1) if votes.ndim == 1 else votes
