r"""The Rademacher complexity bound r(θ, λ) of Theorem 4, and its multipliers.

.. math::  r(\theta, \lambda) = \alpha(\theta) \sqrt{\operatorname{tr}(V^\top K V)}, \qquad
           \alpha(\theta)^2 = \sup_x k_\theta(x, x)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from ..embeddings import ConditionedEmbedding, MulticlassEmbedding, MulticlassPredictor
from ..validation import check_number
from .base import Array, Objective, Targets
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
the released code of the paper, which sums the cross-entropy over data where eq. (12) has the mean; and the small
multiple that accompanies a leave-one-out risk."""


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
                raise ValueError(f"Unknown rate {rate!r}. Use a number or one of {', '.join(RATES)}.")
        elif not 0.0 <= check_number("rate", rate) < math.inf:
            raise ValueError(f"The rate must be finite and not negative, got {rate}. The default 1.0 is r itself.")
        self.rate = rate

    def multiplier(self, n: float) -> float:
        """τ for n data."""
        return RATES[self.rate](n) if isinstance(self.rate, str) else float(self.rate)

    inputs = ("squared_norm", "sup_diagonal")

    def evaluate(self, attached: ConditionedEmbedding) -> Tensor:
        """τ·r."""
        return self.differentiable(attached, (squared_norm(attached), attached.sup_diagonal.value.to(attached.x)))

    def is_direct(self, embedding: Any) -> bool:
        """Where the norm is that of the one-hot targets, tr VᵀKV."""
        return isinstance(embedding, MulticlassEmbedding) or embedding.target_kernel is None

    def value_and_gradient(self, data: Targets, *inputs: Array) -> tuple[Array, tuple[Array, ...]]:
        """τ √(α² s), with the derivatives half of it divided by s and by α²."""
        (s, alpha2), xp = inputs, data.xp
        # Kept above zero, where the square root has no derivative.
        tiny = float(xp.finfo(s.dtype).tiny)
        positive = s.clip(tiny)
        value = self.multiplier(data.num_data) * xp.sqrt(alpha2 * positive)
        half = 0.5 * value
        return value, (half / positive * (s >= tiny), half / alpha2)

    def __repr__(self) -> str:
        rate = repr(self.rate) if isinstance(self.rate, str) else f"{self.rate:g}"
        return f"RademacherComplexity(rate={rate})"


def rademacher_complexity(attached: ConditionedEmbedding) -> Tensor:
    """r(θ, λ) = α √tr(VᵀKV), of shape ``batch``; α √tr(A⁻¹KA⁻¹L) for an embedding with a target kernel of its own."""
    norm = squared_norm(attached)
    norm = norm.clamp_min(torch.finfo(norm.dtype).tiny)
    return (attached.sup_diagonal.value.to(norm) * norm).sqrt()


def squared_norm(attached: ConditionedEmbedding) -> Tensor:
    """The squared norm of the embedding, into the RKHS of its own target kernel where it has one."""
    # The targets of classes are one-hot rows, for a conditioned embedding and for statistics of features alike.
    classes = isinstance(attached, MulticlassPredictor)
    kernel = None if classes else getattr(getattr(attached, "embedding", None), "target_kernel", None)
    return attached.squared_norm if kernel is None else target_squared_norm(attached, kernel)


def target_squared_norm(attached: ConditionedEmbedding, kernel: Kernel) -> Tensor:
    """ρ² = tr(A⁻¹KA⁻¹L), the squared norm into the RKHS of the target ``kernel``, of shape ``batch``."""
    features = target_features(attached, kernel, centered=False)
    if features is not None:
        V, P = attached.system.regress(features)
        return (V * P).sum((-2, -1))
    L = target_form(attached, kernel, centered=False).apply(torch.eye(attached.num_data).to(attached.x))
    return attached.system.solve(attached.system.regress(L)[1]).diagonal(dim1=-2, dim2=-1).sum(-1)
