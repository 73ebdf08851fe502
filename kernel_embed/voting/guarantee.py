r"""What the theory says of a fitted vote: the right-hand sides of Theorems 1 and 2, at one margin.

Both theorems speak of convex combinations of functions with values in [−1, 1] (their proofs sample functions by their
weights and apply Hoeffding's inequality), so a vote :math:`f = \sum_t \alpha_t h_t` is first written in them: with
:math:`B_t = \sup |h_t|`, the functions are :math:`h_t / B_t`, the weights :math:`|\alpha_t| B_t / A` with
:math:`A = \sum_t |\alpha_t| B_t`, the complexities :math:`r_t / B_t`, and a margin of :math:`\rho` for :math:`f / A` is
one of :math:`\rho A` for :math:`f`. Then :math:`\sum_t \alpha_t r_t` becomes :math:`\sum_t |\alpha_t| r_t / A`.

What is published is an *estimate*: the theorems fix ρ before the data, and their proofs have the margin error at 3ρ/2.
:mod:`kernel_embed.voting.uniform` has the form that holds for all ρ at once, a *certificate* where its conditions hold.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, TypeAlias

import numpy as np

from ..validation import check_array, check_at_least, check_count, check_number
from .families import Array

Theorem: TypeAlias = Literal[1, 2]


AS_PUBLISHED = (
    "the theorem as published fixes ρ before the data are seen, and its proof has the margin error at 3ρ/2, not ρ; "
    "use uniform=True"
)
"""Why the right-hand side at one margin is no certificate."""


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """A right-hand side and the terms it is the sum of: a certificate, or an estimate and why it is no more.

    A certificate says that R(f) ≤ ``value`` with probability ``confidence`` over i.i.d. samples, for kernels that were
    chosen without them. An estimate is a number of the same form, for which there is no proof.

    Attributes:
        margin_error: the share of the sample with a margin of at most ρ (times K / (K − 1) in Theorem 2).
        complexity_term: the term with Σ α_t r_t.
        confidence_term: the remaining terms, which depend on m, p, ρ and δ only.
        confidence: 1 − δ.
        rho: the margin ρ of the convex combination.
        theorem: 1 or 2.
        reasons: why it is an estimate, one sentence each; empty for a certificate.
        num_outside_radius: votes whose mean square on the sample exceeds the radius of their local complexity.

    Example:
        >>> import numpy as np
        >>> from kernel_embed.voting import uniform_theorem_1
        >>> guarantee = uniform_theorem_1(np.full(100_000, 0.5), 0.001, p=2, rho=0.4)
        >>> guarantee.kind, guarantee.margin_error
        ('certificate', 0.0)
    """

    margin_error: float
    complexity_term: float
    confidence_term: float
    confidence: float
    rho: float
    theorem: Theorem
    reasons: tuple[str, ...] = (AS_PUBLISHED,)
    num_outside_radius: int = 0

    @property
    def kind(self) -> Literal["certificate", "estimate"]:
        """``"certificate"`` where every condition that can be checked holds, else ``"estimate"``, for ``reasons``."""
        return "estimate" if self.reasons else "certificate"

    @property
    def value(self) -> float:
        """The right-hand side; a value of one or more says nothing."""
        return self.margin_error + self.complexity_term + self.confidence_term

    @property
    def is_vacuous(self) -> bool:
        """Whether the value says nothing, as an error rate is at most one."""
        return self.value >= 1.0


def theorem_1(margins: Array, mean_complexity: float, p: int, rho: float, confidence: float = 0.95) -> Guarantee:
    r"""Theorem 1 as published, an estimate, for a convex combination with margins :math:`y_i f(x_i)`.

    .. math::  \hat R_{S,\rho}(f) + \frac4\rho \sum_t \alpha_t r_t + \frac2\rho \sqrt{\frac{\log p}{m}}
               + \sqrt{\Big\lceil \frac{4}{\rho^2} \log \frac{\rho^2 m}{\log p} \Big\rceil \frac{\log p}{m}
               + \frac{\log (2/\delta)}{2m}}

    Args:
        margins: y_i f(x_i), shape (m,).
        mean_complexity: Σ_t α_t r_t, weights of sum one.
        p: the number of kernels, at least 2.
        rho: the margin ρ > 0.
        confidence: 1 − δ.

    Example:
        >>> import numpy as np
        >>> result = theorem_1(np.full(10_000, 0.5), 0.001, p=2, rho=0.4)
        >>> round(result.value, 4), result.is_vacuous
        (0.1684, False)
    """
    margins, delta = _check(margins, mean_complexity, p, rho, confidence), 1.0 - confidence
    m = len(margins)
    n = max(0, math.ceil(4.0 / rho**2 * math.log(rho**2 * m / math.log(p))))
    term = 2.0 / rho * math.sqrt(math.log(p) / m)
    term += math.sqrt(n * math.log(p) / m + math.log(2.0 / delta) / (2.0 * m))
    return Guarantee(margin_error(margins, rho), 4.0 / rho * mean_complexity, term, confidence, rho, 1)


def theorem_2(
    margins: Array, mean_complexity: float, p: int, rho: float, confidence: float = 0.95, K: float = 2.0
) -> Guarantee:
    r"""Theorem 2 as published, an estimate; its terms fall as 1/m where the complexities are local ones.

    .. math::  \frac{K}{K-1} \hat R_{S,\rho}(f) + \frac{6K}{\rho} \sum_t \alpha_t r_t
               + \frac{40K}{\rho^2} \frac{\log p}{m}
               + 5K \frac{\log(2/\delta)}{m}
               + 5K \Big\lceil \frac{8}{\rho^2} \log \frac{\rho^2 (1 + \frac{K}{K-1}) m}{40 K \log p} \Big\rceil
               \frac{\log p}{m}

    Args are those of :func:`theorem_1`, and K > 1.

    Example:
        >>> import numpy as np
        >>> result = theorem_2(np.full(1_000_000, 0.5), 0.001, p=2, rho=0.4)
        >>> round(result.value, 4), result.is_vacuous
        (0.0335, False)
    """
    margins, delta = _check(margins, mean_complexity, p, rho, confidence), 1.0 - confidence
    m = len(margins)
    if not 1.0 < check_number("K", K) < math.inf:
        raise ValueError(f"Expected K > 1 in Theorem 2, got {K}. Give K=2, say.")
    ratio = K / (K - 1.0)
    n = max(0, math.ceil(8.0 / rho**2 * math.log(rho**2 * (1.0 + ratio) * m / (40.0 * K * math.log(p)))))
    term = 40.0 * K / rho**2 * math.log(p) / m + 5.0 * K * math.log(2.0 / delta) / m
    term += 5.0 * K * n * math.log(p) / m
    error = ratio * margin_error(margins, rho)
    return Guarantee(error, 6.0 * K / rho * mean_complexity, term, confidence, rho, 2)


def margin_error(margins: Array, rho: float) -> float:
    """The share of the margins that are at most ρ."""
    return float((margins <= rho).mean())


def _check(margins: Array, mean_complexity: float, p: int, rho: float, confidence: float) -> Array:
    check_at_least(0.0, mean_complexity=mean_complexity)
    if check_count("p", p) < 2:
        raise ValueError(
            f"Expected p > 1 kernels, as both theorems assume, got p = {p}. Vote over at least two kernels."
        )
    if not 1e-100 < check_number("rho", rho) < 1e100:
        raise ValueError(f"Expected a margin ρ > 0, between 1e-100 and 1e100, got {rho}. Leave it None for 1/A.")
    if not 0.0 < check_number("confidence", confidence) < 1.0:
        raise ValueError(f"Expected confidence between 0 and 1, got {confidence}. Give 0.95, which is usual.")
    margins = check_array(margins, "margins", 1)
    if not len(margins) or np.isnan(margins).any():
        raise ValueError(f"Expected the margins of at least one point, got {len(margins)} with NaN or none. Give data.")
    return margins
