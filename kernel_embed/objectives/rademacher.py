r"""The Rademacher complexity bound r(θ, λ) of Theorem 4, and its multipliers.

.. math::  r(\theta, \lambda) = \alpha(\theta) \sqrt{\operatorname{tr}(V^\top K V)}, \qquad
           \alpha(\theta)^2 = \sup_x k_\theta(x, x)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import ConditionedEmbedding, MulticlassPredictor
from ..validation import check_number
from .base import Objective
from .score import target_features, target_form

RATES: dict[str, Callable[[float], float]] = {
    "4e": lambda n: 4.0 * math.e,
    "4e/sqrt(n)": lambda n: 4.0 * math.e / math.sqrt(n),
    "2e/sqrt(n)": lambda n: 2.0 * math.e / math.sqrt(n),
    "e/sqrt(n)": lambda n: math.e / math.sqrt(n),
    "4e/n": lambda n: 4.0 * math.e / n,
    "1/n": lambda n: 1.0 / n,
}
"""The named multipliers: eq. (12) as published; the tight bound; the sharp one; the same rate with a smaller constant;
the released code of the paper, which sums the cross-entropy over data where eq. (12) has the mean; and the touch of it
that goes with a leave-one-out risk."""


class RademacherComplexity(Objective[ConditionedEmbedding]):
    """τ·r, with r the bound of Theorem 4 and τ a number or one of the named rates.

    For a :class:`kernel_embed.ConditionalEmbedding` with a target kernel r is αρ of the theorem for any target; see
    :func:`kernel_embed.objectives.score_bound`.

    Args:
        rate: τ. ``RademacherComplexity()`` is r itself. Named rates are ``"4e"`` (eq. 12 as published),
            ``"4e/sqrt(n)"`` (the tight bound), ``"2e/sqrt(n)"`` (the sharp one), ``"e/sqrt(n)"``, ``"4e/n"`` (the
            paper's released code) and ``"1/n"`` (in the default objective).

    Raises:
        TypeError: if ``rate`` is neither a name nor a number.
        ValueError: if ``rate`` is an unknown name, negative or not finite.

    Example:
        >>> RademacherComplexity(), RademacherComplexity("4e/sqrt(n)"), 0.5 * RademacherComplexity()
        (RademacherComplexity(rate=1), RademacherComplexity(rate='4e/sqrt(n)'), 0.5 * RademacherComplexity(rate=1))
    """

    def __init__(self, rate: float | str = 1.0) -> None:
        if isinstance(rate, str):
            rate = rate.replace("√n", "sqrt(n)")
            if rate not in RATES:
                raise ValueError(
                    f"Expected a number or one of the rates {', '.join(RATES)}, got {rate!r}. Give one of these."
                )
        elif not 0.0 <= check_number("rate", rate) < math.inf:
            raise ValueError(
                f"Expected a rate that is finite and not negative, got {rate}. Give 1.0, which is r itself."
            )
        self.rate = rate

    def multiplier(self, n: float) -> float:
        """τ for n data."""
        return RATES[self.rate](n) if isinstance(self.rate, str) else float(self.rate)

    def evaluate(self, bound: ConditionedEmbedding) -> Tensor:
        """τ·r."""
        return self.multiplier(bound.total_weight) * rademacher_complexity(bound)

    def __repr__(self) -> str:
        rate = repr(self.rate) if isinstance(self.rate, str) else f"{self.rate:g}"
        return f"RademacherComplexity(rate={rate})"


def rademacher_complexity(bound: ConditionedEmbedding) -> Tensor:
    """r(θ, λ) = α √tr(VᵀKV), of shape ``batch``; α √tr(A⁻¹KA⁻¹L) for an embedding with a target kernel of its own."""
    embedding = getattr(bound, "embedding", None)
    # Of classes the targets are one-hot rows, whatever holds them: a conditioned embedding or statistics of features.
    target = None if isinstance(bound, MulticlassPredictor) else getattr(embedding, "target_kernel", None)
    squared_norm = bound.squared_norm if target is None else target_squared_norm(bound, target)
    # Kept above zero, where the square root has no derivative.
    squared_norm = squared_norm.clamp_min(torch.finfo(squared_norm.dtype).tiny)
    return (bound.sup_diagonal.value.to(squared_norm) * squared_norm).sqrt()


def target_squared_norm(bound: ConditionedEmbedding, kernel: Kernel) -> Tensor:
    """ρ² = tr(A⁻¹KA⁻¹L), the squared norm into the RKHS of the target ``kernel``, of shape ``batch``."""
    features = target_features(bound, kernel, centered=False)
    if features is not None:
        V, P = bound.system.regress(features)
        return (V * P).sum((-2, -1))
    L = target_form(bound, kernel, centered=False).apply(torch.eye(bound.num_data).to(bound.x))
    return bound.system.solve(bound.system.regress(L)[1]).diagonal(dim1=-2, dim2=-1).sum(-1)
