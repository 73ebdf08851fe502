r"""q and ∂q/∂log θ for one radial kernel, λ and an outputscale, from one factorization.

.. math::
    A = \sigma^2 K + n\lambda I, \qquad V = A^{-1} Y, \quad P = \sigma^2 K V, \quad c = \operatorname{diag} A^{-1}

With :math:`B = A^{-1} (q_V + \sigma^2 K q_P)`, :math:`L = q_P - B` for risks, and for the evidence of m targets,

.. math::
    \frac{\partial q}{\partial (\sigma^2 K)} = \tfrac12 (L V^\top + V L^\top) - A^{-1} \operatorname{diag}(q_c) A^{-1}
    \quad \text{or} \quad \tfrac12 (m A^{-1} - V V^\top) ,

which is one product of n × n matrices for leave-one-out values, and none for the others. For the leave-one-out score,
with :math:`M = A^{-1} L A^{-1}` and derivatives a and g in diag M and c, it is :math:`-(X + X^\top)`,
:math:`X = A^{-1} (\operatorname{diag}(a) M + \tfrac12 \operatorname{diag}(g) A^{-1})`: two products.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ...embeddings import ConditionalEmbedding, MulticlassEmbedding
from ...linalg import DistanceForm
from ...objectives import ConditionalEvidence, LeaveOneOutScore, Objective, RademacherComplexity
from ..parameters import Vector
from .factor import Factor
from .gram import RadialGram
from .terms import TERMS, Answers

Parameters = dict[str, Vector]
"""Values θ by their role: ``lengthscale``, ``outputscale``, ``regularization``."""


class Slopes(NamedTuple):
    """A matrix whose symmetric part is ∂q/∂(σ²K), ∂q/∂η for the ridge η = nλ, and ∂q/∂log σ² at a given σ²K."""

    G: Vector
    ridge: float
    scale: float = 0.0


Evaluated: TypeAlias = "tuple[list[float], Slopes | None] | None"
"""Values of the terms, with slopes where they are asked for; ``None`` where the general road must decide."""


class ClosedObjective:
    """The terms of an objective, and their gradient, as functions of θ.

    Args:
        gram: K.
        Y: targets, ``(n, m)``.
        terms: of the objective, each with its coefficient.
    """

    def __init__(self, gram: RadialGram, Y: Tensor, terms: list[tuple[float, Objective[Any]]]) -> None:
        self._gram, self._Y = gram, np.asfortranarray(Y.numpy())
        n, m = Y.shape
        self._factor = Factor(n)
        self._coefficients = [coefficient for coefficient, _ in terms]
        self._objectives = [term for _, term in terms]
        self._asks_inverse = any(TERMS[type(term)].asks_inverse for _, term in terms if type(term) in TERMS)
        self._constant = 0.5 * n * m * math.log(2.0 * math.pi)
        self._calibration: Vector | None = None
        kind = type(terms[0][1])
        if kind is LeaveOneOutScore:
            self._form = DistanceForm(Y.squeeze(-1))
        self._evaluate = {ConditionalEvidence: self._evidence, LeaveOneOutScore: self._score}.get(
            kind, self._regression
        )

    def __call__(self, theta: Parameters, with_gradient: bool = True) -> tuple[list[float], Parameters] | None:
        """The terms and ∂q/∂log θ by role, of their sum; ``None`` where the general road must decide."""
        n, factor = len(self._Y), self._factor
        ridge = n * float(theta["regularization"][0])
        scale = float(theta["outputscale"][0]) if "outputscale" in theta else 1.0
        K = self._gram(theta["lengthscale"])
        if K is None:
            return None
        np.multiply(K, scale, out=factor.A.T)
        factor.diagonal += ridge
        if not factor.factorize():
            return None
        answer = self._evaluate(K, scale, with_gradient)
        if answer is None:
            return None
        values, slopes = answer
        if slopes is None:
            return values, {}
        gradient = {
            "regularization": np.array([ridge * slopes.ridge]),
            "lengthscale": scale * self._gram.gradient(slopes.G, theta["lengthscale"]),
        }
        if "outputscale" in theta:
            gradient["outputscale"] = np.array([scale * float(np.vdot(slopes.G, K)) + slopes.scale])
        return values, gradient

    def _evidence(self, K: Vector, scale: float, with_gradient: bool) -> Evaluated:
        factor = self._factor
        V = factor.solve(self._Y)
        m = V.shape[1]
        value = 0.5 * float(np.vdot(self._Y, V)) + 0.5 * m * factor.log_determinant() + self._constant
        values = [coefficient * value for coefficient in self._coefficients]
        if not with_gradient:
            return values, None
        half = 0.5 * sum(self._coefficients)
        G = factor.folded_inverse(half * m)
        ridge = float(G.diagonal().sum()) - half * float(np.vdot(V, V))
        G -= (half * V) @ V.T
        return values, Slopes(G, ridge)

    def _score(self, K: Vector, scale: float, with_gradient: bool) -> Evaluated:
        C, n = torch.from_numpy(self._factor.inverse()), len(K)
        M = C @ self._form.apply(C)
        c, forms = C.diagonal().numpy(), M.diagonal().numpy()
        squares = np.square(c)
        if not squares.min() > 0.0:
            return None
        scores = np.maximum(forms, 0.0) / squares
        value = float(scores.mean())
        values = [coefficient * value for coefficient in self._coefficients]
        if not with_gradient:
            return values, None
        share = sum(self._coefficients) / n
        a, g = share * (forms >= 0.0) / squares, -2.0 * share * scores / c
        X = M.mul_(torch.from_numpy(a).unsqueeze(-1)).addcmul_(C, torch.from_numpy(0.5 * g).unsqueeze(-1))
        X = C @ X
        G: Vector = (X + X.mT).neg_().numpy()
        return values, Slopes(G, float(G.diagonal().sum()))

    def _regression(self, K: Vector, scale: float, with_gradient: bool) -> Evaluated:
        factor, n = self._factor, len(K)
        V = factor.solve(self._Y)
        P = K @ V
        P *= scale
        inverse = factor.inverse() if self._asks_inverse else None
        c = np.ones(n) if inverse is None else inverse.diagonal()
        at = Answers(self._Y, V, P, c, scale, np.zeros_like(V), np.zeros_like(V), np.zeros(n))
        at.calibration = self._calibration
        values = [
            TERMS[type(objective)].add(objective, at, coefficient)
            for objective, coefficient in zip(self._objectives, self._coefficients, strict=True)
        ]
        self._calibration = at.calibration
        if not with_gradient:
            return values, None
        B = factor.solve(at.slope_V + scale * (K @ at.slope_P))
        L = 0.5 * (at.slope_P - B)
        G = np.concatenate([L, V], axis=1) @ np.concatenate([V, L], axis=1).T
        ridge = -float(np.vdot(B, V))
        if inverse is not None:
            # −A⁻¹ diag(g) A⁻¹, without the rows of which g is zero: losses have flat parts.
            rows = np.flatnonzero(at.slope_c)
            some = inverse[rows] if len(rows) < n else inverse
            scaled = some * at.slope_c[rows][:, None]
            ridge -= float(np.vdot(some, scaled))
            torch.from_numpy(G).addmm_(torch.from_numpy(some).mT, torch.from_numpy(scaled), alpha=-1.0)
        return values, Slopes(G, ridge, at.slope_scale)


def closed_objective(
    objective: Objective[Any], embedding: ConditionalEmbedding, gram: RadialGram, Y: Tensor
) -> ClosedObjective | None:
    """``objective`` of an ``embedding`` with targets ``Y``; ``None`` where a term of it has no closed form."""
    terms = list(objective.terms())
    kinds = {type(term) for _, term in terms}
    if kinds == {LeaveOneOutScore}:
        # The CRPS of real targets, whose form is never formed.
        plain = type(embedding) is ConditionalEmbedding and embedding.target_kernel is None and Y.shape[1] == 1
        known = plain and all(isinstance(term, LeaveOneOutScore) and term.is_crps for _, term in terms)
    elif kinds == {ConditionalEvidence}:
        known = True
    else:
        known = kinds <= set(TERMS) and type(embedding) is MulticlassEmbedding
        # α² is the outputscale unless the user knows better.
        known = known and (embedding.sup_diagonal_bound is None or RademacherComplexity not in kinds)
    return ClosedObjective(gram, Y, terms) if known else None
