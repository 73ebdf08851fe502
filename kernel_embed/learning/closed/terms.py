r"""The usual objectives as functions of V = A⁻¹Y, P = KV and c = diag A⁻¹, with their derivatives in these.

.. math::
    \text{EmpiricalRisk} &: \; \tfrac1n \sum_i L_\epsilon(P_{i y_i}), \qquad
    \text{LeaveOneOutRisk} : \; \tfrac1n \sum_i L_\epsilon(F_{i y_i}), \quad F = Y - V / c, \\
    \text{RademacherComplexity} &: \; \tau \sigma \sqrt{\textstyle\sum V \circ P}, \\
    \text{CalibratedLeaveOneOutRisk} &: \; \partial q / \partial F = \tfrac1n (p - T) \circ (a + a' g'(h)) h'(F)
    \quad \text{by the envelope theorem.}
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ...embeddings.calibration import EPSILON, SCALE_RIDGE
from ...objectives import CalibratedLeaveOneOutRisk, EmpiricalRisk, LeaveOneOutRisk, Objective, RademacherComplexity
from ...objectives.risk import ClippedRisk
from ...softmax import SoftmaxScaling
from ..parameters import Vector


@dataclasses.dataclass
class Answers:
    """What a system answers, and the slopes of q in it, which terms add to.

    Attributes:
        Y: targets, ``(n, m)``.
        V: A⁻¹Y.
        P: KV.
        c: diag A⁻¹.
        scale: σ², the largest k(x, x).
        slope_V: ∂q/∂V so far, and so on; ``slope_scale`` in log σ².
        calibration: that of the evaluation before, from which the next one starts.
    """

    Y: Vector
    V: Vector
    P: Vector
    c: Vector
    scale: float
    slope_V: Vector
    slope_P: Vector
    slope_c: Vector
    slope_scale: float = 0.0
    calibration: Vector | None = None

    def left_out(self) -> Vector:
        """F = Y − V / c."""
        F: Vector = self.Y - self.V / self.c[:, None]
        return F

    def add_left_out(self, slope: Vector) -> None:
        """Add ∂q/∂F."""
        along = slope / self.c[:, None]
        self.slope_V -= along
        self.slope_c += (along * self.V).sum(1) / self.c


class Term(NamedTuple):
    """How an objective adds to q.

    Attributes:
        add: of an objective, answers and a coefficient: the value, its slopes added to those of the answers.
        asks_inverse: whether it needs c.
    """

    add: Callable[[Any, Answers, float], float]
    asks_inverse: bool


def _clipped(objective: ClippedRisk, F: Vector, Y: Vector, coefficient: float) -> tuple[float, Vector]:
    """c/n Σ Y ∘ L_ε(F), and its slope in F."""
    epsilon, share = objective.epsilon, coefficient / len(Y)
    held = np.minimum(np.maximum(F, epsilon), 1.0)
    loss, slope = -np.log(held), np.where(held == F, -1.0 / held, 0.0)
    if objective.below == "linear":
        loss = loss + np.maximum(epsilon - F, 0.0) / epsilon
        slope = slope - (epsilon >= F) / epsilon
    return share * float(np.vdot(Y, loss)), share * Y * slope


def _empirical(objective: EmpiricalRisk, at: Answers, coefficient: float) -> float:
    value, slope = _clipped(objective, at.P, at.Y, coefficient)
    at.slope_P += slope
    return value


def _leave_one_out(objective: LeaveOneOutRisk, at: Answers, coefficient: float) -> float:
    value, slope = _clipped(objective, at.left_out(), at.Y, coefficient)
    at.add_left_out(slope)
    return value


def _rademacher(objective: RademacherComplexity, at: Answers, coefficient: float) -> float:
    squared_norm, smallest = float(np.vdot(at.V, at.P)), float(np.finfo(np.float64).tiny)
    value = coefficient * objective.multiplier(len(at.Y)) * math.sqrt(at.scale * max(squared_norm, smallest))
    at.slope_scale += 0.5 * value
    if squared_norm >= smallest:
        half = 0.5 * value / squared_norm
        at.slope_V += half * at.P
        at.slope_P += half * at.V
    return value


def _calibrated(objective: CalibratedLeaveOneOutRisk, at: Answers, coefficient: float) -> float:
    F = at.left_out()
    n, m = F.shape
    # Classes before rows, as the solve has them.
    tangent = np.tanh(F.T - 0.5)
    h = 0.5 + tangent
    # softplus(h/ε), without overflow; its logarithm is g(h).
    soft = np.logaddexp(0.0, h / EPSILON)
    X = np.stack([h, np.log(soft)])
    T = (n * at.Y.T + 1.0 / m) / (n + 1.0)
    ridge: Vector = np.full(m + 2, objective.penalty / n)
    ridge[:2] = SCALE_RIDGE
    u = at.calibration = SoftmaxScaling(X, T, np.full(n, 1.0 / n), ridge).minimize(at.calibration)
    logits = u[0] * h + u[1] * X[1] + u[2:, None]
    logits -= logits.max(0)
    p = np.exp(logits)
    total = p.sum(0)
    p /= total
    value = -float(np.vdot(T, logits - np.log(total))) / n + 0.5 * float(ridge @ (u * u))
    # g′(h) = sigmoid(h/ε) / (ε softplus(h/ε)), and sigmoid = 1 − e^(−softplus)
    along = u[0] - u[1] * np.expm1(-soft) / (EPSILON * soft)
    slope = (p - T) * along * (1.0 - tangent * tangent)
    at.add_left_out((coefficient / n) * slope.T)
    return coefficient * float(value)


TERMS: dict[type[Objective[Any]], Term] = {
    EmpiricalRisk: Term(_empirical, False),
    LeaveOneOutRisk: Term(_leave_one_out, True),
    RademacherComplexity: Term(_rademacher, False),
    CalibratedLeaveOneOutRisk: Term(_calibrated, True),
}
