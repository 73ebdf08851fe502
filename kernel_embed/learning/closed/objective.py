r"""q and ∂q/∂log θ for one radial kernel, λ and an outputscale, from one factorization.

.. math::
    A = \sigma^2 K + n\lambda I, \qquad V = A^{-1} Y, \quad P = \sigma^2 K V, \quad c = \operatorname{diag} A^{-1}

With :math:`B = A^{-1} (q_V + \sigma^2 K q_P)`, :math:`L = q_P - B` for risks, and for the evidence of m targets,

.. math::
    \frac{\partial q}{\partial (\sigma^2 K)} = \tfrac12 (L V^\top + V L^\top) - A^{-1} \operatorname{diag}(q_c) A^{-1}
    \quad \text{or} \quad \tfrac12 (m A^{-1} - V V^\top) ,

of which one triangle is formed, by symmetric updates: products of n × n matrices at half their cost.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...objectives import ConditionalEvidence, Objective
from ..parameters import Vector
from .factor import Factor
from .gram import RadialGram
from .terms import TERMS, Answers, Term

Parameters = dict[str, Vector]
"""Values θ by their role: ``lengthscale``, ``outputscale``, ``regularization``."""


class ClosedObjective:
    """The terms of an objective, and their gradient, as functions of θ.

    Args:
        gram: K.
        Y: targets, ``(n, m)``.
        terms: of the objective, each with its coefficient.
    """

    def __init__(self, gram: RadialGram, Y: Tensor, terms: list[tuple[float, Objective[Any]]]) -> None:
        from scipy.linalg import blas

        self._blas, self._gram, self._Y = blas, gram, np.asfortranarray(Y.numpy())
        n, m = Y.shape
        self._factor, self._G = Factor(n), np.zeros((n, n), order="F")
        self._is_evidence = type(terms[0][1]) is ConditionalEvidence
        self._coefficients = [coefficient for coefficient, _ in terms]
        self._terms: list[tuple[Term, Objective[Any]]] = []
        self._asks_inverse = False
        if not self._is_evidence:
            self._terms = [(TERMS[type(term)][0], term) for _, term in terms]
            self._asks_inverse = any(TERMS[type(term)][1] for _, term in terms)
        self._constant = 0.5 * n * m * math.log(2.0 * math.pi)

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
        V = factor.solve(self._Y)
        slope_scale = 0.0
        if self._is_evidence:
            values, slope_ridge = self._evidence(V, with_gradient)
            G = factor.A
        else:
            values, slope_ridge, slope_scale = self._regression(K, scale, V, with_gradient)
            G = self._G
        if not with_gradient:
            return values, {}
        gradient = {
            "regularization": np.array([ridge * slope_ridge]),
            "lengthscale": scale * self._gram.gradient(G, theta["lengthscale"]),
        }
        if "outputscale" in theta:
            along = 2.0 * float(np.vdot(G.T, K)) - float(np.vdot(G.diagonal(), K.diagonal()))
            gradient["outputscale"] = np.array([scale * along + slope_scale])
        return values, gradient

    def _evidence(self, V: Vector, with_gradient: bool) -> tuple[list[float], float]:
        """The values, and ∂q/∂η; the triangle of ∂q/∂(σ²K) stands in place of the factor."""
        m, factor = V.shape[1], self._factor
        value = 0.5 * float(np.vdot(self._Y, V)) + 0.5 * m * factor.log_determinant() + self._constant
        values = [coefficient * value for coefficient in self._coefficients]
        if not with_gradient:
            return values, 0.0
        half = 0.5 * sum(self._coefficients)
        factor.invert()
        self._blas.dsyrk(-half, V, beta=half * m, c=factor.A, lower=1, overwrite_c=1)
        return values, float(factor.diagonal.sum())

    def _regression(self, K: Vector, scale: float, V: Vector, with_gradient: bool) -> tuple[list[float], float, float]:
        """The values, ∂q/∂η and ∂q/∂log σ² at given K; the triangle of ∂q/∂(σ²K) stands in G."""
        factor, blas, n = self._factor, self._blas, len(V)
        P = K @ V
        P *= scale
        inverse = factor.inverse() if self._asks_inverse else None
        c = np.ones(n) if inverse is None else inverse.diagonal()
        at = Answers(self._Y, V, P, c, scale, np.zeros_like(V), np.zeros_like(V), np.zeros(n))
        values = [
            term(objective, at, coefficient)
            for (term, objective), coefficient in zip(self._terms, self._coefficients, strict=True)
        ]
        if not with_gradient:
            return values, 0.0, 0.0
        B = factor.solve(at.slope_V + scale * (K @ at.slope_P))
        slope_ridge = -float(np.vdot(B, V))
        beta = 0.0
        if inverse is not None:
            for sign in (1.0, -1.0):
                # −A⁻¹ diag(g) A⁻¹ as a difference of two Gram matrices, each without what is zero.
                rows = np.flatnonzero(sign * at.slope_c < 0.0)
                if len(rows):
                    half = inverse[rows] * np.sqrt(np.abs(at.slope_c[rows]))[:, None]
                    blas.dsyrk(sign, half.T, beta=beta, c=self._G, lower=1, overwrite_c=1)
                    beta = 1.0
            slope_ridge += beta * float(self._G.diagonal().sum())
        blas.dsyr2k(0.5, at.slope_P - B, V, beta=beta, c=self._G, lower=1, overwrite_c=1)
        return values, slope_ridge, at.slope_scale


def closed_objective(objective: Objective[Any], gram: RadialGram, Y: Tensor) -> ClosedObjective | None:
    """``objective`` with targets ``Y``; ``None`` where a term of it has no closed form."""
    terms = list(objective.terms())
    kinds = {type(term) for _, term in terms}
    known = kinds == {ConditionalEvidence} or kinds <= set(TERMS)
    return ClosedObjective(gram, Y, terms) if known and Y.dtype == torch.float64 else None
