r"""Exact line searches on the rounded hinge: along a line its slope is piecewise linear.

With :math:`v = c + \sigma (1 - z)` and a step a along a direction with values h, the slope is
:math:`-h^\top \operatorname{clip}(v - a \sigma h, 0, \tfrac1m)` plus that of the penalty, whose squares add :math:`qa`.
"""

from __future__ import annotations

import numpy as np

from .families import Array


def minimum(rest: Array, step: Array, h: Array, penalty: float, top: float, ridge: float = 0.0) -> float:
    """The a at which hᵀ clip(rest − a·step, 0, top) = penalty · sign(a) + ridge · a, or 0 where no vote is wanted."""
    slope = float(h @ np.clip(rest, 0.0, top))
    if abs(slope) <= penalty:
        return 0.0
    return root(rest, step, h, penalty if slope > 0 else -penalty, top, ridge)


def root(rest: Array, step: Array, h: Array, target: float, top: float, ridge: float = 0.0) -> float:
    """The a at which hᵀ clip(rest − a·step, 0, top) − ridge · a = target, where step is a positive multiple of h.

    The left side falls with a, piecewise linearly. Newton's steps on one linear piece end in its root; a bracket keeps
    them from cycling between pieces.
    """
    a, low, high = 0.0, -np.inf, np.inf
    for _ in range(200):
        v = rest - a * step
        excess = float(h @ np.clip(v, 0.0, top)) - ridge * a - target
        low, high = (a, high) if excess > 0 else (low, a)
        if abs(excess) <= 1e-14 * abs(target) or high - low <= 1e-15 * abs(a):
            return a
        inside = (v > 0.0) & (v < top)
        curvature = float(h[inside] @ step[inside]) + ridge
        if curvature > 0 and low < a + excess / curvature < high:
            new = a + excess / curvature
        elif np.isfinite(low) and np.isfinite(high):
            new = 0.5 * (low + high)
        else:
            new = _end_of_piece(rest, step, top, a, forward=excess > 0)
        if new == a:
            return a
        a = new
    return a


def _end_of_piece(rest: Array, step: Array, top: float, a: float, forward: bool) -> float:
    """The end of a flat piece with no bracket in sight: the next a at which an entry enters or leaves [0, top]."""
    moving = step != 0.0
    breaks = np.concatenate([rest[moving] / step[moving], (rest[moving] - top) / step[moving]])
    ahead = breaks[breaks > a] if forward else breaks[breaks < a]
    if not len(ahead):
        return a
    return float(ahead.min() if forward else ahead.max())


def newton_direction(sigma: float, inner: Array, descent: Array, squares: Array) -> Array | None:
    """Newton's direction for several coefficients at once, or ``None`` where there is none.

    Args:
        sigma: σ, the curvature of the rounded corners.
        inner: the base functions as rows, at the points on a rounded corner.
        descent: minus the slope in each coefficient.
        squares: the curvature of each coefficient's penalty.
    """
    curvature = sigma * (inner**2).sum(axis=1) + squares
    curved = curvature > 0.0  # a function that is zero on every rounded corner has no Newton step
    if not curved.any():
        return None
    scale = np.sqrt(curvature[curved])
    hessian = sigma * (inner[curved] @ inner[curved].T) / np.outer(scale, scale)
    hessian.flat[:: len(scale) + 1] += 1e-10 + squares[curved] / curvature[curved]
    direction = np.zeros(len(inner))
    direction[curved] = np.linalg.solve(hessian, descent[curved] / scale) / scale
    return direction if np.isfinite(direction).all() else None
