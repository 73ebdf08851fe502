r"""Softmax regression with a ridge: the convex problem behind calibration, pooling and logistic regression.

.. math::
    \min_u \; -\sum_{i, c} s_i T_{ic} \log p_c(x_i) + \tfrac12 (u - u_0)^\top \operatorname{diag}(r) (u - u_0), \qquad
    p = \operatorname{softmax}(F(u)), \quad F \text{ linear in } u .

:class:`SoftmaxScaling` has a few numbers: scales shared by all classes and an offset for each class,
:math:`F = \sum_k a_k X_k + b`. Newton's method solves it. :func:`softmax_regression` has a matrix of them,
:math:`F = ZB`, which L-BFGS finds. Both are too small for the overhead of tensors and work on NumPy arrays.
"""

from __future__ import annotations

import dataclasses
import functools
import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

NEWTON_STEPS, HALVINGS = 50, 30
DECREMENT = 1e-14  # Newton decrement below which one more full step is taken and the search ends


def log_softmax_(F: Array, axis: int) -> tuple[Array, Array]:
    """log p and p for p = softmax(F) along ``axis``; ``F`` is overwritten."""
    F -= F.max(axis=axis, keepdims=True)
    p: Array = np.exp(F)
    total = p.sum(axis=axis, keepdims=True)
    p /= total
    F -= np.log(total)
    return F, p


@dataclasses.dataclass(frozen=True)
class SoftmaxScaling:
    """softmax(Σ_k a_k X_k + b) with scales a inside ``bounds``, for one problem or a batch; u = (a, b)."""

    X: Array  # the q scaled matrices, (*batch, q, m, n), classes before rows
    T: Array  # targets, (*batch, m, n)
    share: Array  # s, the weights of the rows, (n,)
    ridge: Array  # r, (*batch, q + m); of length q for a model without offsets
    center: Array | float = 0.0  # u₀, to which the ridge pulls
    bounds: tuple[float, float] = (0.0, math.inf)

    def minimize(self, start: Array | None = None) -> Array:
        """u at the minimum, of the shape of ``ridge``, by projected Newton steps from ``start``.

        By default the last scale is one and the rest is zero. A scale at a bound that would leave it stays there: its
        row and column of the Hessian become those of the identity.
        """
        q, (low, high) = self.X.shape[-3], self.bounds
        if start is None:
            start = np.zeros_like(self.ridge)
            start[..., q - 1] = 1.0
        u = self._projected(start.copy())
        value, gradient, hessian = self.derivatives(u)
        for _ in range(NEWTON_STEPS):
            fixed = np.zeros(u.shape, dtype=bool)
            a, slope = u[..., :q], gradient[..., :q]
            fixed[..., :q] = ((a <= low) & (slope > 0)) | ((a >= high) & (slope < 0))
            free = np.where(fixed, 0.0, gradient)
            if fixed.any():
                either = fixed[..., None, :] | fixed[..., :, None]
                hessian = np.where(either, 0.0, hessian) + fixed[..., None] * self._identity
            step: Array = np.linalg.solve(hessian, free[..., None])[..., 0].astype(np.float64, copy=False)
            if not ((step * free).sum(-1) > DECREMENT).any():
                return self._projected(u - step)  # so near the minimum a full step squares the distance
            u, value, gradient, hessian = self._search(u, value, free, step)
        return u

    def _search(self, u: Array, value: Array, free: Array, step: Array) -> tuple[Array, ...]:
        """The next point with its value and derivatives: a full step, halved until the value falls."""
        size = np.ones_like(value)
        rounding = 4.0 * np.finfo(np.float64).eps * np.abs(value)
        for _ in range(HALVINGS):
            trial = self._projected(u - size[..., None] * step)
            derivatives = self.derivatives(trial)
            # An increase below the rounding error of the value does not count.
            worse = derivatives[0] > value - 1e-4 * (free * (u - trial)).sum(-1) + rounding
            if not worse.any():
                break
            size = np.where(worse, 0.5 * size, size)
        return trial, *derivatives

    def derivatives(self, u: Array) -> tuple[Array, Array, Array]:
        """Value, gradient and Hessian."""
        *batch, q, m, n = self.X.shape
        has_offsets = u.shape[-1] > q
        flat = self.X.reshape(*batch, q, m * n)
        F = (u[..., None, :q] @ flat).reshape(self.T.shape)
        if has_offsets:
            F += u[..., q:, None]
        log_p, p = log_softmax_(F, -2)
        shared, shared_T, gradient = self.share * p, self._shared_T, self.ridge * (u - self.center)
        value = -(shared_T * log_p).sum((-2, -1)) + 0.5 * (gradient * (u - self.center)).sum(-1)
        residual = shared - shared_T
        gradient[..., :q] += (flat @ residual.reshape(*batch, m * n, 1))[..., 0]
        D = shared[..., None, :, :] * (self.X - (p[..., None, :, :] * self.X).sum(-2, keepdims=True))  # s ∂p/∂a
        hessian = self.ridge[..., None] * self._identity
        hessian[..., :q, :q] += D.reshape(flat.shape) @ np.swapaxes(flat, -1, -2)
        if has_offsets:
            gradient[..., q:] += residual.sum(-1)
            hessian[..., :q, q:] = across = D.sum(-1)
            hessian[..., q:, :q] = np.swapaxes(across, -1, -2)
            hessian[..., q:, q:] += shared.sum(-1)[..., None] * self._identity[q:, q:]
            hessian[..., q:, q:] -= shared @ np.swapaxes(p, -1, -2)
        return value, gradient, hessian

    def _projected(self, u: Array) -> Array:
        q = self.X.shape[-3]
        u[..., :q] = np.clip(u[..., :q], *self.bounds)
        return u

    @functools.cached_property
    def _shared_T(self) -> Array:
        return np.multiply(self.share, self.T)

    @functools.cached_property
    def _identity(self) -> Array:
        return np.eye(self.ridge.shape[-1])


def softmax_regression(Z: Array, Y: Array, W: Array, ridge: float, start: Array, tolerance: float = 1e-7) -> Array:
    """B of F = ZB for several fits at once, with one ridge and weights of the rows that differ: ``(q, p, m)``.

    Features ``Z`` are ``(n, p)``, labels ``Y`` ``(n, m)``, weights ``W`` ``(q, n)``: zero leaves a row out. L-BFGS
    starts at ``start``, such as the solution for another ridge, in coordinates whose curvature is about one.
    """
    from scipy.linalg import solve_triangular  # loaded when used
    from scipy.optimize import minimize

    q, p, m = start.shape
    w = W.max(0)
    # M = LLᵀ is above the Hessian of every fit; B = L⁻ᵀU
    L = np.linalg.cholesky(0.5 * (Z.T * w) @ Z + ridge * np.eye(p))
    inverse = solve_triangular(L, np.eye(p), lower=True)
    X, A = inverse @ Z.T, ridge * inverse @ inverse.T
    T, total = Y.T[:, None, :], w.sum()

    def loss(u: Array) -> tuple[float, Array]:
        U = u.reshape(m * q, p)
        log_p, probabilities = log_softmax_((U @ X).reshape(m, q, -1), 0)
        residual = W * (probabilities - T)
        pull = U @ A
        value = 0.5 * float((U * pull).sum()) - float((W * (T * log_p).sum(0)).sum())
        gradient: Array = residual.reshape(m * q, -1) @ X.T + pull
        return value / total, gradient.ravel() / total

    first = np.ascontiguousarray((start.transpose(2, 0, 1).reshape(m * q, p) @ L).ravel())
    options = {"maxiter": 300, "ftol": tolerance, "gtol": 1e-9}
    u = minimize(loss, first, jac=True, method="L-BFGS-B", options=options).x
    B: Array = (u.reshape(m * q, p) @ inverse).reshape(m, q, p).transpose(1, 2, 0)
    return B
