r"""The convex solve behind a calibration: two scales and one offset for each class.

.. math::
    \min_{a, a' \ge 0,\, b} \; -\sum_{i, c} s_i T_{ic} \log p_c(x_i) + \tfrac12 u^\top \operatorname{diag}(r) u, \qquad
    p = \operatorname{softmax}(a h + a' g + b), \quad u = (a, a', b)

It is solved at every evaluation of the default objective, for a few hundred rows and m + 2 numbers: too small for the
overhead of tensors, so that it works on NumPy arrays, with classes before rows: ``(*batch, m, n)``.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEWTON_STEPS = 50
HALVINGS = 30
DECREMENT = 1e-14
"""Twice what a full Newton step would still gain, below which it is taken and the search ends."""


@dataclasses.dataclass(frozen=True)
class Scaling:
    """One such problem, or a batch of them.

    Attributes:
        X: h and g, ``(*batch, 2, m, n)``.
        T: the targets, ``(*batch, m, n)``.
        share: s, ``(n,)``.
        ridge: r, ``(*batch, m + 2)``.
    """

    X: Array
    T: Array
    share: Array
    ridge: Array

    def minimize(self, start: Array | None = None) -> Array:
        """u = (a, a', b) at the minimum, ``(*batch, m + 2)``, by projected Newton steps.

        A scale at zero that would go below is held there: its row and column of the Hessian become those of the
        identity.

        Args:
            start: such as the minimum of a problem nearby; by default near probabilities of two classes.
        """
        if start is None:
            u = np.zeros_like(self.ridge)
            u[..., 1] = 1.0
        else:
            u = start.copy()
        value, gradient, hessian = self.derivatives(u)
        for _ in range(NEWTON_STEPS):
            held = np.zeros(u.shape, dtype=bool)
            held[..., :2] = (u[..., :2] <= 0) & (gradient[..., :2] > 0)
            free = np.where(held, 0.0, gradient)
            if held.any():
                hessian = (
                    np.where(held[..., None, :] | held[..., :, None], 0.0, hessian) + held[..., None] * self._identity
                )
            step: Array = np.linalg.solve(hessian, free[..., None])[..., 0].astype(np.float64, copy=False)
            if not ((step * free).sum(-1) > DECREMENT).any():
                return _projected(u - step)  # so near the minimum a full step squares the distance
            u, value, gradient, hessian = self._search(u, value, free, step)
        return u

    def _search(self, u: Array, value: Array, free: Array, step: Array) -> tuple[Array, Array, Array, Array]:
        """The next point, with its value and derivatives: a full step, halved until it is better."""
        size = np.ones_like(value)
        rounding = 4.0 * np.finfo(np.float64).eps * np.abs(value)
        for _ in range(HALVINGS):
            trial = _projected(u - size[..., None] * step)
            found = self.derivatives(trial)
            # Less than the rounding error of the value is no rise.
            worse = found[0] > value - 1e-4 * (free * (u - trial)).sum(-1) + rounding
            if not worse.any():
                break
            size = np.where(worse, 0.5 * size, size)
        return trial, *found

    def derivatives(self, u: Array) -> tuple[Array, Array, Array]:
        """Value, gradient and Hessian in u."""
        *batch, m, n = self.T.shape
        flat = self.X.reshape(*batch, 2, m * n)
        logits = (u[..., None, :2] @ flat).reshape(self.T.shape) + u[..., 2:, None]
        logits -= logits.max(axis=-2, keepdims=True)
        p = np.exp(logits)
        total = p.sum(axis=-2, keepdims=True)
        p /= total
        logits -= np.log(total)  # log p
        shared, ridge = self.share * p, self.ridge
        value = -(self._shared_T * logits).sum((-2, -1)) + 0.5 * (ridge * u * u).sum(-1)
        residual = shared - self._shared_T
        slope = flat @ residual.reshape(*batch, m * n, 1)
        gradient = np.concatenate([slope[..., 0], residual.sum(-1)], axis=-1) + ridge * u
        p = p[..., None, :, :]
        D = shared[..., None, :, :] * (self.X - (p * self.X).sum(-2, keepdims=True))  # s ∂p/∂(a, a')
        hessian = ridge[..., None] * self._identity
        hessian[..., :2, :2] += D.reshape(flat.shape) @ np.swapaxes(flat, -1, -2)
        hessian[..., :2, 2:] = across = D.sum(-1)
        hessian[..., 2:, :2] = np.swapaxes(across, -1, -2)
        hessian[..., 2:, 2:] += shared.sum(-1)[..., None] * self._identity[2:, 2:]
        hessian[..., 2:, 2:] -= shared @ np.swapaxes(p[..., 0, :, :], -1, -2)
        return value, gradient, hessian

    @functools.cached_property
    def _shared_T(self) -> Array:
        shared: Array = self.share * self.T
        return shared

    @functools.cached_property
    def _identity(self) -> Array:
        return np.eye(self.ridge.shape[-1])


def _projected(u: Array) -> Array:
    """With scales that are not negative."""
    u[..., :2] = np.maximum(u[..., :2], 0.0)
    return u
